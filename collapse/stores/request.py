"""A request describes what to collect, and compares it with what a folder already holds.

The identity of a request is built in text_request.py, classifier_source.py and features.py in inputs/; ``differences``
in manifest.py compares two identities.
"""

import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from collapse.core.paths import home
from collapse.core.progress import Report
from collapse.errors import StoreError
from collapse.stores.files import sha256_of
from collapse.stores.layers import layers_of
from collapse.stores.manifest import KNOWN_LATER, OF_VALIDATION, SHARDS, VERSION, differences, is_store
from collapse.stores.shards import Part, Shard, all_shards, gaps, remove_shards, repair_shards, shards_in
from collapse.stores.slice_ranges import part_of
from collapse.stores.store import Store, another_store
from collapse.stores.store_folder import RECOLLECTED, exclusively, locked_store_folder, replace_by_recollected

log = logging.getLogger("collapse")

CollectMissing = Callable[[Path | None], Store | Part]
"""Collects what a folder lacks; see :meth:`Request.find_or_collect`."""


@dataclass(frozen=True)
class Request:
    """What to collect; requests with equal identities describe the same collection.

    Attributes:
        identity: Everything that affects a stored number and is known without loading a model.
        shown_names: Names of the model, its texts and tokenizer, and "step", the training step; not in the identity.
        load: Returns the samples, a :class:`collapse.inputs.source.Source`. :func:`collapse.collect` calls it while the
            folder is locked, with two arguments: the store that lacks its validation or some layers, or None; and a
            progress callback, or None.
        validates: Whether there is a validation text.
        split_may_be_absent: Whether the validation split is a default, which the data set may lack.
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
    def is_collected(self) -> bool:
        """Whether the folder already holds a store."""
        return self.folder is not None and is_store(self.folder)

    def in_folder(self, folder: Path | None) -> "Request":
        """Return this request for a store in a folder; None selects the identity's folder in the user's cache."""
        return replace(self, folder=folder or home() / "stores" / sha256_of([VERSION, self.identity])[:40])

    def identity_differences(self, identity: Mapping[str, Any], *, trained: bool = False) -> list[str]:
        """List the fields in which a stored identity differs from the requested one.

        With ``trained``, validation fields are ignored, because any validation text may follow. Otherwise, they are
        ignored if none is stored and none is required.
        """
        ignored = KNOWN_LATER | self.open_fields
        if trained or (identity.get("validation") is None and (self.split_may_be_absent or not self.validates)):
            ignored |= OF_VALIDATION
        return differences(identity, self.identity, ignoring=ignored)

    def lacks_validation(self, store: Store) -> bool:
        """Whether a requested layer of a store is not validated although the request asks for its validation."""
        # an earlier collection did not find the split
        absent = self.split_may_be_absent and store.manifest["corpus"].get("validation") is None
        layers = layers_of(self.layers, store.depth())
        return bool(store.lacking("validation", layers)) and self.validates and not absent

    def lacking_layers(self, store: Store) -> list[str]:
        """Return the requested layers that a store does not hold."""
        return store.lacking("train", layers_of(self.layers, store.depth()))

    def store_differences(self, store: Store, *, whole: bool = False) -> list[str]:
        """Describe how a store's identity differs from the requested one; with ``whole``, also what the store lacks."""
        found = self.identity_differences(store.identity, trained=store.state == "trained")
        if whole and (layers := self.lacking_layers(store)):
            found.append(f"layers: it lacks {', '.join(layers)}")
        if whole and self.lacks_validation(store):
            found.append(f"it is not complete ({store.state})")
        return found

    def find_or_collect(self, collect_missing: CollectMissing) -> Store | Part:
        """Open the store or part in the folder; first collect what is missing.

        Args:
            collect_missing: Function that collects what a folder lacks. Its argument is the folder, which is locked; it
                is a subfolder for ``recollect``, and None to collect into memory.

        Raises:
            StoreError: The folder holds something else, or a file was altered.
            CollapseError: The folder cannot be written, or ``collect_missing`` raised it.
        """
        folder = self.folder
        if folder is None:
            return collect_missing(None).with_names(self.shown_names)
        # readers need no lock
        done: Store | Part | None = None if self.recollect else self._finished_store(folder)
        if done is None:
            done = self._find_or_collect_locked(folder, collect_missing)
        if isinstance(done, Store):
            _remove_folded(folder, done)
        return done.with_names(self.shown_names)

    def _find_or_collect_locked(self, folder: Path, collect_missing: CollectMissing) -> Store | Part:
        """Lock the folder, look again (another process may have finished meanwhile), and collect what is missing."""
        with locked_store_folder(folder, self.part):
            if self.recollect:
                return self._collect_again(folder, collect_missing)
            with exclusively(folder, self.part):
                repair_shards(folder, self.part)
                if is_store(folder):
                    _remove_folded(folder, Store.load(folder))
                done = self._finished_store(folder) or self._finished_part(folder)
            return done or collect_missing(folder)

    def missing_parts(self, n: int) -> dict[str, list[int]]:
        """Return which of n parts the folder lacks, by phase; nothing if the store is complete.

        While no slice of a phase is collected, all parts are missing, because the number of slices is not known.
        """
        assert self.folder is not None  # parts need one
        if self._finished_store(self.folder):
            return {}
        refuse_if_shards_differ(self.folder, self._differences_in(self.folder))
        store, missing = Store.load(self.folder) if is_store(self.folder) else None, {}
        if store is None or self.lacking_layers(store):
            missing["train"] = list(range(1, n + 1))
        if self.validates and (missing or store is None or self.lacks_validation(store)):
            missing["validation"] = list(range(1, n + 1))
        for phase in missing:
            if shards := shards_in(self.folder, phase):
                missing[phase] = [k for k in missing[phase] if gaps(shards, part_of(shards[0].slices, (k, n)))]
        return missing

    def _collect_again(self, folder: Path, collect_missing: CollectMissing) -> Store:
        """Collect into a subfolder of the locked folder; at the end, the new store replaces the old one."""
        if is_store(folder):
            there = Store.load(folder)
            differ = self.store_differences(there)
            if lost := [layer for layer in there.layers if layer not in layers_of(self.layers, there.depth())]:
                differ.append(f"layers: {', '.join(lost)} (stored), none (requested)")
            if differ:
                raise StoreError(
                    f"--recollect would overwrite another store: {folder} differs in {'; '.join(differ)}. "
                    f"Choose another --store, or delete {folder}"
                )
        else:
            refuse_if_shards_differ(folder, self._differences_in(folder))  # shards of another collection are kept
        new = folder / RECOLLECTED
        repair_shards(new)
        if differ := self._differences_in(new):
            discarding = "%s: discarding an unfinished collection of --recollect: %s. Collecting again from the start"
            log.warning(discarding, folder, "; ".join(differ))
            shutil.rmtree(new)
        if self._finished_store(new) is None:
            collect_missing(new)
        replace_by_recollected(folder)
        return Store.load(folder)

    def _finished_store(self, folder: Path) -> Store | None:
        """Return the store in a folder if it holds everything requested; None if something is missing."""
        if not is_store(folder):
            return None
        store = Store.load(folder).check()
        if differ := self.store_differences(store):
            raise another_store(folder, differ, "give the same model and options, or choose another --store")
        return None if self.lacking_layers(store) or self.lacks_validation(store) else store

    def _finished_part(self, folder: Path) -> Store | Part | None:
        """Return what a locked folder holds if the requested part is complete but its phase is not; otherwise None.

        This is the store if there is one (the part is of its validation or of new layers), otherwise the part.

        Raises:
            StoreError: The folder has shards collected with other options; this is checked even without ``--part``.
        """
        store = Store.load(folder) if is_store(folder) else None
        shards = all_shards(folder)
        refuse_if_shards_differ(folder, self._shard_differences(shards, store))
        if not self.part or not shards or not gaps(shards):  # without gaps, the whole text must still be folded
            return None
        if gaps(shards, part_of(shards[0].slices, self.part)):
            return None
        return store or Part(folder, shards)

    def _differences_in(self, folder: Path) -> list[str]:
        """Describe how the store in a folder, or else its training shards, differ from the request."""
        if is_store(folder):
            return self.store_differences(Store.load(folder).check())
        return self._shard_differences(shards_in(folder, "train"), None)

    def _shard_differences(self, shards: Sequence[Shard], store: Store | None) -> list[str]:
        """Describe how shards for the next pass of a store differ from the request, also in their layers."""
        if not shards:
            return []
        header, phase = shards[0].header, shards[0].phase
        layers = layers_of(self.layers, header["model"].get("n_layers"))
        if store is not None:
            layers = store.lacking(phase, store.layers_with(self.layers))
        stored, requested = ({"layers": ", ".join(each)} for each in (header["layers"], layers))
        return differences(stored, requested) + self.identity_differences(header["identity"])


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
