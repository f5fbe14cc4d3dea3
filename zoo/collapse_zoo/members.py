"""One member of a sweep: train, collect and measure it. A file describes it, so that any machine can run it.

``python -m collapse_zoo.members FILE`` trains the member in a file; torchrun runs it on several GPUs.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from collapse.errors import CollapseError, InUseError
from collapse.progress import Report
from collapse.reading import read_json
from collapse.stores.lock import is_locked
from collapse.stores.writing import write_atomic
from collapse_zoo.checks import check_same
from collapse_zoo.measuring import measure_run
from collapse_zoo.recipes import Recipe
from collapse_zoo.runs import Run
from collapse_zoo.sources import Source, find_source
from collapse_zoo.training import leave_group, train


@dataclass(frozen=True)
class Member:
    """The description of a member.

    Attributes:
        name: The run's name.
        folder: Its run directory.
        recipe: How to build and train it.
        source: Arguments of :func:`collapse_zoo.sources.find_source`.
        training: Further arguments of :func:`collapse_zoo.training.train`.
        checkpoints: The k of the checkpoints to measure; None for the last one, wherever ``max_steps`` ends.
        processes: Number of GPUs of this machine to train on.
    """

    name: str
    folder: str
    recipe: Recipe
    source: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    checkpoints: tuple[int, ...] | None = (0,)
    processes: int = 1

    @property
    def run(self) -> Run:
        """Its run."""
        return Run(Path(self.folder))

    @property
    def done(self) -> bool:
        """Whether it is trained, and every checkpoint is measured."""
        ks = self.measures
        return self.run.finished and bool(ks) and self.run.measured().issuperset(ks)

    @property
    def measures(self) -> tuple[int, ...]:
        """The k of the checkpoints to measure, as far as they are known before the run has ended."""
        return wanted(self.run.record, self.checkpoints)

    def write(self, file: Path) -> None:
        """Write the member to a file."""
        write_atomic(file, json.dumps(asdict(self), indent=1).encode())

    @classmethod
    def read(cls, file: Path) -> "Member":
        """Read a member from a file."""
        values = read_json(file)
        recipe, ks = Recipe.from_dict(values.pop("recipe")), values.pop("checkpoints")
        return cls(recipe=recipe, checkpoints=None if ks is None else tuple(ks), **values)


def wanted(record: Mapping[str, Any] | None, checkpoints: Sequence[int] | None) -> tuple[int, ...]:
    """Return the k to measure for a run with this record; empty if it is the last one and the run is not finished."""
    if checkpoints is not None:
        return tuple(checkpoints)
    if record is None or record["state"] != "finished":
        return ()
    return tuple(epoch["k"] for epoch in record["epochs"][-1:])


def work(member: Member, source: Source | None = None, progress: Report | None = None) -> None:
    """Train, collect and measure a member; finished work is not repeated.

    Raises:
        InUseError: Another process trains or measures it.
        CollapseError: A step failed.
    """
    source = source or find_source(**member.source)
    check_same(member.run, member.recipe, source)
    if member.processes > 1 and not member.run.finished:
        _train_on_many(member)
    else:
        train(member.recipe, source, member.folder, name=member.name, progress=progress, **member.training)
    device = member.training.get("device", "auto")
    measure_run(member.run, source, checkpoints=member.measures, device=device, progress=progress)


def _train_on_many(member: Member) -> None:
    file = Path(member.folder).with_name(f".{member.name}.member.json")
    member.write(file)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(member.processes)]
    process = subprocess.Popen([*launch, "-m", "collapse_zoo.members", str(file)])
    try:
        if process.wait():
            if is_locked(member.run.path):
                raise InUseError(f"{member.folder} is in use by another process")
            problem = (member.run.record or {}).get("problem")
            raise CollapseError(
                problem or f"training {member.name} on {member.processes} processes failed; see its log"
            )
    finally:  # a signal that ends this process must also end training
        process.terminate()
        process.wait()
        file.unlink(missing_ok=True)


def main() -> None:
    """Train the member in a file, as one of several processes."""
    member = Member.read(Path(sys.argv[1]))
    train(member.recipe, find_source(**member.source), member.folder, name=member.name, **member.training)
    leave_group()


if __name__ == "__main__":
    main()


def prefixed(progress: Report | None, which: str) -> Report | None:
    """Return a progress callback that says before each phase which of several models it is of."""
    if progress is None:
        return None
    return lambda what, *rest: progress(f"{which}: {what}", *rest)
