"""Pack texts into chunks of T token ids, which depend only on texts, tokenizer, T and the number of shares.

Rows are split into contiguous shares (``--shards``), and each share into maps of 1,000 texts. Within a map the token
ids are concatenated and cut into chunks of T; the remainder is dropped. This equals grouping with ``datasets.map(…,
batched=True, num_proc=shares)``, which is not used because it may return a result cached for another num_proc.
"""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from collapse.core.paths import home
from collapse.core.progress import Report
from collapse.core.reading import read_json
from collapse.errors import CollapseError, UsageError, counted, first_line
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.corpus import Corpus, opened
from collapse.stores.files import sha256_file, sha256_of
from collapse.stores.provenance import versions
from collapse.stores.scratch import scratch
from collapse.stores.writing import write_error

_MAP = 1000
_FILES = ("tokens.bin", "starts.bin")
_FORMAT = 6

Tokenize = Callable[[list[str]], Sequence[Sequence[int]]]


@dataclass(frozen=True)
class Chunks:
    """Packed text.

    Attributes:
        tokens: Token ids, shape (S, T), int32, memory-mapped.
        starts: Position of each text's first token, ascending, int64; None if each chunk is a text.
        sha256: Hash of the token ids (little-endian int32), which identifies the text independently of its origin.
    """

    tokens: np.ndarray
    starts: np.ndarray | None
    sha256: str

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def chunk_length(self) -> int:
        """Number of tokens per chunk T."""
        return int(self.tokens.shape[1])

    @cached_property
    def _begins(self) -> np.ndarray:
        """Positions where blocks begin: runs of whole texts with at least T tokens, treated as independent."""
        if self.starts is None:
            return np.arange(len(self)) * self.chunk_length
        begins = [0]
        for start in self.starts.tolist():
            if start >= begins[-1] + self.chunk_length:
                begins.append(start)
        return np.array(begins)

    def blocks(self, start: int, stop: int) -> np.ndarray:
        """Return the block number of each token in some chunks, shape (stop − start, T)."""
        places = np.arange(start * self.chunk_length, stop * self.chunk_length)
        return (np.searchsorted(self._begins, places, side="right") - 1).reshape(-1, self.chunk_length)


def maps(counts: Iterable[int], shares: int) -> Iterator[tuple[int, int]]:
    """Yield the runs of rows that are grouped together: contiguous shares, each in maps of 1,000.

    Args:
        counts: Ascending numbers of rows; the last one is the number of all rows. The others show which rows are in the
            first share before all rows are counted. A map of which only the first rows are known to be in the share is
            followed by a longer one with the same start.
        shares: Number of shares.

    >>> list(maps([2500], 2))
    [(0, 1000), (1000, 1250), (1250, 2250), (2250, 2500)]
    >>> list(maps([1000, 2500], 2))
    [(0, 500), (0, 1000), (1000, 1250), (1250, 2250), (2250, 2500)]
    """
    rows = stop = 0
    for rows in counts:
        while stop < -(-rows // shares):
            start = stop // _MAP * _MAP
            stop = min(start + _MAP, -(-rows // shares))
            yield start, stop
    size, more = divmod(rows, shares)
    for share in range(1, min(shares, rows)):  # further shares are empty
        start, stop = stop, stop + size + (share < more)
        for low in range(start, stop, _MAP):
            yield low, min(low + _MAP, stop)


def group(token_rows: Sequence[Sequence[int]], chunk_length: int) -> np.ndarray:
    """Concatenate token ids and cut them into chunks, shape (n, T); the remainder is dropped.

    >>> group([[1, 2, 3], [4, 5]], 2).tolist()
    [[1, 2], [3, 4]]
    """
    flat = np.fromiter(chain.from_iterable(token_rows), dtype=np.int32)
    n = len(flat) // chunk_length
    return flat[: n * chunk_length].reshape(n, chunk_length)


def pack(
    corpus: Corpus, tokenizer: Any, spec: CollectionSpec, *, tokenizer_key: str, progress: Report | None = None
) -> Chunks:
    """Return the chunks of a corpus from the user's cache; pack them if they are not cached.

    Args:
        corpus: The text.
        tokenizer: Called as ``tokenizer(texts)["input_ids"]``.
        spec: The options chunk_length (not None), shards, max_chunks, special_tokens and eos_between; for a validation
            text give ``spec.of_validation``.
        tokenizer_key: Hash of the tokenizer's files, arguments and code.
        progress: Called as progress(what, texts done, texts).

    Raises:
        CollapseError: The text is too short for one chunk, a row holds no text, or the cache cannot be written.
        UsageError: A split or column is unknown, or the tokenizer has no end-of-text token for ``eos_between``.
    """
    tokenize, cache = _tokenize(tokenizer, spec), home() / "chunks"
    about: dict[str, Any] = {
        "format": _FORMAT,
        "corpus": corpus.identity(),
        "tokenizer": tokenizer_key,
        "libraries": {name: versions().get(name) for name in ("transformers", "tokenizers")},
        **{name: getattr(spec, name) for name in ("chunk_length", "shards", "eos_between", "max_chunks")},
        **({} if spec.special_tokens else {"special_tokens": False}),
    }
    folder = cache / sha256_of(about)[:40]
    chunks = _cached(folder)
    if chunks is None:
        try:
            with scratch(cache) as place:
                made = place / "chunks"
                with opened(corpus, whole=spec.max_chunks is None) as (counts, texts):
                    _write(made, about, _chunks(counts, texts, corpus.name, tokenize, spec, progress))
                if _cached(folder) is None:  # otherwise another process has just packed the same text
                    shutil.rmtree(folder, ignore_errors=True)
                    made.replace(folder)
        except OSError as error:
            raise write_error(folder, error) from error
        chunks = _cached(folder)
        assert chunks is not None  # it has just been written
    return chunks


def _chunks(
    counts: Iterable[int],
    texts: Iterator[str],
    name: str,
    tokenize: Tokenize,
    spec: CollectionSpec,
    progress: Report | None,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the chunks of each run of texts, and where its texts begin; tokens that do not fill a chunk are dropped.

    With a limit, no text is read that the limited chunks do not depend on.
    """
    chunk_length, most = spec.chunk_length, spec.max_chunks
    assert chunk_length is not None
    total = max(counts) if most is None else most
    counts = [total] if most is None else counts
    made = seen = done = 0
    for _, run in groupby(maps(counts, spec.shards), itemgetter(0)):
        token_rows: list[Sequence[int]] = []
        for _, stop in run:
            token_rows += tokenize(list(islice(texts, stop - done)))
            done = stop
            if most is not None and sum(map(len, token_rows)) >= (most - made) * chunk_length:
                break
        lengths = [len(row) for row in token_rows]
        grouped = group(token_rows, chunk_length)[: None if most is None else most - made]
        made, seen = made + len(grouped), seen + sum(lengths)
        yield grouped, np.minimum(np.cumsum([0, *lengths[:-1]]), grouped.size)
        if progress:
            progress(f"tokenizing {name}", done if most is None else made, total)
        if made == most:
            return
    if not made:
        raise CollapseError(
            f"{name} is too short for one chunk of T = {chunk_length:,}: it has {counted(seen, 'token')} in "
            f"{counted(spec.shards, 'text shard')} (--shards), and the remainder of each run of {_MAP:,} texts is "
            "dropped: give more text, or a shorter --chunk-length"
        )


def _tokenize(tokenizer: Any, spec: CollectionSpec) -> Tokenize:
    without = {} if spec.special_tokens else {"add_special_tokens": False}
    eos = getattr(tokenizer, "eos_token_id", None) if spec.eos_between else None
    if spec.eos_between and eos is None:
        raise UsageError("--eos-between needs a tokenizer with an end-of-text token: remove it, or change --tokenizer")

    def encoded(some: list[str]) -> Sequence[Sequence[int]]:
        try:
            # verbose=False suppresses a warning for texts longer than the model's limit, which are cut into chunks
            rows = tokenizer(some, verbose=False, **without)["input_ids"]
        except Exception as error:  # a tokenizer can raise anything
            said = f"{type(error).__name__}: {first_line(error)}"
            raise CollapseError(f"the tokenizer cannot encode the text: {said}; give another --tokenizer") from error
        return rows if eos is None else [[*row, eos] for row in rows]

    return encoded


def _write(folder: Path, about: dict[str, Any], chunks: Iterator[tuple[np.ndarray, np.ndarray]]) -> None:
    """Stream chunks into a folder."""
    folder.mkdir()
    rows = 0
    with (folder / _FILES[0]).open("wb") as file, (folder / _FILES[1]).open("wb") as beside:
        for some, starts in chunks:
            beside.write((starts + rows * some.shape[1]).astype("<i8").tobytes())
            file.write(some.astype("<i4").tobytes())
            rows += len(some)
    record = {**about, "rows": rows, "sha256": [sha256_file(folder / name, remember=False) for name in _FILES]}
    (folder / "chunks.json").write_text(json.dumps(record, indent=1))


def _cached(folder: Path) -> Chunks | None:
    """Return the chunks in a folder, or None if there are none or they were altered."""
    try:
        record = read_json(folder / "chunks.json")
        if [sha256_file(folder / name) for name in _FILES] != record["sha256"]:
            return None
    except (OSError, ValueError):
        return None
    shape = record["rows"], record["chunk_length"]
    tokens = np.memmap(folder / _FILES[0], dtype="<i4", mode="r", shape=shape)
    return Chunks(tokens, np.fromfile(folder / _FILES[1], dtype="<i8"), record["sha256"][0])
