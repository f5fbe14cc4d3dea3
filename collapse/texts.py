"""The texts of a collection, found: the training text, and the validation text, which may be optional."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from collapse.errors import UsageError
from collapse.spec import CollectionSpec, TextNames
from collapse.text import Corpus, find_corpus

log = logging.getLogger("collapse")

Packed = TypeVar("Packed")


@dataclass(frozen=True)
class Texts:
    """The texts of a collection.

    Attributes:
        training: None where a trained store only wants its validation.
        validation: None where there is none.
        optional: The validation split was not asked for by name: it may be absent.
    """

    training: Corpus | None
    validation: Corpus | None = None
    optional: bool = False

    @property
    def names(self) -> dict[str, str | None]:
        """What they are called."""
        return {
            "corpus": self.training.name if self.training else None,
            "validation": self.validation.name if self.validation else None,
        }

    def wanted_beside(self, validation: str | None) -> bool:
        """Whether a store has still to be validated, or is not what was asked for, with this validation text or None.

        This and :meth:`pack_validation` are where an optional validation is decided.
        """
        return self.validation is not None and not (self.optional and validation is None)

    def pack_validation(self, pack: Callable[[Corpus], Packed]) -> Packed | None:
        """The validation text, packed; None where there is none, or an optional split is absent.

        Raises:
            UsageError: The split was asked for by name, and is not there.
        """
        if self.validation is None:
            return None
        try:
            return pack(self.validation)
        except UsageError:
            if not self.optional:
                raise
            log.warning("%s has no split %r: nothing is validated", self.validation.name, self.validation.split)
            return None


def find_texts(spec: CollectionSpec, otherwise: Callable[[], str]) -> Texts:
    """Find the texts that a spec names; ``otherwise`` names the training text where it names none.

    Raises:
        UsageError: A split is named where there is none, or as :func:`collapse.text.find_corpus` raises.
        CollapseError: A text cannot be found or read.
    """
    named = spec.text or otherwise()
    training = find_corpus(named, split=spec.split, text_column=spec.text_column)
    if spec.validation_text:
        return Texts(training, find_validation(spec, spec.validation_text))
    if training.source == "hub":
        return Texts(training, find_validation(spec, named), optional=spec.validation_split is None)
    if spec.validation_split is not None:
        raise UsageError(
            f"--validation-split {spec.validation_split} does not apply: there is no validation text; "
            "name a data set with --validation-text, or leave it out"
        )
    return Texts(training)


def find_validation(spec: CollectionSpec, text: TextNames) -> Corpus:
    """Find a validation text; raises as :func:`collapse.text.find_corpus`."""
    return find_corpus(text, split=spec.validation_split, text_column=spec.text_column, validation=True)
