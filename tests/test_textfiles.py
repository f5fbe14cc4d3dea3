"""Which text or data set a name refers to, and the texts that are read from files of each kind."""

import gzip
import hashlib
import json

import pytest
from client_cache import A, B, offline_cache

from collapse.errors import CollapseError, UsageError
from collapse.hub.corpus import find_corpus, opened
from collapse.hub.textfiles import find_files, read_texts, show_names
from collapse.stores.files import sha256_of


def write(path, content="x\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def lines(*texts):
    return "".join(json.dumps({"text": text}) + "\n" for text in texts)


def texts(*files, column="text"):
    return [text for file in files for _, text in read_texts(str(file), column)]


def test_names_and_globs_stand_for_files_in_order(tmp_path, monkeypatch):
    for name in ("b.txt", "a.txt", "d/c.txt", "d/e/f.txt", "g.jsonl"):
        write(tmp_path / name)
    (tmp_path / "z.txt").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_files(["b.txt", "a.txt"]) == ["b.txt", "a.txt"]
    assert find_files(["d/c.txt", "[ab].txt"]) == ["d/c.txt", "a.txt", "b.txt"]
    assert find_files(["**/*.txt"]) == ["a.txt", "b.txt", "d/c.txt", "d/e/f.txt"]
    write(tmp_path / "d" / "README.md")
    assert find_files(["d/"]) == ["d/c.txt", "d/e/f.txt"]
    assert show_names(["x/a", "x/b", "x/c"]) == "a, b, c"
    assert show_names(["x/a", "x/b", "x/c", "x/d"]) == "a … d (4 files)"


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["a.txt", "b.jsonl"], "^a.txt, b.jsonl cannot be read: .*, all in one format$"),
        (["c.csv"], "c.csv cannot be read: give .txt, .jsonl, .json or .parquet files, all in one format"),
        (
            ["d"],
            "d has files of several splits, such as d/x.parquet and d/test.parquet: give the files or the folder of",
        ),
        (["none"], "no file matches none; give .txt, .jsonl, .json or .parquet files, or"),
        (["a.tx"], r"no file matches a.tx; did you mean a.txt\?$"),
        (["nowhere/a.txt"], "no file matches nowhere/a.txt; give .txt, .jsonl, .json or .parquet files, or"),
        ([""], "no file matches the empty name; give .txt, .jsonl, .json or .parquet files, or"),
    ],
)
def test_names_that_stand_for_no_text_are_refused(tmp_path, monkeypatch, names, said):
    for name in ("a.txt", "b.jsonl", "c.csv", "d/x.parquet", "d/test.parquet", "none/README.md"):
        write(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=said):
        find_files(names)


@pytest.mark.parametrize("name", ["a[1].jsonl", "a::b.jsonl"])
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

    objects = [{"text": "one", "other": 1}, {"text": "2020-01-01", "other": "late"}]
    expected = ["one", "2020-01-01"]
    for name in ("a.json", "a.jsonl"):
        for content in ("\r\n\n".join(map(json.dumps, objects)), "\ufeff" + json.dumps(objects, indent=1)):
            assert texts(write(tmp_path / name, content)) == expected
    halves = [lines(each).encode() for each in expected]
    packed = gzip.compress(halves[0]) + gzip.compress(halves[1])
    zipped = b"".join(pyarrow.compress(half, codec="zstd", asbytes=True) for half in halves)
    listed = pyarrow.compress(json.dumps(objects).encode(), codec="zstd", asbytes=True)
    for name, content in (("b.jsonl.gz", packed), ("b.jsonl", packed), ("b.jsonl.zst", zipped), ("b.json.zst", listed)):
        assert texts(write(tmp_path / name, content)) == expected
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
        ("a.txt", b"ab\ncd\xe9", r"^line 2 of a\.txt is not UTF-8: convert the file"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "\xe9"}', r"^line 2 of a\.jsonl is not UTF-8"),
        ("a.json", b'[{"text": "\xe9"}]', r"^line 1 of a\.json is not UTF-8"),
        ("a.parquet", "no parquet", r"a\.parquet cannot be read as Parquet"),
        ("a.jsonl.gz", gzip.compress(lines("a" * 99).encode(), mtime=0)[:-9], r"a\.jsonl\.gz cannot be read: "),
        ("a.jsonl.gz", b"", r"a\.jsonl\.gz is empty: copy"),
        ("a.jsonl.zst", b"\x28\xb5\x2f\xfdbad", r"a\.jsonl\.zst cannot be read: "),
    ],
)
def test_what_cannot_be_read_is_told_by_its_place(tmp_path, name, content, said):
    with pytest.raises(CollapseError, match=said):
        texts(write(tmp_path / name, content))


def test_a_lone_surrogate_is_read_as_a_replacement_character_with_a_note(tmp_path, caplog):
    content = lines("a", "b \ud83d", "\ud83d\ude00", "\ude00c")
    with opened(find_corpus(write(tmp_path / "a.jsonl", content))) as (counts, found):
        assert max(counts) == 4
        assert list(found) == ["a", "b \N{REPLACEMENT CHARACTER}", "\N{GRINNING FACE}", "\N{REPLACEMENT CHARACTER}c"]
    assert [record.message for record in caplog.records] == [
        "line 2 of a.jsonl has an invalid character (a lone surrogate), read as U+FFFD; further rows are not reported"
    ]


def test_only_the_asked_column_is_read(tmp_path):
    import pyarrow
    from pyarrow import parquet

    broken = pyarrow.array([["x"], None]).cast(pyarrow.list_(pyarrow.string()))
    columns = {"text": ["a", "b"], "story": [1, 2], "nested": [{"a": 1}, {"a": 2}], "lists": broken}
    columns["odd"] = pyarrow.array([b"\xff", b""]).cast(pyarrow.binary())
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    assert texts(tmp_path / "a.parquet") == ["a", "b"]
    rows = [{"text": "a", "meta": None}, {"text": "b", "meta": {"a": 1}}, {"text": "c", "meta": "d", "more": 1e999}]
    assert texts(write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))) == ["a", "b", "c"]


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
    assert find_corpus("owner/data").name == "x.txt"  # what exists is never looked for on the Hub
