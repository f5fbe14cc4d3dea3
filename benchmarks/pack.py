"""Benchmark packing a text into a folder, compared with the tokenizer alone on lists of 1,000 texts.

Both use the same threads. The text is TinyStories from the folder of the tests that need real data. If this folder is
absent, or with ``quick``, stories and their own tokenizer are generated.
"""

import json
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from benchmarks.machine import ROOT
from benchmarks.record import Record
from benchmarks.timing import in_turn
from collapse.hub.corpus import find_corpus
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.packing import pack
from collapse_zoo.stories import stories, train_tokenizer, write_stories

_REAL = ROOT.parent / "shared" / "data"
_LIST = 1_000


def benchmark(quick: bool) -> Record:
    """Time packing: reading, tokenizing, cutting into chunks, writing and hashing."""
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        file, folder = place / "texts.jsonl", place / "tokenizer"
        if real := _REAL.is_dir() and not quick:
            file.write_bytes((_REAL / "tinystories" / "train.jsonl").read_bytes() * 4)
            folder = _REAL / "gpt2-tokenizer"
        else:
            write_stories(file, 2_000 if quick else 10_000, 1)
            train_tokenizer(stories(2_000, 1), folder)
        return _record(file, AutoTokenizer.from_pretrained(folder), "TinyStories" if real else "generated stories")


def _record(file: Path, tokenizer: Any, what: str) -> Record:
    record = Record("pack", "Packing a text into a folder, and the tokenizer alone on lists of 1,000 texts.")
    texts = [json.loads(line)["text"] for line in file.open(encoding="utf-8")]
    lists = [texts[start : start + _LIST] for start in range(0, len(texts), _LIST)]
    corpus, spec, numbers = find_corpus(file), CollectionSpec(chunk_length=512), count()

    def alone() -> int:
        return sum(len(row) for some in lists for row in tokenizer(some, verbose=False)["input_ids"])

    def packed() -> object:  # into a new folder each time
        return pack(corpus, tokenizer, spec, tokenizer_key="", folder=file.with_name(str(next(numbers))))

    times, tokens = in_turn({"tokenizer alone": alone, "pack": packed}, 5), alone()
    data = f"{len(texts):,} texts ({what}), {tokens:,} tokens"
    record.add(data, times, amount=tokens, unit="tokens", limit="tokenizer alone")
    return record
