"""The state of an unfinished collection: what a killed run goes on from.

Each finished slice writes ``partial/<phase>-<slices>.safetensors``; then ``partial/state.json`` is renamed to point at
it; then the older one goes. Whenever the process dies, state.json names a whole file.
"""

import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapse.errors import StoreError
from collapse.files import canonical, described, read_tensors, tensor_bytes, write_atomic
from collapse.manifest import differences

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Progress:
    """How far a phase is.

    Attributes:
        phase: "train" or "validation".
        start, done, stop: Slices: the first of this part, the first not done, the first not of this part.
        batch_size: Chunks a batch in use.
        identity: Of what is collected.
        means: Hash of the class means that a validation pass decides by, or None.
        file, entry: The tensor file and its manifest entry.
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


class Partial:
    """The folder ``partial/`` of a store being collected."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "partial"

    def read(self) -> Progress | None:
        """How far the last run came, or None where there is nothing to go on from.

        Raises:
            StoreError: state.json is damaged.
        """
        file = self.folder / "state.json"
        if not file.is_file():
            return None
        try:
            return Progress(**json.loads(file.read_text(encoding="utf-8")))
        except (ValueError, TypeError, OSError) as error:
            raise StoreError(f"{file} is damaged: delete {self.folder} to collect again from the start") from error

    def tensors(self, progress: Progress) -> dict[str, "Tensor"]:
        """The tensors of a state; raises StoreError where they were altered."""
        return read_tensors(self.folder / Path(progress.file).name, progress.entry, remember=False)

    def check(self, progress: Progress, identity: Mapping[str, Any], start: int, stop: int) -> None:
        """Refuse to go on with another collection's state, naming the fields.

        Raises:
            StoreError: The identities or the parts differ.
        """
        differ = differences(progress.identity, identity)
        if (progress.start, progress.stop) != (start, stop):
            differ.append(f"slices: {progress.start + 1}–{progress.stop} and {start + 1}–{stop}")
        if differ:
            raise StoreError(
                f"{self.folder.parent} holds an unfinished collection that differs in {'; '.join(differ)} "
                "(there and now). Give the same options to go on with it, or another --store"
            )

    def write(self, tensors: Mapping[str, "Tensor"], **progress: Any) -> None:
        """Replace the state by a newer one, in an order that a kill at any moment leaves whole."""
        name = f"{progress['phase']}-{progress['start'] + 1}-{progress['done']}.safetensors"
        data = tensor_bytes(tensors)
        write_atomic(self.folder / name, data)
        state = Progress(**progress, file=name, entry=described(data))
        write_atomic(self.folder / "state.json", canonical(asdict(state)))
        for older in self.folder.glob("*.safetensors*"):
            if older.name != name:
                older.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove the state: what it held is in the store now."""
        with suppress(OSError):
            (self.folder / "state.json").unlink(missing_ok=True)
            shutil.rmtree(self.folder)
