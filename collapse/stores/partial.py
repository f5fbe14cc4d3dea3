"""The state of an unfinished collection, from which a killed run resumes.

It is written after some slices, in three steps: write ``partial/<phase>-<slices>.safetensors``, replace
``partial/state.json`` so that it names this file, remove the previous file. Whenever the process dies, state.json names
a complete file.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
        chunks, slice_chunks: Number of chunks of the text and of a slice.
        first_batch: Requested batch size, in chunks.
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
    chunks: int
    slice_chunks: int
    first_batch: int
    made_by: dict[str, str]


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
        found = read_tensors(self.file(progress), progress.entry, remember=False)
        return {name.removeprefix(f"{LAYER}/"): tensor for name, tensor in found.items()}

    def file(self, progress: Progress) -> Path:
        """Return the path of a state's tensor file."""
        return self.folder / Path(progress.file).name

    def check(self, progress: Progress, identity: Mapping[str, Any], start: int, stop: int) -> None:
        """Raise StoreError if a state belongs to another collection. Different statistics are allowed.

        Raises:
            StoreError: The identities or the parts differ; the message names the fields.
        """
        differ = differences(progress.identity, identity, apart={"statistics"})
        if (progress.start, progress.stop) != (start, stop):
            differ.append(f"slices: {progress.start + 1}–{progress.stop} and {start + 1}–{stop}")
        self.refuse(differ)

    def refuse(self, differ: Sequence[str]) -> None:
        """Raise StoreError if there are fields in which a state differs from what is requested."""
        if differ:
            raise StoreError(
                f"{self.folder.parent} holds an unfinished collection that differs in {'; '.join(differ)} "
                "(there and now). Give the same options to resume it, choose another --store, or delete "
                f"{self.folder} to start again"
            )

    def begin(self, **progress: Any) -> None:
        """Write the state of a collection that has not finished a slice yet."""
        self._write_state(Progress(**progress, done=progress["start"], file="", entry={}))

    def write(self, tensors: Mapping[str, "Tensor"], **progress: Any) -> None:
        """Replace the state by a newer one, in an order that leaves a complete state if the process is killed."""
        name = "{phase}-{}-{done}.safetensors".format(progress["start"] + 1, **progress)
        data = tensor_bytes({f"{LAYER}/{each}": tensor for each, tensor in tensors.items()})
        write_atomic(self.folder / name, data)
        state = Progress(**progress, file=name, entry=described(data))
        self._write_state(state)
        self.tidy(state)

    def tidy(self, progress: Progress) -> None:
        """Remove other tensor files than that of a state, which a killed process may have left."""
        for file in self.folder.glob("*.safetensors*"):
            if file.name != progress.file:
                file.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove the state, because the store now holds its content or because it is discarded."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write_state(self, state: Progress) -> None:
        write_atomic(self.folder / _STATE, canonical(asdict(state)))
