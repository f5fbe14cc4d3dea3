"""A request describes what to collect, and compares it with what a folder already holds.

Its identity is built in inputs/identity.py and inputs/features.py; ``differences`` in manifest.py compares two.
"""

import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collapse.core.paths import home
from collapse.core.progress import Report
from collapse.errors import StoreError
from collapse.stores.files import sha256_of
from collapse.stores.manifest import KNOWN_LATER, OF_VALIDATION, SHARDS, VERSION, differences, is_store
from collapse.stores.missing_slices import gaps, part_of
from collapse.stores.shards import Part, Shard, remove_shards, repair_shards, shards_in
from collapse.stores.store import Store, another_store
from collapse.stores.store_folder import RECOLLECTED, Alone, locked_store_folder, replace_by_recollected

log = logging.getLogger("collapse")


@dataclass(frozen=True)
class Request:
    """What to collect; requests with equal identities describe the same collection.

    Attributes:
        identity: Everything that affects a stored number and is known without loading a model.
        shown_names: Names of the model, its texts and tokenizer, and "step", the training step; not in the identity.
        load: Returns the samples, a :class:`collapse.inputs.source.Source`. :func:`collapse.collect` calls it while the
            folder is locked, with the store that lacks only its validation, or None, and a progress callback.
        validates: Whether there is a validation text.
        split_may_be_absent: Whether the validation split is a default, which the data set may lack.
        open_fields: Fields of the identity for which a published store may have any value.
        folder: Folder of the store; None for a store in memory.
        published: Finds a published store, which is used if the folder has none; None if only the folder counts.
        part, batch_size, deterministic, recollect, without: As in :func:`collapse.collect`.
    """

    identity: Mapping[str, Any]
    shown_names: Mapping[str, str | None]
    load: Callable[[Store | None, Report | None], Any]
    validates: bool
    split_may_be_absent: bool = False
    open_fields: frozenset[str] = frozenset()
    folder: Path | None = None
    published: Callable[[], Store | None] | None = None
    part: tuple[int, int] | None = None
    batch_size: int | str = "auto"
    deterministic: bool = False
    recollect: bool = False
    without: Sequence[str] = ()

    def identity_differences(self, identity: Mapping[str, Any], *, trained: bool = False) -> list[str]:
        """List the fields in which a stored identity differs from the requested one.

        Validation fields are not compared if the store is only trained, because it may be validated on any text.
        """
        apart = KNOWN_LATER | self.open_fields
        if trained or (identity.get("validation") is None and (self.split_may_be_absent or not self.validates)):
            apart |= OF_VALIDATION
        return differences(identity, self.identity, apart=apart)

    def lacks_validation(self, store: Store) -> bool:
        """Whether a store is only trained although the request asks for its validation."""
        # an earlier collection did not find the split
        absent = self.split_may_be_absent and store.manifest["corpus"].get("validation") is None
        return store.state == "trained" and self.validates and not absent

    def store_differences(self, store: Store, *, whole: bool = False) -> list[str]:
        """Describe how a store differs from the request, also in statistics, and if ``whole`` in lacking validation."""
        held = store.manifest["statistics"]
        found = self.identity_differences(store.identity, trained=store.state == "trained")
        found += [
            f"statistics: it holds {name}, but --without {name} is given" for name in self.without if name in held
        ]
        return found + ([f"it is not complete ({store.state})"] if whole and self.lacks_validation(store) else [])

    def find_or(self, collect_missing: Callable[[Path | None, Alone], Store | Part]) -> Store | Part:
        """Open the store or part in the folder, or a published store; first collect what is missing.

        Args:
            collect_missing: Collects what a folder lacks. It is called with None to collect into memory, with the
                locked folder, or, for ``recollect``, with a subfolder of it; and with the context in which to fold.

        Raises:
            StoreError: The folder holds something else, or a file was altered.
            CollapseError: The folder cannot be written; or as ``collect_missing`` raises it.
        """
        folder = self.folder
        if folder is None:
            return collect_missing(None, nullcontext).with_names(self.shown_names)
        done: Store | Part | None = None
        if is_store(folder):
            done = None if self.recollect else self._find_in(folder)  # readers need no lock
        elif self.published and (found := self.published()):
            return found
        if done is None:
            with locked_store_folder(folder, self.part) as alone:
                if self.recollect:
                    done = self._collect_again(folder, collect_missing)
                else:
                    with alone():
                        repair_shards(folder, self.part)
                        done = self._find_in(folder) or self._part_in(folder)
                    done = done or collect_missing(folder, alone)
        if done.state == "complete":
            remove_shards(folder)  # which a killed process may have left
        return done.with_names(self.shown_names)

    def missing_parts(self, n: int) -> dict[str, list[int]]:
        """Return which of n parts the folder lacks, by phase; nothing if the store is complete.

        While no slice of a phase is collected, all parts are missing, because the number of slices is not known.

        Raises:
            StoreError: As in :meth:`find_or`.
        """
        assert self.folder is not None  # parts need one
        if self._find_in(self.folder):
            return {}
        refuse_if_shards_differ(self.folder, self._differences_in(self.folder))
        missing = {}
        for phase in ["train"] * (not is_store(self.folder)) + ["validation"] * self.validates:
            shards, parts = shards_in(self.folder, phase), range(1, n + 1)
            missing[phase] = [k for k in parts if not shards or gaps(shards, part_of(shards[0].slices, (k, n)))]
        return missing

    def _collect_again(self, folder: Path, collect_missing: Callable[[Path | None, Alone], Store | Part]) -> Store:
        """Collect into a subfolder of the locked folder; at the end, the new store replaces the old one."""
        if is_store(folder):
            there = Store.load(folder)
            if differ := self.identity_differences(there.identity, trained=there.state == "trained"):
                raise StoreError(
                    f"--recollect would overwrite another store: {folder} differs in {'; '.join(differ)}. "
                    f"Choose another --store, or delete {folder}"
                )
        else:
            refuse_if_shards_differ(folder, self._differences_in(folder))  # they are not overwritten
        new = folder / RECOLLECTED
        repair_shards(new)
        try:
            differ = self._differences_in(new)
        except StoreError as error:  # it is damaged
            differ = [str(error)]
        if differ:
            discarding = "%s: discarding an unfinished collection of --recollect: %s. Collecting again from the start"
            log.warning(discarding, folder, "; ".join(differ))
            shutil.rmtree(new)
        if self._find_in(new) is None:
            collect_missing(new, nullcontext)
        replace_by_recollected(folder)
        return Store.load(folder)

    def _find_in(self, folder: Path) -> Store | None:
        """Return the store in a folder if it holds everything requested; None if something is missing."""
        if not is_store(folder):
            return None
        if differ := self._differences_in(folder):
            raise another_store(folder, differ, "give the same options, or choose another --store")
        store = Store.load(folder)
        return None if self.lacks_validation(store) else store

    def _part_in(self, folder: Path) -> Store | Part | None:
        """Return the part in a locked folder, or the trained store with a part of its validation, if it is finished."""
        trained = Store.load(folder) if is_store(folder) else None
        shards = shards_in(folder, "validation" if trained else "train")
        refuse_if_shards_differ(folder, self._shard_differences(shards))
        if not self.part or not shards or not gaps(shards):  # shards of the whole text must still be folded
            return None
        return None if gaps(shards, part_of(shards[0].slices, self.part)) else trained or Part(folder, shards)

    def _differences_in(self, folder: Path) -> list[str]:
        """Describe how the store in a folder, or else its training shards, differ from the request."""
        if is_store(folder):
            return self.store_differences(Store.load(folder).check())
        return self._shard_differences(shards_in(folder, "train"))

    def _shard_differences(self, shards: Sequence[Shard]) -> list[str]:
        return self.identity_differences(shards[0].header["identity"]) if shards else []


def cached_folder(identity: Mapping[str, Any]) -> Path:
    """Return the folder in the user's cache for the store of a request's identity."""
    return home() / "stores" / sha256_of([VERSION, identity])[:40]


def refuse_if_shards_differ(folder: Path | None, differ: Sequence[str]) -> None:
    """Raise StoreError if the unfinished collection in a folder differs from the request."""
    if differ:
        raise StoreError(
            f"{folder} holds an unfinished collection that differs in {'; '.join(differ)}. Use the same "
            f"options to resume it, choose another --store, or delete {folder}/{SHARDS} to start again"
        )
