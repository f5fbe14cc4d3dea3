"""Which files a text's name stands for, whether they can be read, and what their hash is of."""

import bz2
import errno
import gzip
import hashlib
import json
import logging
import os
from pathlib import Path

import pytest

from collapse.errors import CollapseError, UsageError
from collapse.inputs.corpus import Corpus, find_corpus, load_rows, texts, unknown_split
from collapse.inputs.textfiles import could_be_json, find_files, hash_again, hash_checked, show_names
from collapse.stores.files import sha256_of

COMMIT = "a" * 40


def write(path, content="x\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def test_names_and_globs_stand_for_files_in_order(tmp_path, monkeypatch):
    for name in ("b.txt", "a.txt", "d/c.txt", "d/e/f.txt", "g.jsonl"):
        write(tmp_path / name)
    (tmp_path / "z.txt").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_files(["b.txt", "a.txt"]) == ["b.txt", "a.txt"]
    assert find_files(["*.txt"]) == ["a.txt", "b.txt"]
    assert find_files(["d/c.txt", "[ab].txt"]) == ["d/c.txt", "a.txt", "b.txt"]
    assert find_files(["**/*.txt"]) == ["a.txt", "b.txt", "d/c.txt", "d/e/f.txt"]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["a.txt", "b.jsonl"], "all of one kind: got a.txt, b.jsonl$"),
        (["c.csv"], "must be .txt, .jsonl, .json or .parquet files, all of one kind: got c.csv"),
        (["a.txt", "c.csv"], "got a.txt, c.csv"),
        (["d"], r"d is a folder: give its files, for example d/\*.parquet"),
        (["e"], r"e is a folder: give its files, for example e/\*.jsonl"),
        (["a.tx"], r"no file matches a.tx; did you mean a.txt\?$"),
        (["nothere.txt"], r"no file matches nothere.txt$"),
        (["paper.pdf"], r"no file matches paper.pdf; texts are .txt, .jsonl, .json or .parquet files"),
        (["zzzzz"], "no file matches zzzzz$"),
        (["none/a.txt"], "no file matches none/a.txt$"),
        (["*.parquet"], r"no file matches \*.parquet"),
        (["a.txt", "none.txt"], "no file matches none.txt"),
    ],
)
def test_names_that_stand_for_no_text_are_refused(tmp_path, monkeypatch, names, said):
    for name in ("a.txt", "b.jsonl", "c.csv", "d/y.parquet", "d/z.txt", "d/a.md", "e/notes.md"):
        write(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=said):
        find_files(names)


def test_many_names_are_shown_by_the_first_and_the_last():
    assert show_names(["x/a.txt"]) == "a.txt"
    assert show_names(["x/a", "x/b", "x/c"]) == "a, b, c"
    assert show_names(["x/a", "x/b", "x/c", "x/d"]) == "a … d (4 files)"


def test_a_hash_is_of_every_files_content_in_order(tmp_path):
    a, b = write(tmp_path / "a.txt", "one"), write(tmp_path / "b.txt", "two")
    expected = [hashlib.sha256(each).hexdigest() for each in (b"one", b"two")]
    assert hash_checked([a, b]) == hash_again([a, b]) == sha256_of(expected)
    assert hash_checked([b, a]) == sha256_of(expected[::-1])
    assert hash_checked([a]) == sha256_of(expected[:1])


LARGE = 1 << 20  # a block


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"", "a.txt is empty"),
        ("a.parquet", b"", "a.parquet is empty"),
        ("a.txt", b"ab\xe9cd", r"is not UTF-8 \(byte 2\): convert it, .* a.txt > new.txt"),
        ("a.jsonl", b"ab\xe9cd", r"is not UTF-8 \(byte 2\)"),
        ("b.txt", "a b".encode("utf-16"), r"is not UTF-8 \(byte 0\): convert it, .* iconv -f utf-16 -t utf-8 b.txt"),
        ("a.txt", b"\xe9" + b"x" * 10, r"\(byte 0\)"),
        ("a.jsonl", gzip.compress(b'{"text": "a"}', mtime=0), r"a\.jsonl is compressed: decompress it"),
        ("a.txt", bz2.compress(b"a text"), r"a\.txt is compressed: decompress it"),
        ("a.txt", b"x" * LARGE + b"ab\xff", rf"\(byte {LARGE + 2:,}\)"),
        ("a.txt", b"x" * (LARGE - 1) + b"\xc3x", rf"\(byte {LARGE - 1:,}\)"),
        ("a.txt", b"x" * (2 * LARGE - 1) + b"\xc3\xa9\xff", rf"\(byte {2 * LARGE + 1:,}\)"),
        ("a.txt", b"ab\xc3", r"it ends within a character \(byte 3\); is it truncated"),
    ],
)
def test_what_cannot_be_read_is_told_by_its_place(tmp_path, name, content, said):
    fine = write(tmp_path / f"fine.{name[2:]}", "x")
    with pytest.raises(CollapseError, match=said):
        hash_checked([fine, write(tmp_path / name, content)])


def test_what_can_be_read_is(tmp_path):
    for name, content in (
        ("a.txt", b"[" * 1000),
        ("b.txt", b"x" * (LARGE - 1) + b"\xc3\xa9"),
        ("c.jsonl", b"[" * 100),
        ("d.parquet", b"\xff\xfe"),
        ("e.txt", b"x"),
    ):
        hash_checked([write(tmp_path / name, content)])
    os.mkfifo(tmp_path / "f.txt")
    with pytest.raises(CollapseError, match=r"f\.txt cannot be read: not a regular file"):
        hash_checked([str(tmp_path / "f.txt")])
    with pytest.raises(CollapseError, match=r"none\.txt cannot be read: No such file"):
        could_be_json([str(tmp_path / "none.txt")])


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        (["once"], False),
        (["once", "twice"], False),
        (['{"text": 1}'], True),
        (["[1]"], True),
        ([' \t\r\n\ufeff{"a"'], True),
        (["once", "{"], True),
        (["{", "once"], True),
        ([" \n"], True),
        (["\n" * (1 << 16) + "once"], True),  # as far as is looked, it could be
        (["\n" * ((1 << 16) - 1) + "once"], False),
        (['"text"'], False),
    ],
)
def test_lines_that_could_be_json(tmp_path, contents, expected):
    files = [write(tmp_path / f"{number}.txt", content) for number, content in enumerate(contents)]
    assert could_be_json(files) == expected
    corpus = find_corpus(files)
    digests = [hashlib.sha256(content.encode()).hexdigest() for content in contents]
    plain = {"sha256": sha256_of(digests), "column": "text"}
    assert corpus.identity() == (plain | {"lines": True} if expected else plain)
    assert corpus == Corpus(corpus.name, "files", tuple(files), None, "text", None, sha256_of(digests), True, expected)


def test_json_is_never_lines(tmp_path):
    assert not find_corpus(write(tmp_path / "a.jsonl", '{"text": "a"}\n')).lines
    with pytest.raises(AttributeError):
        find_corpus(str(tmp_path / "a.jsonl")).lines = True


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A cache of the client that knows owner/data; no network."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    for name, commit in (("main", COMMIT), ("v1", "b" * 40)):
        write(tmp_path / "hub" / "datasets--owner--data" / "refs" / name, commit)
        (tmp_path / "hub" / "datasets--owner--data" / "snapshots" / commit).mkdir(parents=True)


def test_a_data_set_is_known_by_commit_split_and_column(hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = find_corpus(text="owner/data", split="a", text_column="b")
    assert found == Corpus("owner/data", "hub", (), "a", "b", COMMIT, online=False)
    assert not found.lines
    assert found.identity() == {"name": "owner/data", "revision": COMMIT, "split": "a", "column": "b"}
    assert find_corpus(["owner/data@v1"]).revision == "b" * 40
    assert find_corpus("owner/data").split == "train"
    for name in ("owner/data.txt", "owner/d*", "owner/d?", "owner/d[a]", "./owner", "/owner/data", "~/owner", "a/b/c"):
        with pytest.raises(UsageError, match="no file matches"):
            find_corpus(name)
    with pytest.raises(UsageError, match="no file matches"):
        find_corpus(["owner/data", "owner/data"])
    with pytest.raises(CollapseError, match="other/data is not available"):
        find_corpus("other/data")
    write(tmp_path / "owner" / "data" / "x.txt")
    with pytest.raises(UsageError, match="owner/data is a folder"):  # what exists is never looked for on the Hub
        find_corpus("owner/data")


def test_a_name_that_is_nowhere_is_told_as_both(tmp_path, monkeypatch):
    from huggingface_hub import HfApi, constants, errors

    def repo_info(self, *words, **options):
        raise errors.RepositoryNotFoundError.__new__(errors.RepositoryNotFoundError)

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(HfApi, "repo_info", repo_info)
    with pytest.raises(
        UsageError, match=r"the Hub has no dataset owner/stories.*; and there is no file owner/stories$"
    ):
        find_corpus("owner/stories")


def rows(tmp_path, *files, **options):
    corpus = find_corpus([str(file) for file in files], **options)
    folder = tmp_path / f"read{len(list(tmp_path.iterdir()))}"
    folder.mkdir()
    return corpus, load_rows(corpus, folder)


def test_json_is_lines_or_a_list_as_the_docs_say(tmp_path):
    page = Path(__file__).resolve().parents[1] / "docs" / "index.md"
    assert "A .json or .jsonl file holds one object per line, or one list of objects." in page.read_text("utf-8")
    objects = [{"text": "one"}, {"text": "two"}]
    for suffix in (".json", ".jsonl"):
        for content in ("\n".join(map(json.dumps, objects)), json.dumps(objects, indent=1)):
            corpus, read = rows(tmp_path, write(tmp_path / f"a{suffix}", content))
            assert texts(read, corpus, 0, 9) == ["one", "two"]


def test_rows_are_those_of_all_files_in_order(tmp_path):
    files = [write(tmp_path / name, json.dumps({"text": name}) + "\n") for name in ("b.jsonl", "a.jsonl")]
    corpus, read = rows(tmp_path, *files)
    assert texts(read, corpus, 0, 2) == ["b.jsonl", "a.jsonl"]
    assert texts(read, corpus, 1, 2) == ["a.jsonl"]
    corpus, read = rows(tmp_path, write(tmp_path / "c.txt", "one\ntwo\n"))
    assert texts(read, corpus, 0, 9) == ["one\n", "two\n"]
    assert not [each for each in logging.getLogger("datasets").handlers if each.level]


def test_every_kind_of_line_break_ends_a_text_and_is_read_as_a_newline(tmp_path):
    corpus, read = rows(tmp_path, write(tmp_path / "a.txt", b"one\r\ntwo\rthree\n\r\nfour"))
    assert texts(read, corpus, 0, 9) == ["one\n", "two\n", "three\n", "\n", "four"]


def test_a_row_that_is_no_text_is_named(tmp_path):
    lines = "".join(json.dumps({"text": text}) + "\n" for text in ("a", "b", "c", None))
    corpus, read = rows(tmp_path, write(tmp_path / "a.jsonl", lines))
    assert texts(read, corpus, 0, 3) == ["a", "b", "c"]
    with pytest.raises(CollapseError, match=r"a\.jsonl: row 3 of column 'text' holds None, not a text"):
        texts(read, corpus, 2, 4)
    with pytest.raises(UsageError, match="has no column 'txt'; did you mean text"):
        rows(tmp_path, str(tmp_path / "a.jsonl"), text_column="txt")
    with pytest.raises(CollapseError, match=r"b\.jsonl cannot be read: line 2 of b\.jsonl is not JSON"):
        rows(tmp_path, write(tmp_path / "b.jsonl", '{"text": "a"}\n{"text": \n'))
    with pytest.raises(CollapseError, match=r"c\.parquet cannot be "):
        rows(tmp_path, write(tmp_path / "c.parquet", "no parquet"))


def test_progress_bars_are_as_they_were(tmp_path):
    import datasets

    file = write(tmp_path / "a.txt", "one\n")
    shown = datasets.is_progress_bar_enabled()
    try:
        for switch, expected in ((datasets.enable_progress_bars, True), (datasets.disable_progress_bars, False)):
            switch()
            rows(tmp_path, file)
            assert datasets.is_progress_bar_enabled() == expected
    finally:
        (datasets.enable_progress_bars if shown else datasets.disable_progress_bars)()


@pytest.mark.parametrize("change", ["content", "touched"])
def test_what_changes_after_it_was_found_is_not_read(tmp_path, monkeypatch, change):
    import datasets

    file, load = write(tmp_path / "a.txt", "one\n"), datasets.load_dataset_builder
    corpus = find_corpus(file)

    def meanwhile(*words, **options):
        found = load(*words, **options)
        os.utime(file, ns=(1, 1))
        return found

    if change == "content":
        write(tmp_path / "a.txt", "two\n")
    else:
        monkeypatch.setattr(datasets, "load_dataset_builder", meanwhile)
    (tmp_path / "read").mkdir()
    with pytest.raises(CollapseError, match=r"a\.txt changed while it was read"):
        load_rows(corpus, tmp_path / "read")


def test_a_full_disk_is_told_with_the_folder_that_is_ours(tmp_path, monkeypatch):
    import datasets
    from datasets.exceptions import DatasetGenerationError

    corpus = find_corpus(write(tmp_path / "a.txt"))
    full = DatasetGenerationError("while generating")
    full.__cause__ = OSError(errno.ENOSPC, "full")
    other = DatasetGenerationError("while generating")
    other.__cause__ = ValueError("line 7")
    alone = DatasetGenerationError("while generating")
    for number, (error, said) in enumerate(
        ((full, "set COLLAPSE_HOME"), (other, r"^a\.txt cannot be read: line 7$"), (alone, "read: while generating$"))
    ):

        def load(*words, error=error, **options):
            raise error

        monkeypatch.setattr(datasets, "load_dataset_builder", load)
        (tmp_path / str(number)).mkdir()
        with pytest.raises(CollapseError, match=said):
            load_rows(corpus, tmp_path / str(number))


def test_an_unknown_split_names_near_ones():
    error = ValueError("Unknown split \"trian\". Should be one of ['train', 'test'].")
    said = str(unknown_split(Corpus("owner/data", "hub", split="trian"), error))
    assert said == "owner/data has no split 'trian'; did you mean train? (--split, --validation-split)"
    error = ValueError("Bad split: trian. Available splits: ['train', 'test']")
    assert str(unknown_split(Corpus("owner/data", "hub", split="trian"), error)) == said
