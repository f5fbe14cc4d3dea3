"""Packing against a direct computation, and what makes a packing another one in the cache."""

import hashlib
import json
import os
import shutil

import numpy as np
import pytest

import collapse
from collapse.errors import CollapseError
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.corpus import Corpus, find_corpus
from collapse.inputs.packing import Chunks, group, pack, tokens_hash
from collapse.stores.files import sha256_of


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


@pytest.mark.parametrize("wrong", [2**31, 2**32 - 1, -1])
def test_token_ids_that_are_no_int32_are_refused(wrong):
    with pytest.raises(CollapseError, match=f"the tokenizer returned token id {wrong:,}, but ids must be from 0 to"):
        group([[1, 2], [3, wrong]], 2)
    grouped = group([[0, 2**31 - 1], [5]], 2)
    assert grouped.tolist() == [[0, 2**31 - 1]]
    assert grouped.dtype == np.int32


@pytest.fixture(scope="module")
def lines(tmp_path_factory) -> tuple[Corpus, list[str]]:
    """2,300 short lines, a text each."""
    texts = ["abcdefg"[: i % 5] + chr(97 + i % 26) + "\n" for i in range(2_300)]
    file = tmp_path_factory.mktemp("lines") / "lines.txt"
    file.write_text("".join(texts))
    return find_corpus(str(file)), texts


def packed(corpus, cache, tokenizer=None, **options):
    how = {name: options.pop(name) for name in ("tokenizer_hash", "progress") if name in options}
    spec = CollectionSpec(**{"chunk_length": 7, **options})
    return pack(corpus, tokenizer or Letters(), spec, cache=cache, **{"tokenizer_hash": "letters", **how})


def expected(texts, shards, length, eos=False):
    """Chunks by the definition: shards, maps of 1,000, ids end to end, the remainder dropped."""
    chunks = []
    for shard in np.array_split(np.arange(len(texts)), shards):
        for low in range(0, len(shard), 1000):
            flat = [n for i in shard[low : low + 1000] for n in [*map(ord, texts[i]), *([0] if eos else [])]]
            chunks += [flat[at : at + length] for at in range(0, len(flat) - length + 1, length)]
    return chunks


@pytest.mark.parametrize(("shards", "length", "eos"), [(1, 7, False), (2, 7, True), (3, 64, False)])
def test_chunks_are_those_of_the_definition(lines, tmp_path, shards, length, eos):
    corpus, texts = lines
    made = packed(corpus, tmp_path, shards=shards, chunk_length=length, eos_between=eos)
    assert made.tokens.tolist() == expected(texts, shards, length, eos)
    assert len(made) == len(made.tokens)
    assert made.chunk_length == length
    again = packed(corpus, tmp_path, shards=shards, chunk_length=length, eos_between=eos)  # from the cache
    assert again.tokens.tolist() == made.tokens.tolist()


def test_the_first_chunks_are_those_of_the_whole_and_no_further_text_is_tokenized(lines, tmp_path):
    corpus, texts = lines
    first_map = len(expected(texts[:1000], 1, 7))
    for limit, tokenized in ((1, 1000), (first_map, 1000), (first_map + 1, 2000), (10**6, 2300)):
        tokenizer = Letters()
        made = packed(corpus, tmp_path / str(limit), tokenizer, shards=1, max_chunks=limit)
        assert made.tokens.tolist() == expected(texts, 1, 7)[:limit]
        assert tokenizer.seen == tokenized


def test_a_share_in_the_cache_is_never_taken_for_the_whole_nor_for_another_share(lines, tmp_path):
    corpus, texts = lines
    for limit in (5, 9, 3, None, 7):
        assert packed(corpus, tmp_path, shards=1, max_chunks=limit).tokens.tolist() == expected(texts, 1, 7)[:limit]
    tokenizer = Letters()
    packed(corpus, tmp_path, tokenizer, shards=1, max_chunks=5)
    packed(corpus, tmp_path, tokenizer, shards=1, max_chunks=11)  # the whole is there
    assert tokenizer.seen == 0


OTHERS = {
    "tokenizer_hash": {"tokenizer_hash": "other"},
    "chunk_length": {"chunk_length": 8},
    "shards": {"shards": 3},
    "eos_between": {"eos_between": True},
    "option": {"tokenizer": Letters(init_kwargs={"add_prefix_space": True})},
    "object": {"tokenizer": Letters(init_kwargs={"bos_token": object()})},
    "special": {"tokenizer": Letters(special_tokens_map={"eos_token": "<end>"})},
    "class": {"tokenizer": type("Others", (Letters,), {})()},
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
    corpus, _ = lines
    for place in ("here", "there"):
        names = ("name_or_path", "vocab_file", "merges_file", "tokenizer_file", "cache_dir")
        tokenizer = Letters(init_kwargs=dict.fromkeys(names, place) | {"bos_token": object()})
        packed(corpus, tmp_path, tokenizer)
        assert tokenizer.seen == (2_300 if place == "here" else 0)


@pytest.mark.parametrize("damage", ["longer", "shorter", "other", "no record", "no list", "no tokens"])
def test_what_is_not_what_was_written_is_packed_again(lines, tmp_path, damage):
    corpus, texts = lines
    packed(corpus, tmp_path, shards=1)
    (folder,) = (tmp_path / "chunks").iterdir()
    tokens, record = folder / "tokens.bin", folder / "chunks.json"
    data = tokens.read_bytes()
    if damage == "no record":
        record.unlink()
    elif damage == "no list":
        record.write_text("[]")
    elif damage == "no tokens":
        tokens.unlink()
    else:
        tokens.write_bytes({"longer": data + data[:28], "shorter": data[:-28], "other": data[::-1]}[damage])
    assert packed(corpus, tmp_path, shards=1).tokens.tolist() == expected(texts, 1, 7)


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
    with pytest.raises(CollapseError, match=r"too short for one chunk of T = 8: it has 8 tokens in 2 shards"):
        packed(corpus, tmp_path, chunk_length=8)


def test_a_cache_that_cannot_be_written_is_told(lines, tmp_path):
    (tmp_path / "chunks").write_text("a file")
    with pytest.raises(CollapseError, match="COLLAPSE_HOME"):
        packed(lines[0], tmp_path)


def test_a_packing_made_before_is_found_again(lines, tmp_path):
    """Caches are used for years: the key is of these fields and these only."""
    corpus, _ = lines
    about = {
        "format": 3,
        "corpus": corpus.identity(),
        "tokenizer": "letters",
        "loaded": sha256_of(["Letters", None, {}, {}]),
        "chunk_length": 7,
        "shards": 2,
        "eos_between": False,
    }
    for limit, key in ((None, about), (3, about | {"max_chunks": 3})):
        packed(corpus, tmp_path / str(limit), max_chunks=limit)
        (folder,) = (tmp_path / str(limit) / "chunks").iterdir()
        assert folder.name == sha256_of(key)[:40]


def test_no_text_gives_no_chunk():
    assert group([], 1).shape == group([[]], 1).shape == (0, 1)


def test_the_hash_of_tokens_is_of_little_endian_int32():
    tokens = np.arange(12, dtype=np.int64).reshape(3, 4)
    digest = hashlib.sha256(b"".join(n.to_bytes(4, "little") for n in range(12))).hexdigest()
    for same in (tokens.astype("<i4"), tokens.astype(">i4"), np.asfortranarray(tokens.astype("<i4"))):
        assert tokens_hash(Chunks(same)) == digest
    assert tokens_hash(Chunks(tokens[::-1].astype("<i4"))) != digest


def test_chunks_are_read_only_and_mapped(lines, tmp_path):
    made = packed(lines[0], tmp_path)
    assert isinstance(made.tokens, np.memmap)
    assert made.tokens.dtype == np.dtype("<i4")
    assert not made.tokens.flags.writeable
    with pytest.raises(AttributeError):
        made.tokens = None
    (folder,) = (tmp_path / "chunks").iterdir()
    assert os.path.samefile(made.tokens.filename, folder / "tokens.bin")


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
