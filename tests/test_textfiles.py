"""Which text or data set a name stands for, and the texts that are read from files of each kind."""

import gzip
import hashlib
import json
import os
from pathlib import Path

import pytest
from client_cache import A, B, offline_cache

from collapse.errors import CollapseError, UsageError
from collapse.inputs.corpus import find_corpus, opened
from collapse.inputs.textfiles import find_files, read_texts, show_names
from collapse.stores.files import sha256_of

LATIN = os.fsdecode(b"caf\xe9.jsonl")


def write(path, content="x\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def lines(*texts):
    return "".join(json.dumps({"text": text}) + "\n" for text in texts)


def texts(*files, column="text"):
    return list(read_texts([str(file) for file in files], column))


def test_names_and_globs_stand_for_files_in_order(tmp_path, monkeypatch):
    for name in ("b.txt", "a.txt", "d/c.txt", "d/e/f.txt", "g.jsonl"):
        write(tmp_path / name)
    (tmp_path / "z.txt").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_files(["b.txt", "a.txt"]) == ["b.txt", "a.txt"]
    assert find_files(["d/c.txt", "[ab].txt"]) == ["d/c.txt", "a.txt", "b.txt"]
    assert find_files(["**/*.txt"]) == ["a.txt", "b.txt", "d/c.txt", "d/e/f.txt"]
    assert show_names(["x/a", "x/b", "x/c"]) == "a, b, c"
    assert show_names(["x/a", "x/b", "x/c", "x/d"]) == "a … d (4 files)"


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["a.txt", "b.jsonl"], "all of the same kind, got a.txt, b.jsonl$"),
        (["c.csv"], "must be .txt, .jsonl, .json or .parquet files, all of the same kind, got c.csv"),
        (["d"], r"d is a folder: give its files, for example 'd/\*\.jsonl'"),
        (["a.tx"], r"no file matches a.tx; did you mean a.txt\?$"),
        (["none/a.txt"], "no file matches none/a.txt; texts are"),
        ([""], "the empty name is a folder"),
    ],
)
def test_names_that_stand_for_no_text_are_refused(tmp_path, monkeypatch, names, said):
    for name in ("a.txt", "b.jsonl", "c.csv", "d/y.parquet"):
        write(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=said):
        find_files(names)


@pytest.mark.parametrize("name", ["a[1].jsonl", "**.jsonl", "a::b.jsonl", "hf:c.jsonl", LATIN])
def test_a_name_that_exists_is_no_glob(tmp_path, name):
    write(tmp_path / "a1.jsonl", lines("no"))
    with opened(find_corpus(write(tmp_path / name, lines("yes")))) as (counts, found):
        assert (max(counts), list(found)) == (1, ["yes"])


def test_a_text_is_known_by_content_column_and_kind(tmp_path):
    a, b = write(tmp_path / "a.jsonl", "one"), write(tmp_path / "b.jsonl", "two")
    hashes = [hashlib.sha256(each).hexdigest() for each in (b"one", b"two")]
    assert find_corpus([a, b]).identity() == {"sha256": sha256_of(hashes), "column": "text"}
    assert find_corpus([b, a], text_column="c").identity() == {"sha256": sha256_of(hashes[::-1]), "column": "c"}
    same = write(tmp_path / "d" / "c.jsonl", "one"), write(tmp_path / "c.txt", "one")  # each line of the latter is one
    assert [find_corpus(each).identity() == find_corpus(a).identity() for each in same] == [True, False]


def test_every_kind_of_file_holds_the_same_texts(tmp_path):
    import pyarrow
    from pyarrow import parquet

    page = Path(__file__).resolve().parents[1] / "docs" / "guides" / "text.md"
    assert "A .json or .jsonl file holds one object per line, or one list of objects." in page.read_text("utf-8")
    objects = [{"text": "one", "other": 1}, {"text": "2020-01-01", "other": "late"}]
    expected = ["one", "2020-01-01"]
    for name in ("a.json", "a.jsonl"):
        for content in ("\r\n\n".join(map(json.dumps, objects)), "\ufeff" + json.dumps(objects, indent=1)):
            assert texts(write(tmp_path / name, content)) == expected
    assert texts(write(tmp_path / "b.jsonl.gz", gzip.compress(lines(*expected).encode()))) == expected
    for kind in (pyarrow.string(), pyarrow.large_string(), pyarrow.dictionary(pyarrow.int8(), pyarrow.string())):
        parquet.write_table(pyarrow.table({"text": pyarrow.array(expected).cast(kind)}), tmp_path / "c.parquet")
        assert texts(tmp_path / "c.parquet", tmp_path / "a.json") == expected * 2
    broken = write(tmp_path / "d.txt", b"one\r\ntwo\rthree\n\r\nfour")
    assert texts(broken) == ["one\n", "two\n", "three\n", "\n", "four"]
    assert texts(write(tmp_path / "e.jsonl", '{"story": "a", "text": 1}\n'), column="story") == ["a"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", lines("a") + '{"text": \n', r"^line 2 of a\.jsonl is not JSON"),
        ("a.jsonl", lines("a", "b", None), r"^line 3 of a\.jsonl holds None instead of a text in column 'text': clean"),
        ("a.jsonl", '{"text": "a"}\n["b"]\n', r"line 2 of a\.jsonl is not a JSON object"),
        ("a.json", '[{"text": "a"}, {"text": true}]', r"entry 2 of a\.json holds True instead of a text"),
        ("a.json", '[{"text": "a"}', r"a\.json is not JSON"),
        ("a.jsonl", '{"txt": "a"}', r"line 1 of a\.jsonl has no column 'text'; did you mean txt\? \(--text-column\)"),
        ("a.txt", b"ab\xe9cd", r"a\.txt is not UTF-8 .*: convert it"),
        ("a.parquet", "no parquet", r"a\.parquet cannot be read as Parquet"),
        ("a.jsonl.gz", gzip.compress(lines("a" * 99).encode(), mtime=0)[:-9], r"a\.jsonl\.gz cannot be read: "),
    ],
)
def test_what_cannot_be_read_is_told_by_its_place(tmp_path, name, content, said):
    with pytest.raises(CollapseError, match=said):
        texts(write(tmp_path / name, content))


def test_parquet_without_the_column_or_with_other_values(tmp_path):
    from pyarrow import Table, parquet

    parquet.write_table(Table.from_pylist([{"text": 17}]), tmp_path / "a.parquet")
    with pytest.raises(CollapseError, match=r"row 1 of a\.parquet holds 17 instead of a text"):
        texts(tmp_path / "a.parquet")
    for file, known in ((tmp_path / "a.parquet", "text"), (write(tmp_path / "a.txt"), "text")):
        with pytest.raises(UsageError, match=rf"has no column 'txt'; did you mean {known}\?"):
            texts(file, column="txt")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A cache of the client that knows owner/data; no network."""
    put = offline_cache(tmp_path, monkeypatch)
    put("owner/data", kind="dataset")
    put("owner/data", ref="v1", commit=B, kind="dataset")


def test_a_data_set_is_known_by_commit_split_and_column(hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = find_corpus(text="owner/data", split="a", text_column="b")
    assert found.identity() == {"name": "owner/data", "revision": A, "split": "a", "column": "b"}
    assert find_corpus(["owner/data@v1"]).revision == B
    assert find_corpus("owner/data").split == "train"
    for name in ("owner/data.txt", "owner/d*", "./owner", "~nosuchuser/data", "a/b/c"):
        with pytest.raises(UsageError, match="no file matches"):
            find_corpus(name)
    with pytest.raises(CollapseError, match=r"hf download other/data --repo-type dataset; or give local files"):
        find_corpus("other/data")
    write(tmp_path / "owner" / "data" / "x.txt")
    with pytest.raises(UsageError, match="owner/data is a folder"):  # what exists is never looked for on the Hub
        find_corpus("owner/data")
