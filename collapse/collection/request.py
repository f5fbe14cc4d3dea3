"""A request: what is to be collected, known before anything heavy is loaded."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from collapse.errors import UsageError, counted
from collapse.stores.manifest import KNOWN_LATER, OF_VALIDATION, differences
from collapse.stores.partial import Progress
from collapse.stores.store import Store


class Request(ABC):
    """What is to be collected; two requests are the same exactly if their identities are.

    Attributes:
        part: (k, n) for the k-th of n shares of the slices, or None.
        without: Names of statistics that the store must not hold.
    """

    part: tuple[int, int] | None = None
    without: Sequence[str] = ()

    @property
    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Everything that affects a stored number and is known without loading a model."""

    @property
    @abstractmethod
    def names(self) -> dict[str, str | None]:
        """The names of the model, its texts and its tokenizer, none of which is part of the identity."""

    def validates_beside(self, validation: str | None) -> bool:
        """Whether it needs a validation that a store with this validation text, or None, may lack."""
        return False

    def differences(self, store: Store) -> list[str]:
        """Describe how a store differs. A missing validation is no difference, because it can be added."""
        validated = store.manifest["coverage"]["validation"] is not None or store.state == "part"
        adopts = store.identity.get("validation") is None or not validated
        return differences(store.identity, self.identity, apart=_apart(validation=adopts))

    def differs_unfinished(self, place: Progress) -> list[str]:
        """Describe how an unfinished collection differs."""
        absent = place.identity.get("validation") is None and not self.validates_beside(None)  # the optional split
        return differences(place.identity, self.identity, apart=_apart(validation=absent))

    def has_slices_of(self, store: Store) -> bool:
        """Whether a store holds the slices of this part, or all where this is no part."""
        if self.part is None or store.state != "part":
            return (self.part is None) == (store.state != "part")
        train = store.manifest["coverage"]["train"]
        return self.part[1] <= train["slices"] and [list(part_of(train["slices"], self.part))] == train["done"]


def _apart(*, validation: bool) -> frozenset[str]:
    """Return the fields of an identity that no request has, with those of the validation if they may differ too."""
    return KNOWN_LATER | OF_VALIDATION if validation else KNOWN_LATER


def part_of(slices: int, part: tuple[int, int] | None) -> tuple[int, int]:
    """Return the slices of a part, as a half-open range.

    >>> part_of(10, None), part_of(10, (1, 3)), part_of(10, (3, 3))
    ((0, 10), (0, 3), (6, 10))

    Raises:
        UsageError: There are fewer slices than parts.
    """
    if part is None:
        return 0, slices
    k, n = part
    if not 1 <= k <= n:
        raise UsageError(f"--part must be 1/{n} to {n}/{n}, got {k}/{n}")
    if n > slices:
        raise UsageError(
            f"--part {k}/{n}: the text has only {counted(slices, 'slice')}, so at most {counted(slices, 'part')}"
        )
    return (k - 1) * slices // n, k * slices // n
