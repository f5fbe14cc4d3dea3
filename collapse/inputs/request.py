"""A request: what is to be collected, known before anything heavy is loaded."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collapse.core.progress import Report
from collapse.errors import StoreError, UsageError, counted
from collapse.inputs.source import Source
from collapse.stores.manifest import KNOWN_LATER, OF_VALIDATION, SHARDS, differences
from collapse.stores.shards import Run
from collapse.stores.store import Store


class Request(ABC):
    """What is to be collected; two requests are the same exactly if their identities are.

    Attributes:
        part: (k, n) for the k-th of n shares of the slices, or None.
        batch_size, deterministic, recollect: As of :func:`collapse.collect`.
        without: Names of statistics that the store must not hold.
        open: Fields of the identity that a published store may have otherwise.
    """

    part: tuple[int, int] | None = None
    batch_size: int | str = "auto"
    deterministic: bool = False
    recollect: bool = False
    without: Sequence[str] = ()
    open: frozenset[str] = frozenset()

    @property
    def cached(self) -> Path | None:
        """The store's folder in the user's cache, or None for a store in memory."""
        return None

    @property
    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Everything that affects a stored number and is known without loading a model."""

    @property
    @abstractmethod
    def names(self) -> dict[str, str | None]:
        """The names of the model, its texts and its tokenizer, none of which is part of the identity."""

    @abstractmethod
    def source(self, trained: Store | None, report: Report | None) -> Source:
        """Load what is to be collected.

        Args:
            trained: The existing store, whose training samples are not needed again.
            report: Called as report(what, done, total).
        """

    def validates_beside(self, validation: str | None) -> bool:
        """Whether it needs a validation that a store with this validation text, or None, may lack."""
        return False

    def differences(self, identity: Mapping[str, Any], *, validated: bool = True) -> list[str]:
        """Describe how the identity of a store or shard differs.

        Args:
            identity: Its identity.
            validated: Whether its validation cannot be another any more.
        """
        apart = KNOWN_LATER | self.open
        if not validated or (identity.get("validation") is None and not self.validates_beside(None)):
            apart |= OF_VALIDATION
        return differences(identity, self.identity, apart=apart)

    def statistics_in(self, store: Store) -> list[str]:
        """Describe the statistics that a store holds, and must not."""
        held = store.manifest["statistics"]
        return [f"statistics: it holds {name}, and --without {name} is given" for name in self.without if name in held]

    def differences_of(self, store: Store) -> list[str]:
        """Describe how a store in the request's folder differs; one that is only trained may be validated otherwise."""
        return self.differences(store.identity, validated=store.state == "complete")


def refuse_unfinished(folder: Path | None, differ: Sequence[str]) -> None:
    """Raise StoreError if the unfinished collection in a folder differs."""
    if differ:
        raise StoreError(
            f"{folder} holds an unfinished collection that differs in {'; '.join(differ)} (there and now). Give the "
            f"same options to resume it, choose another --store, or delete {folder}/{SHARDS} to start again"
        )


def part_of(slices: int, part: tuple[int, int] | None) -> Run:
    """Return the slices of a part, as a half-open range.

    >>> part_of(10, None), part_of(10, (1, 3)), part_of(10, (3, 3))
    ((0, 10), (0, 3), (6, 10))

    Raises:
        UsageError: There are fewer slices than parts.
    """
    if part is None:
        return 0, slices
    k, n = part
    if n > slices:
        raise UsageError(
            f"--part {k}/{n}: the text has only {counted(slices, 'slice')}, so at most {counted(slices, 'part')}"
        )
    return (k - 1) * slices // n, k * slices // n
