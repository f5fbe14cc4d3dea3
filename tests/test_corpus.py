"""Texts and packing: what a name stands for, and chunks equal to those of datasets.map, byte for byte."""

import json
import random
import subprocess
import sys

import numpy as np
import pytest

from collapse.errors import CollapseError, UsageError
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.corpus import Corpus, find_corpus, unknown_split
from collapse.inputs.packing import group, maps, pack
from collapse_zoo.stories import stories


def words(texts, verbose=True):
    """A tokenizer without a model: a token a word."""
    return {"input_ids": [[sum(map(ord, word)) % 997 for word in text.split()] for text in texts]}


def packed(path, tmp_path, **options):
    spec = CollectionSpec(**options)
    return pack(find_corpus(str(path)), words, spec, tokenizer_hash="words", cache=tmp_path / "cache")


def write(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    return write(tmp_path_factory.mktemp("many") / "many.jsonl", stories(4_650, seed=9))


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


def test_chunks_equal_datasets_map_byte_for_byte(many, tmp_path):
    seen = set()
    for shards in (1, 2, 3):
        out = tmp_path / f"{shards}.npy"
        cache = tmp_path / f"hf{shards}"  # a fresh one: map may answer with what another num_proc gave
        command = [sys.executable, "-c", REFERENCE, str(many), str(shards), str(cache), str(out)]
        subprocess.run(command, check=True, capture_output=True)
        ours = packed(many, tmp_path, chunk_length=128, shards=shards)
        assert ours.tokens.tobytes() == np.load(out).tobytes()
        seen.add(ours.tokens.tobytes())
    assert len(seen) == 3


def test_maps_follow_contiguous_shards():
    for rows in (0, 1, 999, 1000, 1001, 2500, 4650):
        for shards in (1, 2, 3, 7):
            runs = list(maps(rows, shards))
            assert [each for run in runs for each in range(*run)] == list(range(rows))
            assert all(stop - start <= 1000 for start, stop in runs)


def test_group_drops_the_remainder():
    rows = [[1] * random.Random(0).randint(0, 9) for _ in range(50)]
    total = sum(map(len, rows))
    assert group(rows, 7).shape == (total // 7, 7)
    assert group([], 7).shape == (0, 7)


def test_a_packing_is_cached_and_rebuilt_where_it_was_altered(many, tmp_path):
    first = np.array(packed(many, tmp_path, chunk_length=128).tokens)
    file = next((tmp_path / "cache" / "chunks").glob("*/tokens.bin"))
    stamp = file.stat().st_mtime_ns
    packed(many, tmp_path, chunk_length=128)
    assert file.stat().st_mtime_ns == stamp
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    np.testing.assert_array_equal(packed(many, tmp_path, chunk_length=128).tokens, first)


def test_max_chunks_takes_the_first_ones(many, tmp_path):
    few = packed(many, tmp_path, chunk_length=128, max_chunks=5)
    whole = packed(many, tmp_path, chunk_length=128)
    np.testing.assert_array_equal(few.tokens, whole.tokens[:5])
    np.testing.assert_array_equal(packed(many, tmp_path, chunk_length=128, max_chunks=9).tokens, whole.tokens[:9])


def test_eos_between_puts_the_end_token_after_each_text(tmp_path):
    class Tokenizer:
        eos_token_id = 7

        def __call__(self, texts, verbose=True):
            return {"input_ids": [[1, 2] for _ in texts]}

    path = write(tmp_path / "a.jsonl", ["x"] * 4)
    spec = CollectionSpec(chunk_length=3, shards=1, eos_between=True)
    made = pack(find_corpus(str(path)), Tokenizer(), spec, tokenizer_hash="t", cache=tmp_path)
    assert made.tokens.tolist() == [[1, 2, 7]] * 4
    with pytest.raises(UsageError, match="end-of-text token"):
        packed(path, tmp_path, chunk_length=3, eos_between=True)


def test_kinds_of_files_hold_the_same_text(tmp_path):
    import pandas as pd

    texts = [f"a story number {i} with a few words" for i in range(40)]
    write(tmp_path / "a.jsonl", texts)
    pd.DataFrame({"text": texts}).to_parquet(tmp_path / "b.parquet")
    (tmp_path / "c.txt").write_text("\n".join(texts) + "\n")
    write(tmp_path / "d0.jsonl", texts[:20])
    write(tmp_path / "d1.jsonl", texts[20:])
    expected = packed(tmp_path / "a.jsonl", tmp_path, chunk_length=8).tokens.tolist()
    for name in ("b.parquet", "c.txt", "d?.jsonl"):
        assert packed(tmp_path / name, tmp_path, chunk_length=8).tokens.tolist() == expected, name


def test_a_corpus_is_known_by_its_content(tmp_path):
    a, b = write(tmp_path / "a.jsonl", ["one"]), write(tmp_path / "b.jsonl", ["one"])
    other = write(tmp_path / "c.jsonl", ["two"])
    assert find_corpus(str(a)).identity() == find_corpus(str(b)).identity() != find_corpus(str(other)).identity()


def test_wrong_texts_are_refused_with_advice(tmp_path):
    write(tmp_path / "train.jsonl", ["one two three"])
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "latin.txt").write_bytes("fine, then \xe9t\xe9".encode("latin1"))
    (tmp_path / "cut.txt").write_bytes("é".encode()[:1])
    for name, message in (
        ("trian.jsonl", r"did you mean .*/train\.jsonl\?"),
        ("*.parquet", "no file matches"),
        (".", "is a folder"),
    ):
        with pytest.raises(UsageError, match=message):
            find_corpus(str(tmp_path / name))
    for name, message in (("empty.txt", "is empty"), ("latin.txt", r"not UTF-8 \(byte 11\)"), ("cut.txt", "truncated")):
        with pytest.raises(CollapseError, match=message):
            find_corpus(str(tmp_path / name))
    with pytest.raises(CollapseError, match=r"too short for one chunk of T = 100: it has 3 tokens"):
        packed(tmp_path / "train.jsonl", tmp_path, chunk_length=100)
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n{"text": null}\n')
    with pytest.raises(CollapseError, match="row 1 of column 'text' holds None"):
        packed(tmp_path / "bad.jsonl", tmp_path, chunk_length=2)
    corpus = find_corpus(str(tmp_path / "train.jsonl"), text_column="txt")
    with pytest.raises(UsageError, match=r"no column 'txt'; did you mean text\?"):
        pack(corpus, words, CollectionSpec(chunk_length=2), tokenizer_hash="w", cache=tmp_path)


def test_an_unknown_split_is_answered_with_near_ones(tmp_path):
    import datasets

    path = write(tmp_path / "a.jsonl", ["one two"])
    with pytest.raises(ValueError, match="split") as caught:
        datasets.load_dataset("json", data_files=str(path), split="trian", cache_dir=str(tmp_path / "c"))
    corpus = Corpus("owner/data", "hub", split="trian")
    assert "owner/data has no split 'trian'; did you mean train?" in str(unknown_split(corpus, caught.value))


def test_an_unknown_data_set_says_how_to_get_it(monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(CollapseError, match=r"hf download owner/nothing --repo-type dataset; or give local files"):
        find_corpus("owner/nothing")


def test_real_text_and_tokenizer(shared, tmp_path):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(shared / "data" / "gpt2-tokenizer")
    corpus = find_corpus(str(shared / "data" / "tinystories" / "train.jsonl"))
    made = pack(corpus, tokenizer, CollectionSpec(chunk_length=2), tokenizer_hash="gpt2", cache=tmp_path)
    assert len(made) == 187_288
    assert len(np.unique(made.tokens)) == 5_896


@pytest.mark.tinystories
def test_tinystories_gives_the_papers_counts(tmp_path_factory, monkeypatch):
    """The paper's S, N and C. On a machine with a network or the data: pytest -m tinystories tests/test_corpus.py"""
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
    cache = tmp_path_factory.mktemp("tinystories")
    sizes = {}
    for split in ("train", "validation"):
        made = pack(
            find_corpus("roneneldan/TinyStories", split=split),
            tokenizer,
            CollectionSpec(chunk_length=2048),
            tokenizer_hash="gpt-neo",
            cache=cache,
        )
        sizes[split] = len(made)
        if split == "train":
            assert made.tokens[:, 1:].size == 469_514_249
            assert len(np.unique(made.tokens[:, 1:])) == 29_233
    assert sizes == {"train": 229_367, "validation": 2_303}


def test_two_processes_that_pack_the_same_text(tmp_path):
    from collapse.inputs.packing import _cached, _write
    from collapse.stores.scratch import scratch

    folder, about = tmp_path / "chunks" / "key", {"chunk_length": 2}
    chunk, starts = np.arange(4).reshape(2, 2), np.array([0, 3])
    seen = []

    def chunks():
        yield chunk, starts
        if not seen:  # another process is a little quicker
            seen.append(True)
            with scratch(tmp_path / "chunks") as place:
                _write(folder, about, chunks(), place)
            seen.append(folder.stat().st_ino)

    with scratch(tmp_path / "chunks") as place:
        _write(folder, about, chunks(), place)
    assert folder.stat().st_ino == seen[1]  # it may be reading it by now
    assert (_cached(folder).tokens == chunk).all()
    (folder / "tokens.bin").write_bytes(b"damaged")
    with scratch(tmp_path / "chunks") as place:
        _write(folder, about, chunks(), place)
    assert (_cached(folder).tokens == chunk).all()
