"""Packing: chunks equal a direct computation and datasets.map; which changes give other chunks.

The text that is read is the text that was hashed.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from collapse.errors import CollapseError, UsageError
from collapse.hub.corpus import Corpus, find_corpus
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.packing import pack
from collapse_zoo.stories import stories


class Letters:
    """A tokenizer with one token per letter, which counts its texts."""

    eos_token_id = 0

    def __init__(self, meanwhile=lambda: None) -> None:
        self.seen, self.meanwhile = 0, meanwhile

    def __call__(self, texts: list[str], verbose: bool = True, **_: object) -> dict[str, list[list[int]]]:
        assert not verbose  # a text longer than the model's limit is no fault: nothing is to be said of it
        self.seen += len(texts)
        self.meanwhile()
        return {"input_ids": [[ord(letter) for letter in text] for text in texts]}


def words(texts, **_):
    """A tokenizer without a model or an end-of-text token: a token a word."""
    return {"input_ids": [[sum(map(ord, word)) % 997 for word in text.split()] for text in texts]}


def packed(corpus, tokenizer=None, *, key="letters", progress=None, **options):
    spec = CollectionSpec(**{"chunk_length": 7, "shards": 1, **options})
    return pack(corpus, tokenizer or Letters(), spec, tokenizer_key=key, progress=progress)


REFERENCE = """
import sys, datasets, numpy
path, shards, cache, out = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
datasets.disable_progress_bars()
def tokenize(batch):
    return {"input_ids": [[sum(map(ord, word)) % 997 for word in text.split()] for text in batch["text"]]}
def group(batch):
    flat = [token for row in batch["input_ids"] for token in row]
    stop = len(flat) // 128 * 128
    return {"input_ids": [flat[i : i + 128] for i in range(0, stop, 128)]}
rows = datasets.load_dataset("json", data_files=path, split="train", cache_dir=cache)
rows = rows.map(tokenize, batched=True, remove_columns=["text"])
rows = rows.map(group, batched=True, num_proc=shards if shards > 1 else None)
numpy.save(out, numpy.array(rows["input_ids"][:], dtype="<i4"))
"""


def test_chunks_equal_datasets_map_byte_for_byte(tmp_path):
    many, seen = tmp_path / "many.jsonl", set()
    many.write_text("".join(json.dumps({"text": text}) + "\n" for text in stories(4_650, seed=9)))
    for shards in (1, 2, 3):
        out = tmp_path / f"{shards}.npy"
        cache = tmp_path / f"hf{shards}"  # a fresh one: map may answer with what another num_proc gave
        command = [sys.executable, "-c", REFERENCE, str(many), str(shards), str(cache), str(out)]
        subprocess.run(command, check=True, capture_output=True)
        ours = packed(find_corpus(str(many)), words, chunk_length=128, shards=shards)
        assert ours.tokens.tobytes() == np.load(out).tobytes()
        seen.add(ours.tokens.tobytes())
    assert len(seen) == 3


@pytest.fixture(scope="module")
def lines(tmp_path_factory) -> tuple[Corpus, list[str]]:
    """2,300 short lines, a text each."""
    texts = ["abcdefg"[: i % 5] + chr(97 + i % 26) + "\n" for i in range(2_300)]
    file = tmp_path_factory.mktemp("lines") / "lines.txt"
    file.write_text("".join(texts))
    return find_corpus(str(file)), texts


def expected(texts, shards, length, eos=False):
    """Chunks by the definition: shards, maps of 1,000, ids end to end, the remainder dropped."""
    chunks = []
    for shard in np.array_split(np.arange(len(texts)), shards):
        for low in range(0, len(shard), 1000):
            flat = [n for i in shard[low : low + 1000] for n in [*map(ord, texts[i]), *([0] if eos else [])]]
            chunks += [flat[at : at + length] for at in range(0, len(flat) - length + 1, length)]
    return chunks


# In a process of its own: workers are forked, which pytest's threads would make unsafe.
@pytest.mark.parametrize(("shards", "length", "eos"), [(1, 7, False), (2, 7, True), (3, 64, False)])
def test_chunks_are_those_of_the_definition(lines, shards, length, eos):
    corpus, texts = lines
    for _ in range(2):  # then from the cache
        made = packed(corpus, shards=shards, chunk_length=length, eos_between=eos)
        assert made.tokens.tolist() == expected(texts, shards, length, eos)
        assert made.sha256 == hashlib.sha256(made.tokens.astype("<i4").tobytes()).hexdigest()


def test_the_first_chunks_are_those_of_the_whole_and_no_further_text_is_tokenized(lines):
    corpus, texts = lines
    first_map = len(expected(texts[:1000], 1, 7))
    for limit, tokenized in ((1, 1000), (first_map, 1000), (first_map + 1, 2000), (10**6, 2300), (None, 2300)):
        tokenizer = Letters()
        assert packed(corpus, tokenizer, max_chunks=limit).tokens.tolist() == expected(texts, 1, 7)[:limit]
        assert tokenizer.seen == tokenized


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_a_limit_reads_only_the_files_that_its_chunks_depend_on(lines, tmp_path, shards):
    texts, files, bad = lines[1], [str(tmp_path / f"{k}.txt") for k in range(10)], tmp_path / "bad.txt"
    for k, file in enumerate(files):
        Path(file).write_text("".join(texts[k * 230 : (k + 1) * 230]))
    bad.write_bytes(b"\xff")
    whole = expected(texts, shards, 7)
    for limit in (1, 30, 300, len(whole)):
        rows = next(n for n in range(1, 2301) if n == 2300 or len(expected(texts[:n], 1, 7)) >= limit)
        needed = -(-(shards * (rows - 1) + 1) // 230)  # files that show that these rows are in the first shard
        some = [*files[:needed], str(bad)] if needed < 10 else files
        assert packed(find_corpus(some), shards=shards, max_chunks=limit).tokens.tolist() == whole[:limit]


@pytest.mark.parametrize("options", [{"key": "other"}, {"chunk_length": 8}, {"shards": 3}, {"eos_between": True}])
def test_what_changes_the_chunks_packs_anew(lines, options):
    packed(lines[0])
    for expected_seen in (2_300, 0):
        tokenizer = Letters()
        packed(lines[0], tokenizer, **options)
        assert tokenizer.seen == expected_seen


@pytest.mark.parametrize("damage", ["shorter", "other", "no record", "no tokens"])
def test_what_is_not_what_was_written_is_packed_again(lines, own_home, damage):
    corpus, texts = lines
    packed(corpus)
    (folder,) = (own_home / "chunks").iterdir()
    tokens, record = folder / "tokens.bin", folder / "chunks.json"
    data = tokens.read_bytes()
    if damage.startswith("no"):
        (record if damage == "no record" else tokens).unlink()
    else:
        tokens.write_bytes(data[:-28] if damage == "shorter" else data[::-1])
    assert packed(corpus).tokens.tolist() == expected(texts, 1, 7)


def test_progress_tells_the_texts_done(lines):
    told = []
    packed(lines[0], shards=2, progress=lambda *words: told.append(words))
    assert told == [("tokenizing lines.txt", done, 2_300) for done in (1000, 1150, 2150, 2300)]


def test_what_cannot_be_packed_is_told(lines, own_home, tmp_path):
    (tmp_path / "a.txt").write_text("abcde\nx\n")
    corpus = find_corpus(str(tmp_path / "a.txt"))
    assert packed(corpus, chunk_length=8).tokens.tolist() == [[*map(ord, "abcde\nx\n")]]
    with pytest.raises(
        CollapseError, match=r"too short: it has 8 tokens in 1 text shard, and no shard fills a chunk of T = 9. Give"
    ):
        packed(corpus, chunk_length=9)
    with pytest.raises(UsageError, match="--eos-between needs a tokenizer with an end-of-text token"):
        packed(lines[0], words, eos_between=True)
    shutil.rmtree(own_home / "chunks")
    (own_home / "chunks").write_text("a file")
    with pytest.raises(CollapseError, match="COLLAPSE_HOME"):
        packed(lines[0])


def write(path, *texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return str(path)


def content(corpus):
    """The characters of a text."""
    return "".join(map(chr, packed(corpus, chunk_length=3).tokens.flatten()))


def test_other_content_of_the_same_path_and_time_is_read(tmp_path):
    link = tmp_path / "link.jsonl"
    for name, text in (("a", "abc"), ("b", "xyz")):
        for path in (tmp_path / "same.jsonl", tmp_path / f"{name}.jsonl"):
            os.utime(write(path, text), ns=(10**18, 10**18))
            link.unlink(missing_ok=True)
            link.symlink_to(path)
            assert content(find_corpus(str(path))) == content(find_corpus(str(link))) == text


def test_a_text_that_changes_between_hashing_and_reading_is_refused(tmp_path):
    path = tmp_path / "a.jsonl"
    corpus = find_corpus(write(path, "abc"))
    write(path, "xyz")
    with pytest.raises(CollapseError, match=r"a\.jsonl changed while it was read: run the same command again"):
        content(corpus)
    assert content(find_corpus(str(path))) == "xyz"


PACK = """
import sys
from collapse.inputs.packing import pack
from collapse.inputs.collection_spec import CollectionSpec
from collapse.hub.corpus import find_corpus
def waiting(texts, **_):
    print("tokenizing", flush=True)
    sys.stdin.readline()
    return {"input_ids": [[1, 2, 3] for _ in texts]}
print(pack(find_corpus(sys.argv[1]), waiting, CollectionSpec(chunk_length=2), tokenizer_key="slow").tokens.tolist())
"""


def test_of_several_processes_one_packs_and_another_takes_over_when_it_is_killed(tmp_path):
    command, running = [sys.executable, "-c", PACK, write(tmp_path / "a.jsonl", "abc")], []

    def start():
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        running.append(subprocess.Popen(command, text=True, **pipes))
        return running[-1]

    try:
        killed = start()
        assert killed.stdout.readline() == "tokenizing\n"
        second = start()
        assert "is in use by another process: waiting" in second.stderr.readline()
        killed.kill()
        assert second.stdout.readline() == "tokenizing\n"
        third = start()
        assert second.communicate("\n")[0] == third.communicate()[0] == "[[1, 2]]\n"
    finally:
        for each in running:
            each.kill()
            each.communicate()


def test_real_text_and_tokenizer(shared):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(shared / "data" / "gpt2-tokenizer")
    corpus = find_corpus(str(shared / "data" / "tinystories" / "train.jsonl"))
    made = pack(corpus, tokenizer, CollectionSpec(chunk_length=2), tokenizer_key="gpt2")
    assert len(made) == 187_288
    assert len(np.unique(made.tokens)) == 5_896


@pytest.mark.tinystories
def test_tinystories_gives_the_papers_counts(monkeypatch):
    """The paper's S, N and C. On a machine with a network or the data: pytest -m tinystories tests/test_packing.py"""
    from huggingface_hub import try_to_load_from_cache

    hub = Path(os.environ.get("TINYSTORIES_HF_HOME", Path.home() / ".cache" / "huggingface")) / "hub"
    known = try_to_load_from_cache("roneneldan/TinyStories", "README.md", cache_dir=hub, repo_type="dataset")
    if not isinstance(known, str):
        pytest.skip("needs network: roneneldan/TinyStories, fetched with: hf download")
    monkeypatch.setenv("HF_HOME", str(hub.parent))
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained("EleutherAI/gpt-neo-125M")
    sizes = {}
    for split in ("train", "validation"):
        corpus, spec = find_corpus("roneneldan/TinyStories", split=split), CollectionSpec(chunk_length=2048)
        made = pack(corpus, tokenizer, spec, tokenizer_key="gpt-neo")
        sizes[split] = len(made)
        if split == "train":
            assert made.tokens[:, 1:].size == 469_514_249
            assert len(np.unique(made.tokens[:, 1:])) == 29_233
    assert sizes == {"train": 229_367, "validation": 2_303}
