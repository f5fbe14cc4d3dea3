"""The text that is read is the text that was hashed: not its older content, nor its neighbours, nor its successor."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

import collapse
from collapse.errors import CollapseError, UsageError
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.corpus import find_corpus
from collapse.inputs.packing import pack


def tokens(text, cache, words=None, **options):
    """The characters of a text, packed in a cache; ``words`` may do something as it tokenizes."""

    def characters(texts, verbose=True):
        return {"input_ids": [list(map(ord, text)) for text in texts]}

    found = find_corpus(text, **options) if isinstance(text, str) else text

    def twice(texts, verbose=True):  # a chunk of two tokens is the shortest
        rows = (words or characters)(texts, verbose)["input_ids"]
        return {"input_ids": [[token for token in row for _ in range(2)] for row in rows]}

    return pack(found, twice, CollectionSpec(chunk_length=2), tokenizer_hash="characters", cache=cache).tokens[:, :1]


def content(text, cache, **options):
    return "".join(map(chr, tokens(text, cache, **options)[:, 0]))


def write(path, *texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return str(path)


def test_other_content_of_the_same_path_and_time_is_read(tmp_path):
    path = write(tmp_path / "a.jsonl", "abc")
    os.utime(path, ns=(10**18, 10**18))
    assert content(path, tmp_path / "cache") == "abc"
    write(tmp_path / "a.jsonl", "xyz")
    os.utime(path, ns=(10**18, 10**18))
    assert content(path, tmp_path / "cache") == "xyz"


def test_a_link_that_is_switched_between_files_of_equal_times(tmp_path):
    link = tmp_path / "text.jsonl"
    for name, text in (("a", "abc"), ("b", "xyz")):
        os.utime(write(tmp_path / f"{name}.jsonl", text), ns=(10**18, 10**18))
        link.unlink(missing_ok=True)
        link.symlink_to(tmp_path / f"{name}.jsonl")
        assert content(str(link), tmp_path / "cache") == text


@pytest.mark.parametrize(
    "name", ["a[1].jsonl", "a*.jsonl", "b?.jsonl", "**.jsonl", "a[.jsonl", "a::b.jsonl", "hf:c.jsonl"]
)
def test_a_name_that_exists_is_no_glob(tmp_path, name):
    for sibling in ("a1.jsonl", "ab.jsonl", "b1.jsonl", "c.jsonl"):
        write(tmp_path / sibling, "no")
    assert content(write(tmp_path / name, "yes"), tmp_path / "cache") == "yes"


@pytest.mark.parametrize("name", ["[1]", "h*me", "h?me", "__home", ".home"])
def test_the_cache_may_have_any_name(tmp_path, name):
    (tmp_path / "1").mkdir()
    write(tmp_path / "1" / "000000.jsonl", "no")
    assert content(write(tmp_path / "a.jsonl", "yes"), tmp_path / name) == "yes"


def test_names_that_are_not_utf8(tmp_path):
    name = os.fsdecode(b"caf\xe9.jsonl")
    assert content(write(tmp_path / name, "yes"), tmp_path / "cache") == "yes"


@pytest.mark.parametrize("replace", [False, True])
def test_a_text_that_changes_between_hashing_and_reading_is_refused(tmp_path, replace):
    path = tmp_path / "a.jsonl"
    corpus = find_corpus(write(path, "abc"))
    if replace:
        write(tmp_path / "new.jsonl", "xyz")
        os.replace(tmp_path / "new.jsonl", path)
    else:
        write(path, "xyz")
    with pytest.raises(CollapseError, match=r"a\.jsonl changed while it was read: run the same command again"):
        tokens(corpus, tmp_path / "cache")
    assert content(str(path), tmp_path / "cache") == "xyz"
    write(path, "abc")
    assert content(str(path), tmp_path / "cache") == "abc"


def test_a_text_that_becomes_unreadable_between_hashing_and_reading_is_said_to_have_changed(tmp_path):
    path = tmp_path / "a.jsonl"
    corpus = find_corpus(write(path, "abc"))
    path.write_text('{"text": ')
    with pytest.raises(CollapseError, match="changed while it was read"):
        tokens(corpus, tmp_path / "cache")


def test_a_text_that_changes_and_changes_back_while_it_is_read_is_refused(tmp_path, monkeypatch):
    import datasets

    path, load = tmp_path / "a.jsonl", datasets.load_dataset_builder
    corpus = find_corpus(write(path, "abc"))
    time.sleep(0.02)  # a tick of the file system's clock

    def meanwhile(*words, **options):
        builder = load(*words, **options)
        write(path, "xyz")
        builder.download_and_prepare()
        write(path, "abc")
        return builder

    monkeypatch.setattr(datasets, "load_dataset_builder", meanwhile)
    with pytest.raises(CollapseError, match="changed while it was read"):
        tokens(corpus, tmp_path / "cache")


def test_lines_and_json_of_the_same_bytes_are_two_texts(tmp_path):
    write(tmp_path / "a.jsonl", "abc")
    (tmp_path / "a.txt").write_bytes((tmp_path / "a.jsonl").read_bytes())
    assert content(str(tmp_path / "a.txt"), tmp_path / "cache") == '{"text": "abc"}\n'
    assert content(str(tmp_path / "a.jsonl"), tmp_path / "cache") == "abc"
    identities = [find_corpus(str(tmp_path / name)).identity() for name in ("a.txt", "a.jsonl")]
    assert identities[0] != identities[1]
    (tmp_path / "b.txt").write_text("Once upon a time\n")
    assert set(find_corpus(str(tmp_path / "b.txt")).identity()) == {"sha256", "column"}  # as in earlier caches


def test_the_column_and_the_order_of_files_are_part_of_a_text(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "abc", "story": "xyz"}\n')
    (tmp_path / "b.jsonl").write_text('{"text": "ABC", "story": "XYZ"}\n')
    both = [str(tmp_path / "b.jsonl"), str(tmp_path / "a.jsonl")]
    assert content(str(tmp_path / "a.jsonl"), tmp_path / "cache") == "abc"
    assert content(str(tmp_path / "a.jsonl"), tmp_path / "cache", text_column="story") == "xyz"
    assert content(find_corpus(both), tmp_path / "cache") == "ABCabc"
    assert content(find_corpus(both[::-1]), tmp_path / "cache") == "abcABC"


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize("value", [17, True, 1.5, {"a": 1}, ["a"]], ids=repr)
def test_values_that_are_no_texts_do_not_become_texts_after_a_file_of_texts(tmp_path, suffix, value):
    from pyarrow import Table, parquet

    paths = [str(tmp_path / f"{name}{suffix}") for name in "AN"]
    for path, held in zip(paths, ("a text", value), strict=True):
        if suffix == ".jsonl":
            write(tmp_path / path, held)
        else:
            parquet.write_table(Table.from_pylist([{"text": held}]), path)
    for files in (paths, paths[::-1], paths[1:]):
        with pytest.raises(
            CollapseError, match=f"{suffix}.*: column 'text' holds {re.escape(repr(value))}, not a text"
        ):
            tokens(find_corpus(files), tmp_path / "cache")


def test_numbers_among_the_texts_of_a_file_are_refused_wherever_they_stand(tmp_path):
    start = write(tmp_path / "a.jsonl", "a text")
    mixed = write(tmp_path / "mixed.jsonl", "a text", '"quoted"', 17)
    for files in ([start, mixed], [mixed, start], [mixed]):
        with pytest.raises(CollapseError, match="column 'text' holds other values beside texts"):
            tokens(find_corpus(files), tmp_path / "cache")
    late = write(tmp_path / "late.jsonl", "x" * (10 << 20), 17)  # in another batch of the reader
    with pytest.raises(CollapseError, match=r"late\.jsonl: column 'text' holds"):
        tokens(late, tmp_path / "cache")


OTHER_COLUMN = {
    "null, then text": (None, "late"),
    "object, then a larger one": ({"id": "1"}, {"id": "1", "file": "f"}),
    "number, then text": (1, "one"),
    "text, then list": ("a", [{"name": "bug"}]),
    "absent, then text": ((), "late"),
}


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize("kind", OTHER_COLUMN)
def test_only_the_texts_column_is_read(tmp_path, kind, suffix):
    from pyarrow import Table, parquet

    first, last = OTHER_COLUMN[kind]
    # the reader takes the types from its first block, of 10 MB
    rows = [{"text": "ab", "pad": "x" * (10 << 20), "other": first}, {"text": "c", "other": last}]
    if first == ():
        del rows[0]["other"]
    if suffix == ".jsonl":
        (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        for name, row in zip("ab", rows, strict=True):
            parquet.write_table(Table.from_pylist([row]), tmp_path / f"{name}.parquet")
    assert content(str(tmp_path / f"*{suffix}"), tmp_path / "cache") == "abc"


@pytest.mark.parametrize("column", ["text", "other"])
@pytest.mark.parametrize("half", [0xD83D, 0xDC00])
def test_half_of_a_surrogate_pair_is_named_by_its_line(tmp_path, column, half):
    rows = [{"text": "ab", "other": "x" * (10 << 20)}, {"text": "\U0001f600", "other": ""}, {"text": "", "other": ""}]
    rows[-1][column] = f"a {chr(half)} b"
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(CollapseError, match=rf"line 3 of a\.jsonl holds \\u{half:x}, half of a surrogate pair"):
        tokens(str(tmp_path / "a.jsonl"), tmp_path / "cache")


def test_dates_are_never_read_as_other_texts(tmp_path):
    start = write(tmp_path / "a.jsonl", "a text")
    dates = write(tmp_path / "dates.jsonl", "2020-01-01")  # pyarrow takes a column of dates for timestamps
    assert content(write(tmp_path / "both.jsonl", "2020-01-01", "b"), tmp_path / "cache") == "2020-01-01b"
    with pytest.raises(CollapseError, match=r"column 'text' holds datetime.*2020.*, not a text"):
        tokens(find_corpus([start, dates]), tmp_path / "cache")


def test_texts_of_every_kind_of_string_are_read(tmp_path):
    import pyarrow
    from pyarrow import parquet

    kinds = [pyarrow.string(), pyarrow.large_string(), pyarrow.dictionary(pyarrow.int8(), pyarrow.string())]
    files = [str(tmp_path / f"{number}.parquet") for number in range(3)]
    for path, kind in zip(files, kinds, strict=True):
        parquet.write_table(pyarrow.table({"text": pyarrow.array(["ab", "c"]).cast(kind)}), path)
    assert content(find_corpus(files), tmp_path / "cache") == "abc" * 3


def test_one_tokenizer_loaded_with_other_options_packs_anew(tiny, tmp_path):
    from transformers import AutoTokenizer

    corpus, made = find_corpus(write(tmp_path / "a.jsonl", "one <|end|> two", "<|end|>")), []
    for options in ({}, {"split_special_tokens": True}, {}):
        tokenizer = AutoTokenizer.from_pretrained(tiny.model, **options)
        spec, cache = CollectionSpec(chunk_length=2, shards=1), tmp_path / "cache"
        made.append(pack(corpus, tokenizer, spec, tokenizer_hash="tiny", cache=cache).tokens.tolist())
    assert made[0] == made[2] != made[1]


def test_nothing_but_chunks_stays_in_the_cache(tmp_path):
    path = write(tmp_path / "a.jsonl", "abc")
    tokens(path, tmp_path / "cache")
    (tmp_path / "bad.jsonl").write_text('{"text": 1}\n')
    with pytest.raises(CollapseError, match="not a text"):
        tokens(str(tmp_path / "bad.jsonl"), tmp_path / "cache")
    assert {each.name for each in (tmp_path / "cache").iterdir()} == {"chunks"}
    (folder,) = (tmp_path / "cache" / "chunks").iterdir()
    assert {each.name for each in folder.iterdir()} == {"chunks.json", "starts.bin", "tokens.bin"}


PACK = """
import sys, time
from pathlib import Path
from collapse.inputs.packing import pack
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.corpus import find_corpus
def slow(texts, verbose=True):
    print("tokenizing", flush=True)
    time.sleep(60)
pack(find_corpus(sys.argv[1]), slow, CollectionSpec(chunk_length=2), tokenizer_hash="slow", cache=Path(sys.argv[2]))
"""


def test_what_a_kill_leaves_is_removed_by_a_later_run_and_what_is_in_use_is_not(tmp_path):
    path, cache = write(tmp_path / "a.jsonl", "abc"), tmp_path / "cache"
    command = [sys.executable, "-c", PACK, path, str(cache)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    killed = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert running.stdout.readline() == killed.stdout.readline() == "tokenizing\n"
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        left = set((cache / "chunks").iterdir())
        assert len(left) == 2
        content(write(tmp_path / "b.jsonl", "b"), cache)
        assert left <= set((cache / "chunks").iterdir())  # too young to tell
        for folder in left:
            for each in (*folder.iterdir(), folder):
                os.utime(each, (time.time() - 10**6,) * 2)
        content(write(tmp_path / "c.jsonl", "c"), cache)
        assert len(left & set((cache / "chunks").iterdir())) == 1
        assert running.poll() is None
    finally:
        running.kill()
        running.communicate()
        killed.communicate()


def test_texts_that_are_no_files_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "fifo.jsonl")
    (tmp_path / "zero.txt").symlink_to("/dev/zero")
    for name in ("fifo.jsonl", "zero.txt"):
        with pytest.raises(CollapseError, match="not a regular file"):
            find_corpus(str(tmp_path / name))
    with pytest.raises(UsageError, match="no file matches"):
        find_corpus("~nosuchuser/x.jsonl")


def test_a_collection_is_of_the_text_as_it_is(tiny, tmp_path):
    """Through collect: the same path and time, another name, a text of lines that looks like JSON."""
    text, options = tmp_path / os.fsdecode(b"caf\xe9.txt"), {"model": tiny.model, "chunk_length": 32, "max_chunks": 4}
    digests = []
    for content in (tiny.text, tiny.validation, tiny.text):
        text.write_bytes(content.read_bytes())
        os.utime(text, ns=(10**18, 10**18))
        store = collapse.collect(text=str(text), **options)
        assert store.identity["corpus"]["lines"] is True
        digests.append(store.digest)
    assert digests[0] == digests[2] != digests[1]
    assert collapse.collect(text=str(tiny.text), **options).digest not in digests
