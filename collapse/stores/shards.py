"""Shards: the mergeable state of some slices of one phase, each in one safetensors file.

A checkpoint of a running collection is a shard, and so is a part (``--part k/n``); a store is the fold of its shards.
The file ``shards/<phase>-<first slice>.safetensors`` is replaced atomically while its collection goes on. Its header
says what it is of and has the sha256 of its content, all in one metadata field: several would make the bytes vary.
"""

import hashlib
import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapse.errors import StoreError
from collapse.stores.files import canonical, sha256_of
from collapse.stores.manifest import SHARDS, is_store, spans
from collapse.stores.naming import shown_model
from collapse.stores.tensor_files import bounded, tensor_bytes
from collapse.stores.writing import write_atomic

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger("collapse")

_FIELD = "collapse"
Run = tuple[int, int]


@dataclass(frozen=True)
class Shard:
    """The state of the slices [start, stop) of a phase.

    Attributes:
        phase: "train" or "validation".
        start, stop: Its slices.
        about: What it is of: identity, model, corpus and coverage as in a manifest; versions and makers of its
            statistics; batch sizes; provenance; of a validation, the hash of the training files (``trained``).
        path: Its file, or None for a shard in memory.
        held: Its tensors, if it is in memory.
    """

    phase: str
    start: int
    stop: int
    about: Mapping[str, Any]
    path: Path | None = None
    held: "Mapping[str, Tensor] | None" = None

    @property
    def slices(self) -> int:
        """Number of slices of the whole phase."""
        return int(self.about["coverage"]["slices"])

    def tensors(self) -> "dict[str, Tensor]":
        """Return its tensors; those of a file are checked against its hash.

        Raises:
            StoreError: The file was altered, or is damaged.
        """
        from safetensors.torch import load

        if self.held is not None:
            return dict(self.held)
        assert self.path is not None  # a shard is in memory or in a file
        data = _read(self.path)
        header, field, content = _split(self.path, data)
        if field["about"] != self._written or field["sha256"] != _digest(header, field["about"], content):
            raise StoreError(f"{self.path} was altered, or is damaged: collect these slices again")
        return load(data)

    @property
    def _written(self) -> dict[str, Any]:
        """What its header says."""
        return {**self.about, "phase": self.phase, "start": self.start, "stop": self.stop}

    def write(self, folder: Path) -> "Shard":
        """Write it into the shards of a folder, replacing the one that it extends; return it as that file's shard."""
        assert self.held is not None  # what is written was just computed
        path = folder / SHARDS / f"{self.phase}-{self.start + 1}.safetensors"
        write_atomic(path, _with_header(tensor_bytes(self.held), self._written))
        return Shard(self.phase, self.start, self.stop, self.about, path, self.held)


class Part:
    """A folder of training shards that do not cover the text: a part of a collection, or an unfinished one.

    Attributes:
        path: The folder.
        shards: Its shards of the training phase, in the order of their slices; at least one.
        named: Names of the model and the texts in the user's request, as of a store.
    """

    state = "part"

    def __init__(self, path: Path, shards: Sequence[Shard]) -> None:
        self.path, self.shards = path, list(shards)
        self.named: dict[str, str] = {}

    @classmethod
    def load(cls, path: str | Path) -> "Part":
        """Open the part in a folder.

        Raises:
            StoreError: The folder holds no shard, or a store.
        """
        path = Path(path)
        shards = [] if is_store(path) else shards_in(path, "train")
        if not shards:
            raise StoreError(f"{path} holds no part of a collection")
        return cls(path, shards)

    def called(self, names: Mapping[str, str | None]) -> "Part":
        """Record the names of :attr:`named`."""
        self.named = {kind: name for kind, name in names.items() if name is not None}
        return self

    @property
    def about(self) -> Mapping[str, Any]:
        """What the part is of: identity, model, corpus and coverage as in a manifest."""
        return self.shards[0].about

    @property
    def identity(self) -> dict[str, Any]:
        """What is collected, and from what."""
        return dict(self.about["identity"])

    @property
    def model(self) -> str:
        """The model's name."""
        model = self.about["model"]
        return shown_model(str(model["name"]), self.identity.get("model_args") or {}, model.get("revision"))

    @property
    def corpus(self) -> str:
        """The training corpus's name."""
        return str(self.about["corpus"]["name"])

    @property
    def digest(self) -> str:
        """A hash of what is collected, and from what: equal for parts of one collection."""
        return sha256_of(self.identity)

    @property
    def done(self) -> list[list[int]]:
        """The slices that it holds, as half-open ranges."""
        return joined([(shard.start, shard.stop) for shard in self.shards])

    def covered(self) -> str:
        """Describe which training slices it holds."""
        return f"training slices {spans(self.done)} of {self.shards[0].slices}"

    def __str__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"Part({self}, {self.covered()})"


def shards_in(folder: Path, phase: str) -> list[Shard]:
    """Return the shards of a phase in a folder, in the order of their slices; their tensors are not read.

    Raises:
        StoreError: A file is no shard, or its header is damaged.
    """
    found = [_opened(path) for path in (folder / SHARDS).glob(f"{phase}-*.safetensors")]
    return sorted(found, key=lambda shard: shard.start)


def intact_shards(folder: Path, phase: str) -> list[Shard]:
    """As :func:`shards_in`, of a folder that is being collected: a damaged shard is set aside, with a warning."""
    found = []
    for path in (folder / SHARDS).glob(f"{phase}-*.safetensors"):
        try:
            shard = _opened(path)
            shard.tensors()
        except StoreError as error:
            aside = path.with_suffix(".damaged")
            log.warning("%s (kept as %s)", error, aside.name)
            path.replace(aside)
        else:
            found.append(shard)
    return sorted(found, key=lambda shard: shard.start)


def remove_shards(folder: Path) -> None:
    """Remove the shards of a folder, whose content the store now holds."""
    shutil.rmtree(folder / SHARDS, ignore_errors=True)


def gaps(shards: Sequence[Shard], window: Run) -> list[Run]:
    """Return the slices of a window that no shard holds, as half-open ranges."""
    start, stop = window
    missing = []
    for shard in shards:
        if shard.start >= stop:
            break
        if shard.start > start:
            missing.append((start, shard.start))
        start = max(start, shard.stop)
    return [*missing, (start, stop)] if start < stop else missing


def joined(runs: Sequence[Run]) -> list[list[int]]:
    """Sort runs of slices and join adjacent ones.

    >>> joined([(4, 6), (0, 2), (2, 4), (8, 9)])
    [[0, 6], [8, 9]]
    """
    done: list[list[int]] = []
    for start, stop in sorted(runs):
        if done and done[-1][1] == start:
            done[-1][1] = stop
        else:
            done.append([start, stop])
    return done


def _with_header(data: bytes, about: Mapping[str, Any]) -> bytes:
    """Return a safetensors file with a metadata field that describes it, and has the sha256 of everything."""
    length = int.from_bytes(data[:8], "little")
    header, content = json.loads(data[8 : 8 + length]), memoryview(data)[8 + length :]
    field = canonical({"about": about, "sha256": _digest(header, about, content)})
    header = canonical({"__metadata__": {_FIELD: field.decode()}, **header})
    header += b" " * (-len(header) % 8)  # tensors are aligned to 8 bytes
    return b"".join([len(header).to_bytes(8, "little"), header, content])


def _opened(path: Path) -> Shard:
    with path.open("rb") as file:
        begin = file.read(8)
        head = begin + file.read(bounded(int.from_bytes(begin, "little"), path.stat().st_size))
    _, field, _ = _split(path, head)
    about = dict(field["about"])
    phase, start, stop = (about.pop(name) for name in ("phase", "start", "stop"))
    return Shard(phase, start, stop, about, path)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error}") from error


def _split(path: Path, data: bytes) -> tuple[dict[str, Any], dict[str, Any], memoryview]:
    """Return the header of a shard's file, what the header says of the shard, and its content."""
    try:
        length = bounded(int.from_bytes(data[:8], "little"), len(data))
        header = json.loads(data[8 : 8 + length])
        field = json.loads(header.pop("__metadata__")[_FIELD])
        _, _ = field["about"]["start"], field["sha256"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{path} is damaged, or no shard of a collection") from error
    return header, field, memoryview(data)[8 + length :]


def _digest(header: Mapping[str, Any], about: Mapping[str, Any], content: memoryview) -> str:
    digest = hashlib.sha256(canonical([header, about]))
    digest.update(content)
    return digest.hexdigest()
