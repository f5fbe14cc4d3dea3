"""A request: what is to be collected, known before anything heavy is loaded."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collapse.core.progress import Report
from collapse.errors import StoreError, UsageError, counted
from collapse.plugin.statistic import Statistic
from collapse.stores.manifest import KNOWN_LATER, OF_VALIDATION, SHARDS, differences
from collapse.stores.shards import Part, Shard, intact_shards
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

    @abstractmethod
    def collect(
        self, folder: Path | None, kinds: Sequence[type[Statistic]], report: Report | None = None
    ) -> Store | Part:
        """Collect what a folder, which this process has locked, does not hold yet.

        Args:
            folder: The store's folder; None for a store in memory.
            kinds: Plugin statistics to fill.
            report: Called as report(what, done, total).
        """

    def validates_beside(self, validation: str | None) -> bool:
        """Whether it needs a validation that a store with this validation text, or None, may lack."""
        return False

    def differences(self, store: Store) -> list[str]:
        """Describe how a store differs. A missing validation is no difference, because it can be added."""
        adopts = store.identity.get("validation") is None or store.state == "trained"
        return differences(store.identity, self.identity, apart=_apart(validation=adopts))

    def differences_of(self, shard: Shard) -> list[str]:
        """Describe how a shard differs."""
        identity = shard.about["identity"]
        absent = identity.get("validation") is None and not self.validates_beside(None)  # the optional split
        return differences(identity, self.identity, apart=_apart(validation=absent))


def refuse_unlike(folder: Path | None, shard: Shard, about: Mapping[str, Any]) -> None:
    """Raise StoreError if a shard is not of the pass that goes on in its folder.

    Args:
        folder: The folder.
        shard: One of its shards.
        about: What the pass is of, as in :attr:`Shard.about`.
    """
    differ = differences(shard.about["identity"], about["identity"])
    differ += differences(shard.about["coverage"], about["coverage"], prefix="slices.")
    if shard.about.get("trained") != about.get("trained"):
        differ.append("the class means")
    _refuse(folder, differ)


def refuse_other_shards(folder: Path, request: Request) -> None:
    """Raise StoreError if a folder holds shards of something else than a request, before a model is loaded."""
    for phase in ("train", "validation"):
        for shard in intact_shards(folder, phase)[:1]:
            _refuse(folder, request.differences_of(shard))


def _refuse(folder: Path | None, differ: Sequence[str]) -> None:
    if differ:
        raise StoreError(
            f"{folder} holds an unfinished collection that differs in {'; '.join(differ)} (there and now). Give the "
            f"same options to resume it, choose another --store, or delete {folder}/{SHARDS} to start again"
        )


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
