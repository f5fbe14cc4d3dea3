"""A request describes what to collect, and compares it with what a folder already holds.

The identity of a request is built in inputs/identity.py; ``differences`` in manifest.py compares two identities.
"""

import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from collapse.core.paths import home
from collapse.core.progress import Report
from collapse.errors import StoreError
from collapse.stores.dealing_slices import slices_of_part
from collapse.stores.files import sha256_of
from collapse.stores.identity_differences import differences
from collapse.stores.layer_names import layers_of
from collapse.stores.manifest import KNOWN_LATER, OF_VALIDATION, SHARDS, VERSION, is_store
from collapse.stores.shards import Part, Shard, all_shards, gaps, remove_shards, set_damaged_shards_aside, shards_in
from collapse.stores.store import Store, another_store
from collapse.stores.store_folder import RECOLLECTED, locked_beside_parts, locked_store_folder, replace_by_recollected

log = logging.getLogger("collapse")


@dataclass(frozen=True)
class Claim:
    """What a request's folder holds.

    Attributes:
        folder: The folder to collect into, locked if something must be collected; None for a store in memory.
        done: The store or part, if nothing must be collected; otherwise None.
        store: The store to complete, if something must be collected; None if the folder holds no store.
    """

    folder: Path | None
    done: Store | Part | None = None
    store: Store | None = None


@dataclass(frozen=True)
class Request:
    """What to collect; requests with equal identities describe the same collection.

    Attributes:
        identity: Everything that affects a stored number and is known without loading a model.
        shown_names: Names, revision and steps, as in :attr:`collapse.Store.named`; not part of the identity.
        load: Returns the samples, a :class:`collapse.inputs.source.Source`. :func:`collapse.collect` calls ``load``
            while the folder is locked. The first argument is the store that lacks its validation or some layers, or
            None if there is no store yet. The second argument is a progress callback, or None.
        validates: Whether there is a validation text.
        split_may_be_absent: Whether to skip the validation if the data set lacks the validation split. True only if the
            user named no validation text or split, so that the split is a default.
        open_fields: Fields of the identity for which a published store may have any value.
        folder: Folder of the store; None for a store in memory.
        part, batch_size, deterministic, recollect, without, layers: As in :func:`collapse.collect`.
    """

    identity: Mapping[str, Any]
    shown_names: Mapping[str, str | None]
    load: Callable[[Store | None, Report | None], Any]
    validates: bool
    split_may_be_absent: bool = False
    open_fields: frozenset[str] = frozenset()
    folder: Path | None = None
    part: tuple[int, int] | None = None
    batch_size: int | str = "auto"
    deterministic: bool = False
    recollect: bool = False
    without: Sequence[str] = ()
    layers: str | None = None

    @property
    def folder_has_store(self) -> bool:
        """Whether the folder already holds a store."""
        return self.folder is not None and is_store(self.folder)

    def with_default_folder(self) -> "Request":
        """Return this request with a folder in the user's cache; a folder that the request already has is kept."""
        return replace(self, folder=self.folder or home() / "stores" / sha256_of([VERSION, self.identity])[:40])

    def identity_differences(self, identity: Mapping[str, Any], *, not_validated: bool = False) -> list[str]:
        """List the fields in which a stored identity differs from the requested one.

        Args:
            identity: The stored identity.
            not_validated: Whether the store has no validation yet. Fields of the validation text are then ignored,
                because the store can still be validated on any text. If False, these fields are ignored only if the
                store has no validation text and the request does not require a validation text.
        """
        ignored = KNOWN_LATER | self.open_fields
        if not_validated or (identity.get("validation") is None and (self.split_may_be_absent or not self.validates)):
            ignored |= OF_VALIDATION
        return differences(identity, self.identity, ignoring=ignored)

    def lacks_validation(self, store: Store) -> bool:
        """Whether the request asks for a validation, and a requested layer of the store is not validated yet."""
        # an earlier collection did not find the split
        absent = self.split_may_be_absent and store.manifest["corpus"].get("validation") is None
        layers = layers_of(self.layers, store.n_layers)
        return bool(store.lacking("validation", layers)) and self.validates and not absent

    def lacking_layers(self, store: Store) -> list[str]:
        """Return the requested layers that a store does not hold."""
        return store.lacking("train", layers_of(self.layers, store.n_layers))

    def store_differences(self, store: Store, *, whole: bool = False) -> list[str]:
        """Describe how a store's identity differs from the requested one; with ``whole``, also what the store lacks."""
        found = self.identity_differences(store.identity, not_validated=store.state == "trained")
        if whole and (layers := self.lacking_layers(store)):
            found.append(f"layers: the store lacks {', '.join(layers)}")
        if whole and self.lacks_validation(store):
            found.append("validation: not complete")
        return found

    @contextmanager
    def claimed(self) -> Iterator["Claim"]:
        """Yield a claim: the finished store or part if nothing must be collected, otherwise the locked folder.

        With ``recollect``, the claimed folder is a subfolder. At the end of the ``with`` block, the store in the
        subfolder replaces the store in the folder.

        Raises:
            StoreError: The folder holds another store or other files, or a file was altered.
            CollapseError: The folder cannot be written.
        """
        folder = self.folder
        if folder is None:
            yield Claim(None)
            return
        if not self.recollect and (store := self._complete_store(folder)):  # readers need no lock
            yield Claim(folder, done=store)
            return
        done: Store | Part | None
        with locked_store_folder(folder, self.part):
            if self.recollect:
                new = self._folder_to_recollect(folder)
                yield Claim(new, done=self._complete_store(new), store=_store_in(new))
                replace_by_recollected(folder)
                return
            with locked_beside_parts(folder, self.part):  # look again: another process may have finished meanwhile
                set_damaged_shards_aside(folder, self.part)
                if (store := _store_in(folder)) is not None:
                    _remove_folded(folder, store)
                done = self._complete_store(folder)
                if done is None:
                    # the shards are of one phase: those of the training are removed before validation begins
                    shards = all_shards(folder)
                    refuse_if_shards_differ(folder, self._shard_differences(shards, store))
                    done = self._part_if_done(folder, store, shards)
            yield Claim(folder, done=done, store=store)

    def result(self, done: Store | Part) -> Store | Part:
        """Return the finished store or part ``done``, with the names in this request.

        First, remove shards whose content the store already holds. :meth:`claimed` does not remove them if it finds a
        complete store before it locks the folder.
        """
        if self.folder is not None and isinstance(done, Store):
            done = Store.load(self.folder) if self.recollect else done
            _remove_folded(self.folder, done)
        return done.with_names(self.shown_names)

    def missing_parts(self, n: int) -> dict[str, list[int]]:
        """Return which of n parts the folder lacks, by phase; an empty dictionary if the store is complete.

        While no slice of a phase is collected, all parts are missing, because the number of slices is not known.

        Raises:
            StoreError: The folder holds another store or other shards, or a file was altered.
        """
        assert self.folder is not None  # parts need one
        if self._complete_store(self.folder):
            return {}
        refuse_if_shards_differ(self.folder, self._differences_in(self.folder))
        store, missing = _store_in(self.folder), {}
        if store is None or self.lacking_layers(store):
            missing["train"] = list(range(1, n + 1))
        if self.validates and (missing or store is None or self.lacks_validation(store)):
            missing["validation"] = list(range(1, n + 1))
        for phase in missing:
            if shards := shards_in(self.folder, phase):
                missing[phase] = [
                    k for k in missing[phase] if gaps(shards, slices_of_part(shards[0].slices_in_phase, (k, n)))
                ]
        return missing

    def _folder_to_recollect(self, folder: Path) -> Path:
        """Return the subfolder of a locked folder into which the new store is collected.

        The subfolder may hold an unfinished collection, which is then resumed.

        Raises:
            StoreError: The folder holds another store, or an unfinished collection of another store.
        """
        if is_store(folder):
            there = Store.load(folder)
            differ = self.store_differences(there)
            if lost := [layer for layer in there.layers if layer not in layers_of(self.layers, there.n_layers)]:
                differ.append(f"layers: {', '.join(lost)} (stored), none (requested)")
            if differ:
                raise StoreError(
                    f"--recollect would overwrite another store: {folder} differs in {'; '.join(differ)}. "
                    f"Choose another --store, or delete {folder}"
                )
        else:
            refuse_if_shards_differ(folder, self._differences_in(folder))  # shards of another collection are kept
        new = folder / RECOLLECTED
        set_damaged_shards_aside(new)
        if differ := self._differences_in(new):
            discarding = "%s: discarding an unfinished --recollect that differs in %s. Collecting again from the start"
            log.warning(discarding, folder, "; ".join(differ))
            shutil.rmtree(new)
        return new

    def _complete_store(self, folder: Path) -> Store | None:
        """Return the store in a folder if it holds everything requested; None if something is missing.

        Raises:
            StoreError: The folder holds another store, or a file was altered.
        """
        if not is_store(folder):
            return None
        store = Store.load(folder).check()
        if differ := self.store_differences(store):
            raise another_store(
                folder,
                differ,
                "give the same model and options (a revision as NAME@REVISION), or choose another --store",
            )
        return None if self.lacking_layers(store) or self.lacks_validation(store) else store

    def _part_if_done(self, folder: Path, store: Store | None, shards: Sequence[Shard]) -> Store | Part | None:
        """Return the store or part in a locked folder if the requested part is complete but the whole phase is not.

        Otherwise, return None. If the folder holds a store, return this store: the shards are then of its validation or
        of new layers. If it holds no store, return its shards as a :class:`Part`.
        """
        if not self.part or not shards or not gaps(shards):  # without gaps, the whole text must still be folded
            return None
        missing = gaps(shards, slices_of_part(shards[0].slices_in_phase, self.part))
        return None if missing else store or Part(folder, shards)

    def _differences_in(self, folder: Path) -> list[str]:
        """Describe how the store in a folder or, without a store, the training shards differ from the request."""
        if is_store(folder):
            return self.store_differences(Store.load(folder).check())
        return self._shard_differences(shards_in(folder, "train"), None)

    def _shard_differences(self, shards: Sequence[Shard], store: Store | None) -> list[str]:
        """Describe how the shards of an unfinished pass differ from the request, in identity or layers.

        ``store`` is the store that the pass extends, or None if there is no store yet.
        """
        if not shards:
            return []
        header, phase = shards[0].header, shards[0].phase
        layers = layers_of(self.layers, header["model"].get("n_layers"))
        if store is not None:
            layers = store.lacking(phase, store.layers_with(self.layers))  # a pass also completes the store's layers
        stored, requested = ({"layers": ", ".join(each)} for each in (header["layers"], layers))
        return differences(stored, requested) + self.identity_differences(header["identity"])


def _store_in(folder: Path) -> Store | None:
    return Store.load(folder) if is_store(folder) else None


def _remove_folded(folder: Path, store: Store) -> None:
    """Remove shards whose content the store already holds; a killed process may have left them."""
    with suppress(StoreError):  # a damaged shard stays
        shards = all_shards(folder)
        # without shards, another process may be writing its first one
        if shards and not any(store.lacking(shard.phase, shard.header["layers"]) for shard in shards):
            remove_shards(folder)


def refuse_if_shards_differ(folder: Path | None, differ: Sequence[str]) -> None:
    """Raise StoreError if the unfinished collection in a folder differs from the request."""
    if differ:
        raise StoreError(
            f"{folder} holds an unfinished collection that differs in {'; '.join(differ)}. Use the same "
            f"options to resume it, choose another --store, or delete {folder}/{SHARDS} to start again"
        )
