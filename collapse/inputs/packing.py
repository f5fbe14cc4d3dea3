"""Pack texts into chunks of T token ids; equal texts, tokenizer and options give equal chunks.

The texts (rows) are split into contiguous shares (``--shards``), and each share into maps of 1,000 texts. Within a map
the token ids are concatenated and cut into chunks of T; the remainder is dropped. This equals grouping with
``datasets.map(…, batched=True, num_proc=shares)``, which is not used because it may return a result cached for another
num_proc.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from collapse.core.paths import home
from collapse.core.progress import Report
from collapse.errors import CollapseError, UsageError, counted, first_line
from collapse.hub.corpus import Corpus, opened
from collapse.hub.packed_text import RECORD, PackedText
from collapse.hub.references import ModelReference
from collapse.inputs.chunk_files import FILES, NOT_COMPARED, Chunks, read_chunks, write_chunks
from collapse.inputs.collection_spec import CollectionSpec
from collapse.stores.files import sha256_of
from collapse.stores.identity_differences import differences
from collapse.stores.lock import locked
from collapse.stores.provenance import versions
from collapse.stores.writing import write_error

_MAP = 1000
_FORMAT = 7

Tokenize = Callable[[list[str]], Sequence[Sequence[int]]]


def maps(counts: Iterable[int], shares: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) for each map: rows start to stop − 1, whose token ids are concatenated.

    The rows are split into contiguous shares, and each share into maps of 1,000 rows.

    Args:
        counts: The number of rows counted so far, at successive moments; the last number is the total. When n rows are
            counted, the first share has at least n / shares rows. The maps of these rows are yielded at once, before
            all rows are counted. The last of these maps may have fewer than 1,000 rows. It is yielded again later, with
            more rows, if the share turns out to be longer.
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


def chunk_length_of(reference: ModelReference, asked: int | None) -> int:
    """Return T: the requested length or, for None, min(2048, the model's maximum sequence length).

    Raises:
        UsageError: The requested length is longer than the model's maximum.
        CollapseError: No length is requested, and the model states no maximum.
    """
    limit = reference.position_limit
    if asked is None and limit is None:
        raise CollapseError(
            f"{reference.name} has no maximum sequence length in its configuration: give --chunk-length"
        )
    if asked is not None and limit is not None and asked > limit:
        raise UsageError(
            f"--chunk-length {asked} is longer than the {limit:,} positions of {reference.name}: give at most {limit}"
        )
    return asked or min(2048, limit or 2048)


def tokenizer_key(tokenizer: ModelReference, spec: CollectionSpec) -> str:
    """Return a hash of a tokenizer's files, its arguments and, with ``--trust-remote-code``, its code."""
    code = tokenizer.code if spec.trust_remote_code else {}
    chosen = [each for each in (tokenizer.model_args, code) if each]
    return sha256_of([tokenizer.tokenizer, *chosen]) if chosen else tokenizer.tokenizer


def _tokenization(tokenizer: Any) -> str | None:
    """Return a hash of a fast tokenizer's rules, which different files may share; None for a slow tokenizer."""
    if (backend := getattr(tokenizer, "backend_tokenizer", None)) is None:
        return None
    more = [getattr(tokenizer, name, None) for name in ("eos_token_id", "split_special_tokens")]
    return sha256_of([type(tokenizer).__name__, backend.to_str(), *more])


def pack(
    corpus: Corpus,
    tokenizer: Any,
    spec: CollectionSpec,
    *,
    tokenizer_key: str,
    folder: Path | None = None,
    progress: Report | None = None,
) -> Chunks:
    """Return the chunks of a text; if they are not in the folder yet, tokenize the text and write them there.

    If several processes call this, one packs, and the others wait for its chunks.

    Args:
        corpus: The text. If ``collapse pack`` packed it, its chunks are read, and nothing is tokenized.
        tokenizer: A tokenizer of transformers, or a function that accepts the same arguments.
        spec: The options. Those that matter are chunk_length (not None), shards, max_chunks, special_tokens and
            eos_between. For a validation text give ``spec.of_validation``.
        tokenizer_key: Hash of the tokenizer, see :func:`tokenizer_key`.
        folder: The folder; None for one in the user's cache.
        progress: Called as progress(what, done, total[, note]).

    Raises:
        CollapseError: The text is too short for one chunk, cannot be read or tokenized, or changed; or the folder
            cannot be written.
        UsageError: A split or column is unknown, the tokenizer has no end-of-text token for ``eos_between``, or the
            text or the chunks in the folder were packed with other options.
    """
    about: dict[str, Any] = {
        "format": _FORMAT,
        "corpus": corpus.identity(),
        "tokenizer": tokenizer_key,
        "tokenization": _tokenization(tokenizer),
        "libraries": {name: versions().get(name) for name in ("transformers", "tokenizers")},
        **{name: getattr(spec, name) for name in ("chunk_length", "shards", "eos_between", "special_tokens")},
        "max_chunks": spec.max_chunks,
    }
    if corpus.packed is not None:
        return _packed(corpus.packed, about, progress)
    tokenize = _tokenize(tokenizer, spec)
    folder = folder or home() / "chunks" / sha256_of(about)[:40]
    if (chunks := read_chunks(folder, about)) is None:
        with locked(folder, wait=True):
            chunks = read_chunks(folder, about)  # another process may have packed the same text meanwhile
            if chunks is None:
                try:
                    with opened(corpus, whole=spec.max_chunks is None, progress=progress) as (counts, texts):
                        made = _chunks(counts, texts, corpus.name, tokenize, spec, progress)
                        write_chunks(folder, {**about, "name": corpus.name}, made)
                except OSError as error:
                    raise write_error(folder, error) from error
                chunks = read_chunks(folder, about)
                assert chunks is not None  # it has just been written
    return chunks


def _packed(text: PackedText, about: Mapping[str, Any], progress: Report | None) -> Chunks:
    """Return the chunks of a packed text, or only the first chunks if fewer are requested.

    ``about`` has the requested values of the fields of ``text.record``.

    Raises:
        UsageError: The text was packed with other options than those in ``about``.
        CollapseError: The packed text is damaged, or cannot be downloaded.
    """
    limit, packed = about["max_chunks"], text.record.get("max_chunks")
    is_less = limit is not None and (packed is None or limit < packed)
    ignored = NOT_COMPARED | ({"max_chunks"} if is_less else set())
    if about["tokenization"] and about["tokenization"] == text.record.get("tokenization"):
        ignored |= {"tokenizer"}
    if differ := differences(text.record, about, ignoring=ignored, sides=("packed", "requested")):
        raise UsageError(
            f"{text.name} was packed with other options: {'; '.join(differ)}. Give the same options, or pack the text "
            "again: collapse pack"
        )
    folder = [text.files.fetch(f"{text.part}/{name}", progress) for name in (*FILES, RECORD)][-1].parent
    if (chunks := read_chunks(folder, text.record)) is None:
        raise CollapseError(f"{folder} is damaged: copy or download it again, or pack the text again: collapse pack")
    return chunks.first(limit) if is_less else chunks


def _chunks(
    counts: Iterable[int],
    texts: Iterator[str],
    name: str,
    tokenize: Tokenize,
    spec: CollectionSpec,
    progress: Report | None,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield, for each map, its chunks, and the position of each text's first token in the flattened chunks.

    Tokens that do not fill a chunk are dropped. ``counts`` is as in :func:`maps`. With ``spec.max_chunks``, texts are
    tokenized, up to 1,000 at a time, only until there are as many chunks. Raise CollapseError if there is no chunk.
    """
    chunk_length, most = spec.chunk_length, spec.max_chunks
    assert chunk_length is not None
    # without a limit, count all texts first, so that the progress callback gets a total
    total = max(counts) if most is None else most
    counts = [total] if most is None else counts
    made = seen = done = 0
    tokenized = _tokenized(maps(counts, spec.shards), texts, tokenize, ahead=most is None)
    for _, run in groupby(tokenized, itemgetter(0)):  # a map that maps() yields again has the same start
        token_rows: list[Sequence[int]] = []
        for _, done, rows in run:  # noqa: B007  # done is read after the loop
            token_rows += rows
            if most is not None and sum(map(len, token_rows)) >= (most - made) * chunk_length:
                break  # these tokens reach the limit, so this function returns below
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
            f"{name} is too short: it has {counted(seen, 'token')} in {counted(spec.shards, 'text shard')}, and no "
            f"shard fills a chunk of T = {chunk_length:,}. Give more text, a shorter --chunk-length, or fewer --shards"
        )


def _tokenized(
    runs: Iterable[tuple[int, int]], texts: Iterator[str], tokenize: Tokenize, *, ahead: bool
) -> Iterator[tuple[int, int, Sequence[Sequence[int]]]]:
    """Yield (start, stop, token ids of each text) for each (start, stop) in ``runs``, which :func:`maps` yields.

    If a run repeats texts of the run before it, only the token ids of its new texts are yielded. With ``ahead``, the
    next run is tokenized while the caller uses the current run.
    """
    waiting: deque[tuple[int, int, Future[Sequence[Sequence[int]]]]] = deque()
    with ThreadPoolExecutor(1) as thread:
        done = 0
        for start, stop in runs:
            waiting.append((start, stop, thread.submit(tokenize, list(islice(texts, stop - done)))))
            done = stop
            if len(waiting) > ahead:
                start, stop, rows = waiting.popleft()
                yield start, stop, rows.result()
        for start, stop, rows in waiting:
            yield start, stop, rows.result()


def _tokenize(tokenizer: Any, spec: CollectionSpec) -> Tokenize:
    without = {} if spec.special_tokens else {"add_special_tokens": False}
    eos = getattr(tokenizer, "eos_token_id", None) if spec.eos_between else None
    if spec.eos_between and eos is None:
        raise UsageError("--eos-between needs a tokenizer with an end-of-text token: remove it, or change --tokenizer")

    def encoded(some: list[str]) -> Sequence[Sequence[int]]:
        try:
            # verbose=False suppresses a warning for texts longer than the model's limit, which are cut into chunks;
            # attention masks, which are not used, would take 7 % more time
            rows = tokenizer(some, verbose=False, return_attention_mask=False, **without)["input_ids"]
        except Exception as error:  # a tokenizer can raise anything
            said = f"{type(error).__name__}: {first_line(error)}"
            raise CollapseError(f"the tokenizer cannot encode the text: {said}; give another --tokenizer") from error
        return rows if eos is None else [[*row, eos] for row in rows]

    return encoded
