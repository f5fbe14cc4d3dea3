"""A request, which is what is to be collected, and what a folder already holds of it."""

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
    """What is to be collected; two requests are the same exactly if their identities are.

    Attributes:
        identity: Everything that affects a stored number and is known without loading a model.
        names: The names of the model, its texts and its tokenizer, none of which is part of the identity.
        load: Returns the samples, a :class:`collapse.inputs.source.Source`. It is called with the store that lacks only
            its validation, or None, and with a progress callback.
        validates: Whether there is a validation text.
        split_may_be_absent: Whether the validation split was not named, so that its data set may lack it.
        any_value_of: Fields of the identity of which a published store may have any value.
        folder: Folder of the store; None for one in memory.
        part, batch_size, deterministic, recollect, without: As of :func:`collapse.collect`.
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
        """Whether a store is only trained, and the request asks for its validation."""
        # the split was looked for and is absent
        absent = self.split_may_be_absent and store.manifest["corpus"].get("validation") is None
        return store.state == "trained" and self.validates and not absent

    def store_differences(self, store: Store, *, whole: bool = False) -> list[str]:
        """Describe how a store differs, also in its statistics.

        Args:
            store: The store.
            whole: It also differs if it lacks the validation.
        """
        held = store.manifest["statistics"]
        found = self.identity_differences(store.identity, trained=store.state == "trained")
        found += [
            f"statistics: it holds {name}, and --without {name} is given" for name in self.without if name in held
        ]
        return found + ([f"it is not complete ({store.state})"] if whole and self.lacks_validation(store) else [])

    def differences_in(self, folder: Path) -> list[str]:
        """Describe how the store or the shards in a folder differ; [] if there is neither.

        Raises:
            StoreError: A file was altered.
        """
        if is_store(folder):
            return self.store_differences(Store.load(folder).check())
        shards = shards_in(folder, "train")
        return self.identity_differences(shards[0].about["identity"]) if shards else []

    def own_shards(self, folder: Path) -> list[Shard]:
        """Return the training shards in a folder without a store; raises StoreError for those of another collection."""
        shards = shards_in(folder, "train")
        refuse_unfinished(folder, self.identity_differences(shards[0].about["identity"]) if shards else [])
        return shards

    def find_in(self, folder: Path) -> Store | Part | None:
        """Return the store or part in a folder if it holds what is requested; None if it lacks something.

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
    """Return the folder in the user's cache of the store that a request asks for."""
    return home() / "stores" / sha256_of([VERSION, identity])[:40]


def refuse_unfinished(folder: Path | None, differ: Sequence[str]) -> None:
    """Raise StoreError if the unfinished collection in a folder differs."""
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
            f"--part {k}/{n}: the text has only {counted(slices, 'slice')}, so at most {counted(slices, 'part')}"
        )
    return (k - 1) * slices // n, k * slices // n
