"""What a collection is to hold, known before anything heavy is loaded: its identity, and where its store lies."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from collapse.checkpoints import check_model_args
from collapse.errors import CollapseError, UsageError
from collapse.files import home, sha256_of
from collapse.limits import check_chunk_length, default_chunk_length
from collapse.references import ModelReference, card_datasets, code_of, find_model, find_tokenizer
from collapse.spec import CollectionSpec
from collapse.store import LAYER
from collapse.text import Corpus, find_corpus
from collapse.texts import Texts, find_texts, find_validation

log = logging.getLogger("collapse")

_LARGEST_SLICE = 1024  # chunks
_FEWEST_SLICES = 16
_CPU_TOKENS, _GPU_TOKENS = 2048, 16384  # tokens a batch, to begin with


@dataclass(frozen=True)
class Plan:
    """What is to be collected: a spec, and what it refers to.

    Attributes:
        spec: The options; the chunk length is known.
        model, tokenizer: Which ones.
        texts: The texts; the training text is None where a trained store only wants its validation.
        trained_on: Identity of the training text in that case.
        code: Fingerprints of the code that is trusted, by where it lies.
    """

    spec: CollectionSpec
    model: ModelReference
    tokenizer: ModelReference
    texts: Texts
    trained_on: Mapping[str, Any] | None = None
    code: Mapping[str, str] = field(default_factory=dict)

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that changes a stored number and is known without loading the model."""
        training, validation = self.texts.training, self.texts.validation
        return ({"code": dict(self.code)} if self.code else {}) | {
            "weights": self.model.weights,
            "tokenizer": self.tokenizer.tokenizer,
            "corpus": training.identity() if training else self.trained_on,
            "validation": validation.identity() if validation else None,
            "layers": [LAYER],
            **self.spec.identity,
        }

    def check_code(self) -> None:
        """Raise CollapseError if code that is trusted changed after it was hashed: call this once it is loaded."""
        if self.code and code_of(self.model, self.tokenizer, self.spec.model_args) != self.code:
            raise CollapseError(f"{self.model.name}: its code changed while it was loaded; run the same command again")

    @property
    def names(self) -> dict[str, str | None]:
        """What the model and the texts are called, which is no part of the identity."""
        return {"model": self.model.name, **self.texts.names}

    @property
    def cached(self) -> Path:
        """The store's folder in the user's cache."""
        return home() / "stores" / sha256_of(self.identity)[:40]


def plan_collection(model: str, spec: CollectionSpec, *, there: Mapping[str, Any] | None = None) -> Plan:
    """Find out what is to be collected.

    ``there`` is the identity of a store to go on with: it stands in for a text or a length that is not given.

    Raises:
        UsageError: No corpus is given and the model's card names none, or an option makes no sense.
        CollapseError: The model, tokenizer or a text cannot be found or read.
    """
    check_model_args(spec.model_args or {})
    reference = find_model(model, revision=spec.revision, model_args=spec.model_args)
    there = there or {}
    trained_on = there.get("corpus") if spec.text is None else None
    texts = _validation_alone(spec, there) if trained_on else find_texts(spec, lambda: _text_of_card(reference))
    tokenizing = find_tokenizer(spec.tokenizer, reference, spec.model_args) if spec.tokenizer else reference
    chunk_length = spec.chunk_length or there.get("chunk_length") or default_chunk_length(reference, spec.model_args)
    check_chunk_length(reference, chunk_length, spec.model_args)
    return Plan(
        spec=replace(spec, chunk_length=chunk_length, max_chunks=spec.max_chunks or there.get("max_chunks")),
        model=reference,
        tokenizer=tokenizing,
        texts=texts,
        trained_on=trained_on,
        code=code_of(reference, tokenizing, spec.model_args) if spec.trust_remote_code else {},
    )


def _validation_alone(spec: CollectionSpec, there: Mapping[str, Any]) -> Texts:
    """The texts of a store that is trained and only wants its validation."""
    if spec.validation_text:
        return Texts(None, find_validation(spec, spec.validation_text))
    known = _known_corpus(there["validation"]) if there.get("validation") else None
    return Texts(None, known, optional=True)  # nobody looked yet whether a data set has such a split


def _text_of_card(reference: ModelReference) -> str:
    named = card_datasets(reference)
    if not named:
        raise UsageError(
            f"no corpus: the card of {reference.name} names no data set. Give the text it was trained on, for example "
            f"--text roneneldan/TinyStories, or --text train.jsonl --validation-text validation.jsonl"
        )
    log.info("corpus: %s, named by the card of %s", named[0], reference.name)
    return named[0]


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
