"""Find the texts of a collection: the training text and, if there is one, the validation text."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from collapse.errors import UsageError
from collapse.hub.corpus import Corpus, NoSplit, find_corpus
from collapse.hub.textfiles import TextNames
from collapse.inputs.collection_spec import CollectionSpec

log = logging.getLogger("collapse")

Packed = TypeVar("Packed")


@dataclass(frozen=True)
class Texts:
    """The texts of a collection.

    Attributes:
        training: The training text. None in two cases: a store of any text is accepted, or the text is that of an
            existing store, which has the text's identity, but not its path.
        validation: The validation text, or None.
        may_be_absent: Whether to skip the validation if the data set has no validation split. True if the options do
            not name a validation text or split, so that the split is only a default.
    """

    training: Corpus | None
    validation: Corpus | None = None
    may_be_absent: bool = False

    @property
    def shown_names(self) -> dict[str, str | None]:
        """The names of ``corpus`` (the training text) and ``validation``, None for a missing text."""
        both = {"corpus": self.training, "validation": self.validation}
        return {key: text.name if text else None for key, text in both.items()}

    def identity(self) -> dict[str, Any]:
        """Return the identities of ``corpus`` (the training text) and ``validation``, None for a missing text."""
        both = {"corpus": self.training, "validation": self.validation}
        return {key: text.identity() if text else None for key, text in both.items()}

    def fitted(self, spec: CollectionSpec) -> CollectionSpec:
        """Return ``spec`` with the chunk length and limits of packed texts, where ``spec`` does not give its own."""
        train, validation = (
            text.packed.record if text and text.packed else dict[str, Any]()
            for text in (self.training, self.validation)
        )
        limit, own = train.get("max_chunks"), validation.get("max_chunks")
        if limit is not None and own is None:  # max_chunks alone would also limit the validation text
            own = validation.get("rows")
        held = {"chunk_length": (train or validation).get("chunk_length"), "max_chunks": limit}
        held["max_validation_chunks"] = own if spec.max_chunks is None and own != limit else None
        return replace(spec, **{name: each for name, each in held.items() if each and getattr(spec, name) is None})

    def pack_validation(self, pack: Callable[[Corpus], Packed]) -> Packed | None:
        """Return what ``pack`` makes of the validation text; None without a validation text or if its split is missing.

        A missing split gives None only if ``may_be_absent`` is True; otherwise, NoSplit is raised.
        """
        try:
            return None if self.validation is None else pack(self.validation)
        except NoSplit as error:
            if not self.may_be_absent:
                raise
            log.warning("skipping the validation: %s", error)
            return None


def find_texts(spec: CollectionSpec) -> Texts:
    """Find the training and validation text of a spec, which must have a ``text``.

    If the spec names no validation text, use the validation split of the training data set, or the validation text that
    was packed with the training text.

    Raises the exceptions of :func:`find_corpus`, and UsageError for an option that needs a validation text.
    """
    assert spec.text is not None
    training = find_corpus(spec.text, split=spec.split, text_column=spec.text_column)
    named = spec.validation_text or (None if training.files else spec.text)
    validation = _find_validation(spec, named) if named else None
    if training.packed and not spec.validation_text and validation == training:  # only a training text was packed
        validation = None
    if validation is None:
        _refuse_unused(spec)
    unnamed = not (spec.validation_text or spec.validation_split or training.packed)
    return Texts(training, validation, may_be_absent=unnamed and validation is not None)


def find_named_validation(spec: CollectionSpec) -> Corpus | None:
    """Find the text of ``spec.validation_text``; None if it is None. Raises the exceptions of :func:`find_texts`."""
    if spec.validation_text:
        return _find_validation(spec, spec.validation_text)
    _refuse_unused(spec)
    return None


def _find_validation(spec: CollectionSpec, text: TextNames) -> Corpus:
    return find_corpus(text, split=spec.validation_split, text_column=spec.text_column, validation=True)


def _refuse_unused(spec: CollectionSpec) -> None:
    """Raise UsageError if an option is given that needs a validation text; called if there is none."""
    options = {"--validation-split": spec.validation_split, "--max-validation-chunks": spec.max_validation_chunks}
    for flag, value in options.items():
        if value is not None:
            raise UsageError(
                f"{flag} {value} does not apply without a validation text: give --validation-text, or remove {flag}"
            )
