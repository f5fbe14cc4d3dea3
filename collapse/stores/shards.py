"""Read and write shards: a shard is a safetensors file with the mergeable state of some slices of a phase.

A phase is the training or the validation pass. (Not the shards of ``--shards``, into which packing.py splits a text.)

A running collection saves its state as a shard. A part (``--part k/n``) is a folder of shards, and a store is made by
folding shards. The file is ``shards/<phase>-<first slice>.safetensors``, where slices count from 1; it is replaced
atomically as the collection proceeds. The file's header has a description of the shard, and a sha256 of the
description and the tensors. The description and the sha256 are in one metadata field, because the order of several
fields would vary.
"""

import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapse.errors import StoreError
from collapse.stores.dealing_slices import Range, adjacent, slices_of_part, spans
from collapse.stores.files import canonical, sha256_of
from collapse.stores.manifest import SHARDS, is_store
from collapse.stores.naming import Named
from collapse.stores.tensor_files import hash_of, tensor_bytes
from collapse.stores.writing import write_atomic

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger("collapse")


@dataclass(frozen=True)
class Shard:
    """The state of the slices [start, stop) of a phase; a phase is the training or the validation pass.

    Attributes:
        phase: "train" or "validation".
        start, stop: Index of the first slice, and index after the last slice, from 0.
        header: Description: identity, model, corpus and coverage as in a manifest; the layers; versions of the plugin
            statistics, and the plugins that fill them; the ``seconds`` of the last run; provenance; for a validation,
            the hash of the training files (``trained``).
        path: The file, or None if the shard is only in memory.
        held: The tensors, or None if they are only in the file.
    """

    phase: str
    start: int
    stop: int
    header: Mapping[str, Any]
    path: Path | None = None
    held: "Mapping[str, Tensor] | None" = None

    def __getstate__(self) -> dict[str, Any]:  # ranks send shards without tensors that are in the file
        return {**vars(self), "held": None if self.path else self.held}

    @property
    def slices_in_phase(self) -> int:
        """Number of slices of the whole phase."""
        return int(self.header["coverage"]["slices"])

    @property
    def folder(self) -> Path | None:
        """The folder of the shard's store or part, or None for a shard in memory."""
        return self.path and self.path.parent.parent

    @property
    def _stored(self) -> dict[str, Any]:
        return {**self.header, "phase": self.phase, "start": self.start, "stop": self.stop}

    def tensors(self) -> "dict[str, Tensor]":
        """Return the tensors; if they are only in the file, read them and check them against the sha256 in the file.

        Raises:
            StoreError: The file was altered, or is damaged.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load

        if self.held is not None:
            return dict(self.held)
        assert self.path is not None  # a shard is in memory or in a file
        try:
            header, digest = _header_of(self.path)
            tensors = load(self.path.read_bytes())
            intact = header == self._stored and digest == hash_of(header, tensors)
        except (SafetensorError, ValueError, OSError) as error:
            raise StoreError(
                f"{self.path} is damaged or is not a shard: run again the command that collected it"
            ) from error
        if not intact:
            raise StoreError(f"{self.path} was altered or is damaged: run again the command that collected it")
        return tensors

    def write(self, folder: Path) -> "Shard":
        """Write the shard into a folder, and return a copy that has a ``path``.

        A file of the same phase and the same first slice is replaced.
        """
        assert self.held is not None  # only shards in memory are written
        path = folder / SHARDS / f"{self.phase}-{self.start + 1}.safetensors"
        field = canonical({"about": self._stored, "sha256": hash_of(self._stored, self.held)})
        write_atomic(path, tensor_bytes(self.held, field.decode()))
        return Shard(self.phase, self.start, self.stop, self.header, path, self.held)


class Part(Named):
    """Training shards in a folder that has no store: a part of a collection, or an unfinished collection.

    Attributes:
        path: The folder.
        shards: The training shards in the order of their slices; at least one.
    """

    state = "part"

    def __init__(self, path: Path, shards: Sequence[Shard]) -> None:
        self.path, self.shards, self.about = path, list(shards), shards[0].header
        self.named: dict[str, str] = {}

    @classmethod
    def load(cls, path: str | Path) -> "Part":
        """Open the part in a folder.

        Raises:
            StoreError: The folder holds no training shard or holds a store, or a shard is damaged.
        """
        path = Path(path)
        shards = [] if is_store(path) else shards_in(path, "train")
        if not shards:
            raise StoreError(f"{path} holds no part of a collection: give a folder collected with --part k/n")
        return cls(path, shards)

    @property
    def digest(self) -> str:
        """A hash of the identity; equal for all parts of one collection."""
        return sha256_of(self.identity)

    def covered(self) -> str:
        """Describe which training slices the part holds."""
        return f"training slices {spans(ranges_of(self.shards))} of {self.shards[0].slices_in_phase}"

    def __str__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"Part({self}, {self.covered()})"


def fields_to_compare(header: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a shard's header that must be equal for all shards of a pass.

    The keys are the names of the fields in error messages.
    """
    layers = ", ".join(header["layers"])
    return {**header["identity"], "layers": layers, "slices": header["coverage"], "training": header.get("trained")}


def gaps(shards: Sequence[Shard], window: Range | None = None) -> list[Range]:
    """Return the slices in ``window`` that no shard holds, as half-open ranges.

    The shards are in the order of their slices. If ``window`` is None, it is the whole phase, and ``shards`` must not
    be empty.
    """
    start, stop = window or (0, shards[0].slices_in_phase)
    missing = []
    for shard in shards:
        if shard.start >= stop:
            break
        if shard.start > start:
            missing.append((start, shard.start))
        start = max(start, shard.stop)
    return [*missing, (start, stop)] if start < stop else missing


def ranges_of(shards: Sequence[Shard]) -> list[Range]:
    """Return the slices that ordered shards hold, as half-open ranges; adjacent ranges are joined."""
    return adjacent((shard.start, shard.stop) for shard in shards)


def shards_in(folder: Path, phase: str) -> list[Shard]:
    """Return the shards of a phase in a folder, in the order of their slices.

    Raises:
        StoreError: A file is not a shard, or its header is damaged.
    """
    found = list[Shard]()
    for path in (folder / SHARDS).glob(f"{phase}-*.safetensors"):
        with suppress(FileNotFoundError):  # another process has folded it since
            found.append(_opened(path))
    return sorted(found, key=lambda shard: shard.start)


def set_damaged_shards_aside(folder: Path, part: tuple[int, int] | None = None) -> None:
    """Check the shards in a collection's folder; log a warning for each damaged one, and rename it to ``*.damaged``.

    With ``part``, only the headers of the shards of other parts are checked, because other processes may be writing
    these shards.
    """
    for path in (folder / SHARDS).glob("*.safetensors"):
        try:
            shard = _opened(path)
            if shard.start in range(*slices_of_part(shard.slices_in_phase, part)):
                shard.tensors()
        except StoreError as error:
            aside = path.with_suffix(".damaged")
            log.warning("%s; the damaged file is kept as %s", error, aside.name)
            path.replace(aside)


def all_shards(folder: Path) -> list[Shard]:
    """Return the shards of both phases in a folder; raises the exceptions of :func:`shards_in`."""
    return [*shards_in(folder, "train"), *shards_in(folder, "validation")]


def remove_shards(folder: Path) -> None:
    """Remove the subfolder of the shards; the store must already hold their content."""
    shutil.rmtree(folder / SHARDS, ignore_errors=True)


def _opened(path: Path) -> Shard:
    try:
        header, _ = _header_of(path)
        phase, start, stop = (header.pop(name) for name in ("phase", "start", "stop"))
        return Shard(phase, start, stop, header, path)
    except FileNotFoundError:
        raise
    except (ValueError, KeyError, OSError) as error:
        raise StoreError(f"{path} is damaged or is not a shard: run again the command that collected it") from error


def _header_of(path: Path) -> tuple[dict[str, Any], str]:
    """Return the description and the sha256 that the header of a shard's file records."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            field = json.loads(file.metadata()["collapse"])
        return dict(field["about"]), str(field["sha256"])
    except (SafetensorError, KeyError, TypeError) as error:
        raise ValueError("the file has no shard header") from error
