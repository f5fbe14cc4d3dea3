"""A request describes what to collect, and compares it with what a folder already holds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collapse.core.progress import Report
from collapse.errors import StoreError, UsageError, counted
from collapse.stores.files import home, sha256_of
from collapse.stores.manifest import KNOWN_LATER, OF_VALIDATION, SHARDS, VERSION, differences, is_store
from collapse.stores.shards import Part, Run, Shard, gaps, shards_in
from collapse.stores.store import Store, another_store


@dataclass(frozen=True)
class Request:
    """What to collect; two requests are equal if and only if their identities are.

    Attributes:
        identity: Everything that affects a stored number and is known without loading a model.
        names: The names of the model, its texts and its tokenizer; they are not part of the identity.
        load: Returns the samples, a :class:`collapse.inputs.source.Source`. Its arguments are the store that lacks only
            its validation, or None, and a progress callback.
        validates: Whether there is a validation text.
        split_may_be_absent: Whether the validation split is a default, which the data set may lack.
        any_value_of: Fields of the identity for which a published store may have any value.
        folder: Folder of the store; None for a store in memory.
        part, batch_size, deterministic, recollect, without: As in :func:`collapse.collect`.
    """

    identity: Mapping[str, Any]
    names: Mapping[str, str | None]
    load: Callable[[Store | None, Report | None], Any]
    validates: bool
    split_may_be_absent: bool = False
    any_value_of: frozenset[str] = frozenset()
    folder: Path | None = None
    part: tuple[int, int] | None = None
    batch_size: int | str = "auto"
    deterministic: bool = False
    recollect: bool = False
    without: Sequence[str] = ()

    def identity_differences(self, identity: Mapping[str, Any], *, trained: bool = False) -> list[str]:
        """List the fields in which a stored identity differs from the requested one.

        Validation fields are not compared if the store is only trained, because it may be validated on any text.
        """
        apart = KNOWN_LATER | self.any_value_of
        if trained or (identity.get("validation") is None and (self.split_may_be_absent or not self.validates)):
            apart |= OF_VALIDATION
        return differences(identity, self.identity, apart=apart)

    def lacks_validation(self, store: Store) -> bool:
        """Whether a store is only trained although the request asks for its validation."""
        # an earlier collection did not find the split
        absent = self.split_may_be_absent and store.manifest["corpus"].get("validation") is None
        return store.state == "trained" and self.validates and not absent

    def store_differences(self, store: Store, *, whole: bool = False) -> list[str]:
        """Describe how a store differs from the request, including its statistics.

        Args:
            store: The store.
            whole: Whether a missing validation is a difference.
        """
        held = store.manifest["statistics"]
        found = self.identity_differences(store.identity, trained=store.state == "trained")
        found += [
            f"statistics: it holds {name}, but --without {name} is given" for name in self.without if name in held
        ]
        return found + ([f"it is not complete ({store.state})"] if whole and self.lacks_validation(store) else [])

    def differences_in(self, folder: Path) -> list[str]:
        """Describe how the store or the shards in a folder differ from the request; [] if there are none.

        Raises:
            StoreError: A file was altered.
        """
        if is_store(folder):
            return self.store_differences(Store.load(folder).check())
        shards = shards_in(folder, "train")
        return self.identity_differences(shards[0].about["identity"]) if shards else []

    def own_shards(self, folder: Path) -> list[Shard]:
        """Return the training shards in a folder without a store; raise StoreError if they are of another request."""
        shards = shards_in(folder, "train")
        refuse_unfinished(folder, self.identity_differences(shards[0].about["identity"]) if shards else [])
        return shards

    def find_in(self, folder: Path) -> Store | Part | None:
        """Return the store or part in a folder if it holds everything requested; None if something is missing.

        Raises:
            StoreError: The folder holds something else, or a file was altered.
        """
        if is_store(folder):
            store = Store.load(folder).check()
            if differ := self.store_differences(store):
                raise another_store(folder, differ, "give the same options, or choose another --store")
            return None if self.lacks_validation(store) else store
        shards = self.own_shards(folder)
        if not self.part or not shards or gaps(shards, part_of(shards[0].slices, self.part)):
            return None
        return Part(folder, shards)


def cached_folder(identity: Mapping[str, Any]) -> Path:
    """Return the folder in the user's cache for the store of a request's identity."""
    return home() / "stores" / sha256_of([VERSION, identity])[:40]


def refuse_unfinished(folder: Path | None, differ: Sequence[str]) -> None:
    """Raise StoreError if the unfinished collection in a folder differs from the request."""
    if differ:
        raise StoreError(
            f"{folder} holds an unfinished collection that differs in {'; '.join(differ)}. Use the same "
            f"options to resume it, choose another --store, or delete {folder}/{SHARDS} to start again"
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
            f"--part {k}/{n}: the text has only {counted(slices, 'slice')}; use at most {counted(slices, 'part')}"
        )
    return (k - 1) * slices // n, k * slices // n
