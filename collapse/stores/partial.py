"""The state of an unfinished collection, from which a killed run resumes.

It is written after some slices, in three steps: write ``partial/<phase>-<slices>.safetensors``, replace
``partial/state.json`` so that it names this file, remove the previous file. Whenever the process dies, state.json names
a complete file. Only files named after slices of this part are ever removed.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_origin

from collapse.errors import StoreError
from collapse.reading import read_json
from collapse.stores.files import canonical
from collapse.stores.manifest import LAYER, differences
from collapse.stores.tensor_files import described, read_tensors, tensor_bytes
from collapse.stores.writing import write_atomic

if TYPE_CHECKING:
    from torch import Tensor

PARTIAL = "partial"
_STATE = "state.json"


@dataclass(frozen=True)
class Progress:
    """The progress of a phase.

    Attributes:
        phase: "train" or "validation".
        start, done, stop: Slices: the first of this part, the first unfinished one, the first after this part.
        batch_size: Current batch size, in chunks.
        identity: The collection's identity.
        means: Hash of the class means that a validation pass uses for its decisions, or None.
        file, entry: The tensor file and its manifest entry; empty before the first slice is done.
        chunks, slice_chunks: Number of chunks of the text and of a slice; None in a state of an earlier version.
        first_batch: Requested batch size, in chunks; None in a state of an earlier version.
        made_by: Which distribution's plugin fills each statistic.
    """

    phase: str
    start: int
    done: int
    stop: int
    batch_size: int
    identity: dict[str, Any]
    means: str | None
    file: str
    entry: dict[str, Any]
    chunks: int | None = None
    slice_chunks: int | None = None
    first_batch: int | None = None
    made_by: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for each in fields(self):
            kind: Any = dict if get_origin(each.type) is dict else each.type
            if not isinstance(getattr(self, each.name), kind):
                raise TypeError(f"{each.name} is {getattr(self, each.name)!r}")
        if self.file and self.file != _name(self.phase, self.start, self.done):
            raise ValueError(f"{self.file} is not the file of {self.done} slices of this phase")

    def may_write(self, name: str) -> bool:
        """Whether this is the name of a tensor file after one of the slices of this part."""
        done = name.removeprefix(f"{self.phase}-{self.start + 1}-").removesuffix(".safetensors")
        if not re.fullmatch("[1-9][0-9]{0,17}", done):
            return False
        return self.start < int(done) <= max(self.stop, self.done) and name == _name(self.phase, self.start, int(done))


class Partial:
    """The folder ``partial/`` of a store being collected."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / PARTIAL

    def read(self) -> Progress | None:
        """Return the progress of the last run, or None if it wrote no state.

        Raises:
            StoreError: state.json is damaged, or was not written by a collection.
        """
        file = self.folder / _STATE
        if not file.is_file():
            return None
        try:
            return Progress(**read_json(file))
        except (ValueError, TypeError, OSError) as error:
            raise StoreError(
                f"{file} is damaged, or no state of a collection: choose another --store, or delete {self.folder} to "
                "collect again from the start"
            ) from error

    def tensors(self, progress: Progress) -> dict[str, "Tensor"]:
        """Return the tensors of a state's layer; raises StoreError if they were altered."""
        found = read_tensors(self.folder / Path(progress.file).name, progress.entry, remember=False)
        if not all(name.startswith(f"{LAYER}/") for name in found):  # a state of an earlier version names no layer
            return found
        return {name.removeprefix(f"{LAYER}/"): tensor for name, tensor in found.items()}

    def check(self, progress: Progress, identity: Mapping[str, Any], start: int, stop: int) -> None:
        """Raise StoreError if a state belongs to another collection. Different statistics are allowed.

        Raises:
            StoreError: The identities or the parts differ; the message names the fields.
        """
        differ = differences(progress.identity, identity, apart={"statistics"})
        if (progress.start, progress.stop) != (start, stop):
            differ.append(f"slices: {progress.start + 1}–{progress.stop} and {start + 1}–{stop}")
        if differ:
            raise StoreError(
                f"{self.folder.parent} holds an unfinished collection that differs in {'; '.join(differ)} "
                "(there and now). Give the same options to resume it, choose another --store, or delete "
                f"{self.folder} to start again"
            )

    def begin(self, **progress: Any) -> None:
        """Write the state of a collection that has not finished a slice yet."""
        state = Progress(**progress, done=progress["start"], file="", entry={})
        write_atomic(self.folder / _STATE, canonical(asdict(state)))

    def write(self, tensors: Mapping[str, "Tensor"], **progress: Any) -> None:
        """Replace the state by a newer one, in an order that leaves a complete state if the process is killed."""
        name = _name(progress["phase"], progress["start"], progress["done"])
        data = tensor_bytes({f"{LAYER}/{each}": tensor for each, tensor in tensors.items()})
        write_atomic(self.folder / name, data)
        state = Progress(**progress, file=name, entry=described(data))
        write_atomic(self.folder / _STATE, canonical(asdict(state)))
        self.tidy(state)

    def tidy(self, progress: Progress) -> None:
        """Remove earlier and later tensor files than that of a state, which a killed process may have left."""
        for file in self._written(progress):
            if file.name != progress.file:
                file.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove the state, because the store now holds its content or because it is discarded."""
        with suppress(OSError, StoreError):
            state = self.read()
            if state is not None:
                for file in self._written(state):
                    file.unlink(missing_ok=True)
            (self.folder / _STATE).unlink(missing_ok=True)
            (self.folder / f".{_STATE}.partial").unlink(missing_ok=True)
            self.folder.rmdir()

    def strange(self) -> list[str]:
        """Return the names of files in the folder that no collection wrote."""
        if not self.folder.is_dir():
            return [self.folder.name] if self.folder.exists() else []
        state = self.read()
        known = set(self._written(state)) if state else set()
        return sorted(
            f"{PARTIAL}/{each.name}"
            for each in self.folder.iterdir()
            if each not in known and each.name not in (_STATE, f".{_STATE}.partial")
        )

    def _written(self, state: Progress) -> list[Path]:
        """Return the tensor files of a part's slices that exist, half-written ones too."""
        temporary = re.compile(r"\.(.*)\.partial")  # write_atomic
        names = {each: temporary.sub(r"\1", each.name) for each in self.folder.iterdir()}
        return [each for each, name in names.items() if state.may_write(name) and each.is_file()]


def _name(phase: str, start: int, done: int) -> str:
    return f"{phase}-{start + 1}-{done}.safetensors"
