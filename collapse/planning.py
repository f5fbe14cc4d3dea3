"""What a collection is to hold, known before anything heavy is loaded: its identity, and where its store lies."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collapse.checkpoints import check_model_args
from collapse.errors import CollapseError, UsageError
from collapse.files import home, sha256_of
from collapse.limits import check_chunk_length, default_chunk_length
from collapse.provenance import shown_argument
from collapse.references import (
    ModelReference,
    card_datasets,
    code_of,
    find_model,
    find_tokenizer,
)
from collapse.store import LAYER
from collapse.text import Corpus, find_corpus

log = logging.getLogger("collapse")

_LARGEST_SLICE = 1024  # chunks
_FEWEST_SLICES = 16
_CPU_TOKENS, _GPU_TOKENS = 2048, 16384  # tokens a batch, to begin with


@dataclass(frozen=True)
class Plan:
    """What is to be collected.

    Attributes:
        model, tokenizer: Which ones.
        corpus: The training text; None where a trained store only wants its validation.
        validation: The validation text, or None.
        chunk_length: T.
        fast_attention: Whether plugins may swap in an equal, faster attention.
        optional_validation: The validation split was not asked for by name: it may be absent.
        trained_on: Identity of the training text where ``corpus`` is None.
        code: Fingerprints of the code that is trusted, by where it lies.
    """

    model: ModelReference
    tokenizer: ModelReference
    corpus: Corpus | None
    validation: Corpus | None
    chunk_length: int
    shards: int
    eos_between: bool
    max_chunks: int | None
    dtype: str
    model_args: Mapping[str, Any] = field(default_factory=dict)
    fast_attention: bool = True
    optional_validation: bool = False
    trained_on: Mapping[str, Any] | None = None
    code: Mapping[str, str] = field(default_factory=dict)

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that changes a stored number and is known without loading the model."""
        own: dict[str, Any] = {} if self.fast_attention else {"fast_attention": False}
        own |= {"code": dict(self.code)} if self.code else {}
        return own | {
            "weights": self.model.weights,
            "tokenizer": self.tokenizer.tokenizer,
            "model_args": recorded_arguments(self.model_args),
            "corpus": self.corpus.identity() if self.corpus else self.trained_on,
            "validation": self.validation.identity() if self.validation else None,
            "chunk_length": self.chunk_length,
            "shards": self.shards,
            "eos_between": self.eos_between,
            "max_chunks": self.max_chunks,
            "dtype": self.dtype,
            "layers": [LAYER],
        }

    def check_code(self) -> None:
        """Raise CollapseError if code that is trusted changed after it was hashed: call this once it is loaded."""
        if self.code and code_of(self.model, self.tokenizer, self.model_args) != self.code:
            raise CollapseError(f"{self.model.name}: its code changed while it was loaded; run the same command again")

    @property
    def names(self) -> dict[str, str | None]:
        """What the model and the texts are called, which is no part of the identity."""
        corpus, validation = (text.name if text else None for text in (self.corpus, self.validation))
        return {"model": self.model.name, "corpus": corpus, "validation": validation}

    @property
    def cached(self) -> Path:
        """The store's folder in the user's cache."""
        return home() / "stores" / sha256_of(self.identity)[:40]


def plan_collection(
    model: str,
    *,
    there: Mapping[str, Any] | None = None,
    text: str | Sequence[str] | None = None,
    validation_text: str | Sequence[str] | None = None,
    split: str | None = None,
    validation_split: str | None = None,
    text_column: str = "text",
    tokenizer: str | None = None,
    revision: str | None = None,
    chunk_length: int | None = None,
    shards: int = 2,
    eos_between: bool = False,
    max_chunks: int | None = None,
    dtype: str = "float32",
    model_args: Mapping[str, Any] | None = None,
    fast_attention: bool = True,
    trust_remote_code: bool = False,
) -> Plan:
    """Find out what is to be collected; arguments as of :func:`collapse.collect`.

    ``there`` is the identity of a store to go on with: it stands in for a text or a length that is not given.

    Raises:
        UsageError: No corpus is given and the model's card names none, or an option makes no sense.
        CollapseError: The model, tokenizer or a text cannot be found or read.
    """
    for name, value, least in (
        ("--chunk-length", chunk_length, 2),
        ("--max-chunks", max_chunks, 1),
        ("--shards", shards, 1),
    ):
        if value is not None and value < least:
            raise UsageError(f"{name} {value} makes no sense: give at least {least}")
    check_model_args(model_args or {})
    reference = find_model(model, revision=revision, model_args=model_args)
    there = there or {}
    trained_on = there.get("corpus") if text is None else None
    corpus = None if trained_on else find_corpus(text or _text_of_card(reference), split=split, text_column=text_column)
    validation, optional = None, False
    if validation_text is not None:
        validation = find_corpus(validation_text, split=validation_split, text_column=text_column, validation=True)
    elif corpus is not None and corpus.source == "hub":
        same = text or _text_of_card(reference)
        validation = find_corpus(same, split=validation_split, text_column=text_column, validation=True)
        optional = True
    elif corpus is not None and validation_split is not None:
        raise UsageError(
            f"--validation-split {validation_split} does not apply: there is no validation text; "
            "name a data set with --validation-text, or leave it out"
        )
    elif trained_on and there.get("validation"):
        validation = _known_corpus(there["validation"])
    tokenizing = find_tokenizer(tokenizer) if tokenizer else reference
    chunk_length = chunk_length or there.get("chunk_length") or default_chunk_length(reference, model_args)
    check_chunk_length(reference, chunk_length, model_args)
    return Plan(
        model=reference,
        tokenizer=tokenizing,
        corpus=corpus,
        validation=validation,
        chunk_length=chunk_length,
        shards=shards,
        eos_between=eos_between,
        max_chunks=max_chunks or there.get("max_chunks"),
        dtype=dtype,
        model_args=model_args or {},
        fast_attention=fast_attention,
        trained_on=trained_on,
        optional_validation=optional,
        code=code_of(reference, tokenizing, model_args) if trust_remote_code else {},
    )


def _text_of_card(reference: ModelReference) -> str:
    named = card_datasets(reference)
    if not named:
        raise UsageError(
            f"no corpus: the card of {reference.name} names no data set. Give the text it was trained on, for example "
            f"--text roneneldan/TinyStories, or --text train.jsonl --validation-text validation.jsonl"
        )
    log.info("corpus: %s, named by the card of %s", named[0], reference.name)
    return named[0]


def recorded_arguments(model_args: Mapping[str, Any]) -> dict[str, Any]:
    """Return model arguments as the identity records them."""
    return {name: shown_argument(name, value) for name, value in model_args.items()}


def _known_corpus(identity: Mapping[str, Any]) -> Corpus:
    """The validation text of a store that is there, where its name says enough to find it again."""
    if not identity.get("revision"):
        raise UsageError(
            "the validation text was a local file: name it again with --validation-text "
            f"(its content hash begins {str(identity.get('sha256'))[:12]})"
        )
    name = f"{identity['name']}@{identity['revision']}"
    return find_corpus(name, split=identity["split"], text_column=identity["column"])


def slice_length(chunks: int, chunk_length: int) -> int:
    """Chunks a slice, whatever the batch size: at most 1,024, and at least 16 slices where there are 16 chunks.

    A multiple of the largest batch that ``auto`` tries, so that its batches fill the slices.

    >>> slice_length(229_367, 2048), slice_length(20, 512), slice_length(730, 512)
    (1024, 1, 32)
    """
    batch = largest_batch(chunks, chunk_length)
    return max(batch, min(_LARGEST_SLICE, chunks // _FEWEST_SLICES) // batch * batch)


def largest_batch(chunks: int, chunk_length: int) -> int:
    """The largest batch size of ``auto``: a power of two of at most 16,384 tokens, small enough for 16 slices."""
    batch = 1
    while batch * 2 * chunk_length <= _GPU_TOKENS and batch * 2 * _FEWEST_SLICES <= chunks:
        batch *= 2
    return batch


def first_batch(chunks: int, chunk_length: int, device: str) -> int:
    """The batch size that ``auto`` begins with: a power of two that divides the slices."""
    batch = largest_batch(chunks, chunk_length)
    while device == "cpu" and batch > 1 and batch * chunk_length > _CPU_TOKENS:
        batch //= 2
    return batch


def part_of(slices: int, part: tuple[int, int] | None) -> tuple[int, int]:
    """The slices of a part: part k of n is a fixed run of them.

    >>> part_of(10, None), part_of(10, (1, 3)), part_of(10, (3, 3))
    ((0, 10), (0, 3), (6, 10))

    Raises:
        UsageError: There are fewer slices than parts.
    """
    if part is None:
        return 0, slices
    k, n = part
    if not 1 <= k <= n:
        raise UsageError(f"--part {k}/{n} makes no sense: parts are 1/{n} to {n}/{n}")
    if n > slices:
        raise UsageError(f"--part {k}/{n}: the text has only {slices} slices, so at most {slices} parts")
    return (k - 1) * slices // n, k * slices // n
