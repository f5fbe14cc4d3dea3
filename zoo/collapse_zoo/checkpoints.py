"""A checkpoint: a folder with a model, and with ``complete.json``, which records the size and hash of each file."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collapse.errors import CollapseError
from collapse.stores.files import canonical, sha256_file
from collapse.stores.writing import ANOTHER_OUTPUT, write_atomic
from collapse_zoo.records import read_complete

COMPLETE = "complete.json"

_STATE_FILES = ("optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state*.pth")
_NOT_THE_MODEL = (COMPLETE, "trainer_state.json")


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint.

    Attributes:
        path: Its folder, which transformers can load.
        step: Optimizer steps taken.
        k: It is the last checkpoint of epoch k + 1; None if another one of the same epoch follows or may follow.
        validation: Loss, accuracy and perplexity if there is a validation text; None for an infinite value.
        files: Size and sha256 of each of its files when it was written.
        ends_epoch: Whether the epoch was complete; the last step of ``max_steps`` may be inside an epoch.
    """

    path: Path
    step: int
    k: int | None
    validation: dict[str, float | None]
    files: Mapping[str, Mapping[str, Any]]
    ends_epoch: bool = True

    @property
    def model_files(self) -> dict[str, Mapping[str, Any]]:
        """Its files of the model and tokenizer."""
        return {
            name: entry for name, entry in self.files.items() if name not in _NOT_THE_MODEL and not is_state(Path(name))
        }

    def check(self, remedy: str = "restore it, or train again", *, remember: bool = True) -> None:
        """Compare every file with what was written.

        Args:
            remedy: How to fix a difference, for the message.
            remember: Use cached hashes for large files that have not changed.

        Raises:
            CollapseError: A file is missing, altered, or was added (transformers might load it).
        """
        check_files(self.path, self.files, remedy, remember=remember)
        for file in self.path.iterdir():
            if file.name not in (*self.files, COMPLETE) and not is_state(file) and not file.name.startswith("."):
                raise CollapseError(f"{file} was added to a checkpoint, and may change what is loaded: delete it")


def check_files(folder: Path, files: Mapping[str, Mapping[str, Any]], remedy: str, *, remember: bool = True) -> None:
    """Compare files with their recorded sizes and hashes; raises CollapseError, which names the file."""
    check_sizes(folder, files, remedy)
    for name, entry in files.items():
        try:
            same = sha256_file(folder / name, remember=remember) == entry["sha256"]
        except OSError as error:
            raise CollapseError(f"{folder / name} cannot be read: {error.strerror}; {remedy}") from error
        if not same:
            raise CollapseError(f"{folder / name} is not as it was written; {remedy}")


def check_sizes(folder: Path, files: Mapping[str, Mapping[str, Any]], remedy: str) -> None:
    """Compare files with their recorded sizes, which is quick; raises CollapseError, which names the file."""
    for name, entry in files.items():
        file = folder / name
        if not file.is_file():
            raise CollapseError(f"{file} is missing; {remedy}")
        size = file.stat().st_size
        if size != entry["size"]:
            raise CollapseError(
                f"{file} is not as it was written: it has {size:,} bytes, and had {entry['size']:,}; {remedy}"
            )


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read the checkpoint in a folder.

    Raises:
        CollapseError: It is incomplete.
    """
    about = read_complete(folder / COMPLETE)
    if folder.name != f"checkpoint-{about['step']}":
        raise CollapseError(
            f"{folder} is the checkpoint of step {about['step']:,}: give it its name back, or delete it"
        )
    check_sizes(folder, about["files"], f"restore it, or delete {folder}")
    whole = about.get("ends_epoch", True)
    return Checkpoint(folder, about["step"], about["k"], about["validation"], about["files"], whole)


def complete(checkpoint: Path, step: int, k: int | None, validation: dict[str, float | None], ends_epoch: bool) -> None:
    """Mark a folder as a complete checkpoint."""
    (checkpoint / "training_args.bin").unlink(missing_ok=True)  # a pickle; training.json has the same content
    files = {file.name: _kept(file) for file in sorted(checkpoint.iterdir()) if file.is_file()}
    about = {"step": step, "k": k, "ends_epoch": ends_epoch, "validation": validation, "files": files}
    write_atomic(checkpoint / COMPLETE, canonical(about), other=ANOTHER_OUTPUT)


def drop_state(checkpoint: Checkpoint) -> None:
    """Delete the files that are needed only to resume from this checkpoint."""
    state = [file for file in checkpoint.path.iterdir() if is_state(file)]
    if not state:
        return
    about = read_complete(checkpoint.path / COMPLETE)
    for file in state:
        about["files"].pop(file.name, None)
    write_atomic(checkpoint.path / COMPLETE, canonical(about), other=ANOTHER_OUTPUT)
    for file in state:
        file.unlink()


def is_state(file: Path) -> bool:
    """Whether a file is needed only to resume training."""
    return any(file.match(pattern) for pattern in _STATE_FILES)


def _kept(file: Path) -> dict[str, Any]:
    """Flush a file to disk, which the Trainer does not do and a power failure would lose; return its size and hash."""
    with file.open("rb+") as handle:
        os.fsync(handle.fileno())
    return {"size": file.stat().st_size, "sha256": sha256_file(file, remember=False)}
