"""A request, which is what is to be collected, and what a folder already holds of it."""

import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collapse.core.progress import Report
from collapse.errors import StoreError, UsageError, counted
from collapse.stores.files import home, sha256_of
from collapse.stores.manifest import KNOWN_LATER, OF_VALIDATION, SHARDS, VERSION, differences, is_store
from collapse.stores.shards import Part, Run, gaps, remove_shards, shards_in
from collapse.stores.store import Store
from collapse.stores.store_folder import RECOLLECTED, replace_by_recollected, writing

log = logging.getLogger("collapse")


@dataclass(frozen=True)
class Request:
    """What is to be collected; two requests are the same exactly if their identities are.

    Attributes:
        identity: Everything that affects a stored number and is known without loading a model.
        names: The names of the model, its texts and its tokenizer, none of which is part of the identity.
        load: Returns the samples, a :class:`collapse.inputs.source.Source`. It is called with the store that lacks only
            its validation, or None, and with a progress callback.
        validates: Whether there is a validation text.
        optional: Whether its split may be absent.
        open: Fields of the identity that a published store may have otherwise.
        part, batch_size, deterministic, recollect, without: As of :func:`collapse.collect`.
    """

    identity: Mapping[str, Any]
    names: Mapping[str, str | None]
    load: Callable[[Store | None, Report | None], Any]
    validates: bool
    optional: bool = False
    open: frozenset[str] = frozenset()
    part: tuple[int, int] | None = None
    batch_size: int | str = "auto"
    deterministic: bool = False
    recollect: bool = False
    without: Sequence[str] = ()

    @property
    def cached(self) -> Path | None:
        """The store's folder in the user's cache; None for a features file, whose store stays in memory."""
        return None if "features" in self.identity else home() / "stores" / sha256_of([VERSION, self.identity])[:40]

    @property
    def is_cached(self) -> bool:
        """Whether the user's cache has the store."""
        return self.cached is not None and is_store(self.cached)

    def differences(self, store: Store, *, whole: bool = False) -> list[str]:
        """Describe how a store differs; one that is only trained may be validated on any text.

        Args:
            store: The store.
            whole: It also differs if it lacks the validation.
        """
        held = store.manifest["statistics"]
        found = self._differences(store.identity, trained=store.state == "trained")
        found += [
            f"statistics: it holds {name}, and --without {name} is given" for name in self.without if name in held
        ]
        return found + ([f"it is not complete ({store.state})"] if whole and self._misses(store) else [])

    def _misses(self, store: Store) -> bool:
        """Whether a store is only trained, and the request asks for its validation."""
        return store.state == "trained" and self._validates(store.manifest["corpus"].get("validation"))

    def held(self, folder: Path) -> Store | Part | None:
        """Return the store or part in a folder if it holds what is requested; None if it lacks something.

        Raises:
            StoreError: The folder holds something else, or a file was altered.
        """
        if is_store(folder):
            store = Store.load(folder).check()
            if differ := self.differences(store):
                raise StoreError(
                    f"{folder} holds another store, which differs in {'; '.join(differ)}: "
                    "give the same options, or choose another --store"
                )
            return None if self._misses(store) else store
        shards = shards_in(folder, "train", repair=True)
        if shards:
            refuse_unfinished(folder, self._differences(shards[0].about["identity"]))
        if not self.part or not shards or gaps(shards, part_of(shards[0].slices, self.part)):
            return None
        return Part(folder, shards)

    @contextmanager
    def lacking(self, folder: Path | None) -> Iterator["Lacking"]:
        """Lock a folder, unless it lacks nothing, while the caller collects what it lacks.

        With ``recollect`` that is collected into a subfolder, whose store replaces the one that is there at the end.

        Raises:
            StoreError: The folder holds something else.
            CollapseError: The folder cannot be written.
        """
        if folder is None:
            yield Lacking()
            return
        found = Lacking(folder, None if self.recollect else self.held(folder))
        if found.done is not None:
            yield found
        else:
            if self.recollect:
                self._check_replaced(folder)
            with writing(folder):
                found = self._unfinished(folder) if self.recollect else Lacking(folder, self.held(folder))
                yield found
                if self.recollect:
                    replace_by_recollected(folder)
                    found.done = Store.load(folder)
        if found.done is not None and found.done.state == "complete":
            remove_shards(folder)  # which a killed process may have left

    def _check_replaced(self, folder: Path) -> None:
        """Raise StoreError if ``recollect`` would replace something else."""
        if not is_store(folder):
            self.held(folder)
            return
        there = Store.load(folder)
        if differ := self._differences(there.identity, trained=there.state == "trained"):
            raise StoreError(
                f"--recollect would overwrite another store: {folder} differs in {'; '.join(differ)}. "
                "Choose another --store, or delete it"
            )

    def _unfinished(self, folder: Path) -> "Lacking":
        """Return what an interrupted ``recollect`` left; another one is discarded."""
        new = folder / RECOLLECTED
        try:
            return Lacking(new, self.held(new))
        except StoreError as error:
            log.warning("%s: an unfinished --recollect is discarded: %s", folder, error)
            shutil.rmtree(new)
            return Lacking(new)

    def _validates(self, validation: str | None) -> bool:
        """Whether a validation is asked for that a store with this validation text, or None, may lack."""
        return self.validates and not (self.optional and validation is None)

    def _differences(self, identity: Mapping[str, Any], *, trained: bool = False) -> list[str]:
        apart = KNOWN_LATER | self.open
        if trained or (identity.get("validation") is None and not self._validates(None)):
            apart |= OF_VALIDATION
        return differences(identity, self.identity, apart=apart)


@dataclass
class Lacking:
    """What a folder holds of a request, and where the caller collects what it lacks.

    Attributes:
        target: The folder to collect into; None for a store in memory.
        done: The store or part if it lacks nothing, or as soon as the caller has collected it.
    """

    target: Path | None = None
    done: Store | Part | None = None


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
