"""Packing: chunks equal to a direct computation and to datasets.map, and what makes a packing another one."""

import hashlib
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

import collapse
from collapse.errors import CollapseError, UsageError
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.corpus import Corpus, find_corpus
from collapse.inputs.packing import Chunks, group, maps, pack, tokens_hash
from collapse_zoo.stories import stories


class Letters:
    """A tokenizer of one token a letter that counts the texts it was given."""

    eos_token_id = 0

    def __init__(self, **attributes: object) -> None:
        self.seen = 0
        vars(self).update(attributes)

    def __call__(self, texts: list[str], verbose: bool = True) -> dict[str, list[list[int]]]:
        assert not verbose  # a text longer than the model's limit is no fault: nothing is to be said of it
        self.seen += len(texts)
        return {"input_ids": [[ord(letter) for letter in text] for text in texts]}


def words(texts, verbose=True):
    """A tokenizer without a model or an end-of-text token: a token a word."""
    return {"input_ids": [[sum(map(ord, word)) % 997 for word in text.split()] for text in texts]}


def packed(corpus, cache, tokenizer=None, **options):
    how = {name: options.pop(name) for name in ("tokenizer_hash", "progress") if name in options}
    spec = CollectionSpec(**{"chunk_length": 7, **options})
    return pack(corpus, tokenizer or Letters(), spec, cache=cache, **{"tokenizer_hash": "letters", **how})


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
        ours = packed(find_corpus(str(many)), tmp_path, words, chunk_length=128, shards=shards)
        assert ours.tokens.tobytes() == np.load(out).tobytes()
        seen.add(ours.tokens.tobytes())
    assert len(seen) == 3


def test_maps_follow_contiguous_shards():
    for rows in (0, 1, 999, 1000, 1001, 2500, 4650):
        for shards in (1, 2, 3, 7):
            runs = list(maps(rows, shards))
            assert [each for run in runs for each in range(*run)] == list(range(rows))
            assert all(stop - start <= 1000 for start, stop in runs)


@pytest.mark.parametrize(("shards", "length", "eos"), [(1, 7, False), (2, 7, True), (3, 64, False)])
def test_chunks_are_those_of_the_definition(lines, tmp_path, shards, length, eos):
    corpus, texts = lines
    for _ in range(2):  # then from the cache
        made = packed(corpus, tmp_path, shards=shards, chunk_length=length, eos_between=eos)
        assert made.tokens.tolist() == expected(texts, shards, length, eos)
        assert (len(made), made.chunk_length) == made.tokens.shape
        assert not made.tokens.flags.writeable


def test_the_first_chunks_are_those_of_the_whole_and_no_further_text_is_tokenized(lines, tmp_path):
    corpus, texts = lines
    first_map = len(expected(texts[:1000], 1, 7))
    for limit, tokenized in ((1, 1000), (first_map, 1000), (first_map + 1, 2000), (10**6, 2300), (None, 2300)):
        tokenizer = Letters()
        made = packed(corpus, tmp_path, tokenizer, shards=1, max_chunks=limit)
        assert made.tokens.tolist() == expected(texts, 1, 7)[:limit]
        assert tokenizer.seen == tokenized


OTHERS = {
    "tokenizer_hash": {"tokenizer_hash": "other"},
    "chunk_length": {"chunk_length": 8},
    "shards": {"shards": 3},
    "eos_between": {"eos_between": True},
    "option": {"tokenizer": Letters(init_kwargs={"add_prefix_space": True})},
    "special": {"tokenizer": Letters(special_tokens_map={"eos_token": "<end>"})},
    "backend": {"tokenizer": Letters(backend_tokenizer=type("", (), {"to_str": lambda self: "{}"})())},
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_changes_the_chunks_packs_anew(lines, tmp_path, name):
    corpus, _ = lines
    packed(corpus, tmp_path)
    options = dict(OTHERS[name])
    for time in range(2):
        tokenizer = options.setdefault("tokenizer", Letters())
        tokenizer.seen = 0
        packed(corpus, tmp_path, **options)
        assert tokenizer.seen == (2_300 if time == 0 else 0)


def test_where_a_tokenizer_lies_changes_nothing(lines, tmp_path):
    for place in ("here", "there"):
        tokenizer = Letters(init_kwargs={"name_or_path": place, "vocab_file": place, "bos_token": object()})
        packed(lines[0], tmp_path, tokenizer)
        assert tokenizer.seen == (2_300 if place == "here" else 0)


@pytest.mark.parametrize("damage", ["shorter", "other", "no record", "no tokens"])
def test_what_is_not_what_was_written_is_packed_again(lines, tmp_path, damage):
    corpus, texts = lines
    packed(corpus, tmp_path, shards=1)
    (folder,) = (tmp_path / "chunks").iterdir()
    tokens, record = folder / "tokens.bin", folder / "chunks.json"
    data = tokens.read_bytes()
    if damage.startswith("no"):
        (record if damage == "no record" else tokens).unlink()
    else:
        tokens.write_bytes(data[:-28] if damage == "shorter" else data[::-1])
    assert packed(corpus, tmp_path, shards=1).tokens.tolist() == expected(texts, 1, 7)


def test_another_process_that_packs_the_same_text_is_a_little_quicker(lines, tmp_path):
    class Slower(Letters):
        def __call__(self, texts, verbose=True):
            quicker.append(packed(lines[0], tmp_path))
            return super().__call__(texts, verbose)

    quicker, Slower.__name__ = [], "Letters"
    made = packed(lines[0], tmp_path, Slower())
    assert np.array_equal(made.tokens, quicker[0].tokens)
    assert made.tokens.filename == quicker[0].tokens.filename


def test_progress_tells_the_texts_done(lines, tmp_path):
    told = []
    packed(lines[0], tmp_path, progress=lambda *words: told.append(words))
    assert told == [("tokenizing lines.txt", done, 2_300) for done in (1000, 1150, 2150, 2300)]


def test_one_chunk_is_enough_and_less_is_told(tmp_path):
    (tmp_path / "a.txt").write_text("abcde\nx\n")
    corpus = find_corpus(str(tmp_path / "a.txt"))
    assert packed(corpus, tmp_path, chunk_length=8, shards=1).tokens.tolist() == [[*map(ord, "abcde\nx\n")]]
    with pytest.raises(CollapseError, match=r"too short for one chunk of T = 9: it has 8 tokens in 1 shard\b"):
        packed(corpus, tmp_path, chunk_length=9, shards=1)


def test_what_cannot_be_packed_is_told(lines, tmp_path):
    with pytest.raises(UsageError, match="--eos-between needs a tokenizer with an end-of-text token"):
        packed(lines[0], tmp_path, words, eos_between=True)
    with pytest.raises(CollapseError, match="the tokenizer returned token id -1, but ids must be from 0 to"):
        group([[1, 2], [3, -1]], 2)
    (tmp_path / "chunks").write_text("a file")
    with pytest.raises(CollapseError, match="COLLAPSE_HOME"):
        packed(lines[0], tmp_path)


def test_the_hash_of_tokens_is_of_little_endian_int32():
    tokens = np.arange(12, dtype=np.int64).reshape(3, 4)
    digest = hashlib.sha256(b"".join(n.to_bytes(4, "little") for n in range(12))).hexdigest()
    for same in (tokens.astype("<i4"), tokens.astype(">i4"), np.asfortranarray(tokens.astype("<i4"))):
        assert tokens_hash(Chunks(same)) == digest


@pytest.mark.parametrize(("name", "said"), [("t.txt", True), ("t.jsonl", False)])
def test_special_tokens_of_each_line_are_said(tiny, tmp_path, caplog, name, said):
    model = shutil.copytree(tiny.model, tmp_path / "model")
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    parts = [{"SpecialToken": {"id": "<|end|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    special = {"<|end|>": {"id": "<|end|>", "ids": [0], "tokens": ["<|end|>"]}}
    made = {"type": "TemplateProcessing", "single": parts, "pair": parts, "special_tokens": special}
    (model / "tokenizer.json").write_text(json.dumps(tokenizer | {"post_processor": made}))
    texts = [json.loads(line)["text"] for line in tiny.text.read_text().splitlines()]
    lines = [json.dumps({"text": each}) if name.endswith("l") else each for each in texts]
    (tmp_path / name).write_text("\n".join(lines) + "\n")
    collapse.collect(model, text=str(tmp_path / name), chunk_length=32, max_chunks=4)
    expected = f"the tokenizer adds 1 special token to each line of {name}"
    assert any(expected in each.getMessage() for each in caplog.records) == said


def test_real_text_and_tokenizer(shared, tmp_path):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(shared / "data" / "gpt2-tokenizer")
    corpus = find_corpus(str(shared / "data" / "tinystories" / "train.jsonl"))
    made = pack(corpus, tokenizer, CollectionSpec(chunk_length=2), tokenizer_hash="gpt2", cache=tmp_path)
    assert len(made) == 187_288
    assert len(np.unique(made.tokens)) == 5_896


@pytest.mark.tinystories
def test_tinystories_gives_the_papers_counts(tmp_path_factory, monkeypatch):
    """The paper's S, N and C. On a machine with a network or the data: pytest -m tinystories tests/test_packing.py"""
    import os
    from pathlib import Path

    from huggingface_hub import try_to_load_from_cache

    hub = Path(os.environ.get("TINYSTORIES_HF_HOME", Path.home() / ".cache" / "huggingface")) / "hub"
    known = try_to_load_from_cache("roneneldan/TinyStories", "README.md", cache_dir=hub, repo_type="dataset")
    if not isinstance(known, str):
        pytest.skip("needs network: roneneldan/TinyStories, fetched with: hf download")
    monkeypatch.setenv("HF_HOME", str(hub.parent))
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained("EleutherAI/gpt-neo-125M")
    cache, sizes = tmp_path_factory.mktemp("tinystories"), {}
    for split in ("train", "validation"):
        corpus, spec = find_corpus("roneneldan/TinyStories", split=split), CollectionSpec(chunk_length=2048)
        made = pack(corpus, tokenizer, spec, tokenizer_hash="gpt-neo", cache=cache)
        sizes[split] = len(made)
        if split == "train":
            assert made.tokens[:, 1:].size == 469_514_249
            assert len(np.unique(made.tokens[:, 1:])) == 29_233
    assert sizes == {"train": 229_367, "validation": 2_303}
