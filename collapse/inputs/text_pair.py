"""Find the texts of a collection: the training text, and the validation text, which may be optional."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from collapse.errors import UsageError
from collapse.inputs.collection_spec import CollectionSpec, TextNames
from collapse.inputs.corpus import Corpus, NoSplit, find_corpus

log = logging.getLogger("collapse")

Packed = TypeVar("Packed")


@dataclass(frozen=True)
class Texts:
    """The texts of a collection.

    Attributes:
        training: None if a trained store only lacks its validation.
        validation: None if there is none.
        optional: The user did not name the validation split, so it may be absent.
        trained_on: Identity of the training text of that store.
    """

    training: Corpus | None
    validation: Corpus | None = None
    optional: bool = False
    trained_on: dict[str, Any] | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """What a request's identity records of the texts."""
        return {
            "corpus": self.training.identity() if self.training else self.trained_on,
            "validation": self.validation.identity() if self.validation else None,
        }

    @property
    def names(self) -> dict[str, str | None]:
        """The names of the texts."""
        both = {"corpus": self.training, "validation": self.validation}
        return {key: text.name if text else None for key, text in both.items()}

    def pack_validation(self, pack: Callable[[Corpus], Packed]) -> Packed | None:
        """Pack the validation text; return None if there is none, or if an optional split is absent.

        Raises:
            NoSplit: The user named the split, and it does not exist.
            CollapseError: As ``pack`` raises it.
        """
        try:
            return None if self.validation is None else pack(self.validation)
        except NoSplit as error:
            if not self.optional:
                raise
            log.warning("%s: nothing is validated", error)
            return None


def find_texts(spec: CollectionSpec, otherwise: Callable[[], str]) -> Texts:
    """Find the texts that a spec names; ``otherwise`` returns the training text's name if the spec has none.

    Raises:
        UsageError: A validation option does not apply, or as for :func:`collapse.inputs.corpus.find_corpus`.
        CollapseError: A text cannot be found or read.
    """
    named = spec.text or otherwise()
    training = find_corpus(named, split=spec.split, text_column=spec.text_column)
    if spec.validation_text:
        return Texts(training, find_validation(spec, spec.validation_text))
    if not training.files:
        return Texts(training, find_validation(spec, named), optional=spec.validation_split is None)
    texts = Texts(training)
    check_limits(spec, texts)
    return texts


def find_validation(spec: CollectionSpec, text: TextNames) -> Corpus:
    """Find a validation text; raises as :func:`collapse.inputs.corpus.find_corpus`."""
    return find_corpus(text, split=spec.validation_split, text_column=spec.text_column, validation=True)


def check_limits(spec: CollectionSpec, texts: Texts) -> None:
    """Raise UsageError if there is an option for the validation text, and no such text."""
    options = {"--validation-split": spec.validation_split, "--max-validation-chunks": spec.max_validation_chunks}
    for flag, value in options.items():
        if value is not None and texts.validation is None:
            raise UsageError(f"{flag} {value} does not apply without a validation text: give --validation-text")
