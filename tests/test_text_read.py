"""The text that is read is the text that was hashed: not its older content, nor its neighbours, nor its successor."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import collapse
from collapse.errors import CollapseError
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.corpus import find_corpus
from collapse.inputs.packing import pack


def content(text, cache, meanwhile=lambda: None):
    """The characters of a text, packed in a cache; ``meanwhile`` is called as it is read."""

    def characters(texts, verbose=True):
        meanwhile()
        return {"input_ids": [[token for each in text for token in (ord(each),) * 2] for text in texts]}

    corpus = find_corpus(text) if isinstance(text, str) else text
    spec = CollectionSpec(chunk_length=2)  # the shortest
    return "".join(map(chr, pack(corpus, characters, spec, tokenizer_hash="characters", cache=cache).tokens[:, 0]))


def write(path, *texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return str(path)


def test_other_content_of_the_same_path_and_time_is_read(tmp_path):
    for text in ("abc", "xyz"):
        path = write(tmp_path / "a.jsonl", text)
        os.utime(path, ns=(10**18, 10**18))
        assert content(path, tmp_path / "cache") == text


def test_a_link_that_is_switched_between_files_of_equal_times(tmp_path):
    link = tmp_path / "text.jsonl"
    for name, text in (("a", "abc"), ("b", "xyz")):
        os.utime(write(tmp_path / f"{name}.jsonl", text), ns=(10**18, 10**18))
        link.unlink(missing_ok=True)
        link.symlink_to(tmp_path / f"{name}.jsonl")
        assert content(str(link), tmp_path / "cache") == text


def test_a_text_that_changes_between_hashing_and_reading_is_refused(tmp_path):
    path = tmp_path / "a.jsonl"
    corpus = find_corpus(write(path, "abc"))
    write(path, "xyz")
    with pytest.raises(CollapseError, match=r"a\.jsonl changed while it was read: run the same command again"):
        content(corpus, tmp_path / "cache")
    assert content(write(path, "xyz"), tmp_path / "cache") == "xyz"


def test_one_tokenizer_loaded_with_other_options_packs_anew(tiny, tmp_path):
    from transformers import AutoTokenizer

    corpus, made = find_corpus(write(tmp_path / "a.jsonl", "one <|end|> two", "<|end|>")), []
    for options in ({}, {"split_special_tokens": True}, {}):
        tokenizer = AutoTokenizer.from_pretrained(tiny.model, **options)
        spec, cache = CollectionSpec(chunk_length=2, shards=1), tmp_path / "cache"
        made.append(pack(corpus, tokenizer, spec, tokenizer_hash="tiny", cache=cache).tokens.tolist())
    assert made[0] == made[2] != made[1]


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


def test_what_a_kill_leaves_is_removed_once_it_is_old(tmp_path):
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
            for each in (*folder.rglob("*"), folder):
                os.utime(each, (time.time() - 10**6,) * 2)
        content(write(tmp_path / "c.jsonl", "c"), cache)
        assert not left & set((cache / "chunks").iterdir())
        assert running.poll() is None
    finally:
        running.kill()
        running.communicate()
        killed.communicate()


def test_a_collection_is_of_the_text_as_it_is(tiny, tmp_path):
    """Through collect: the same path and time, another name, a text of lines that looks like JSON."""
    text, options = tmp_path / os.fsdecode(b"caf\xe9.txt"), {"model": tiny.model, "chunk_length": 32, "max_chunks": 4}
    digests = []
    for source in (tiny.text, tiny.validation, tiny.text):
        text.write_bytes(source.read_bytes())
        os.utime(text, ns=(10**18, 10**18))
        digests.append(collapse.collect(text=str(text), **options).digest)
    assert digests[0] == digests[2] != digests[1]
    assert collapse.collect(text=str(tiny.text), **options).digest not in digests
