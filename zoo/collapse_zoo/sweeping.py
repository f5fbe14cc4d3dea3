"""Many recipes: trained, collected and measured in turn or as jobs, into one results table; and how far they are."""

import json
import logging
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collapse.errors import CollapseError, first_line
from collapse.files import ANOTHER_OUTPUT, write_atomic
from collapse.manifest import is_store
from collapse.partial import Partial
from collapse.reporting import Report
from collapse.results import Results, Row
from collapse.store import Store
from collapse_zoo.catalogue import local_runs
from collapse_zoo.checks import check_model
from collapse_zoo.grids import GridMember
from collapse_zoo.launching import Resources, launch
from collapse_zoo.members import Member, work
from collapse_zoo.names import name_of
from collapse_zoo.runs import Run
from collapse_zoo.sources import Source, find_source

log = logging.getLogger("collapse")

SWEEP = "sweep.json"


@dataclass(frozen=True)
class Swept:
    """What a sweep came to.

    Attributes:
        rows: A row a measured checkpoint, members in order.
        problems: What went wrong, by member.
        results: The results table, .csv; a .json lies beside it.
    """

    rows: list[Row]
    problems: dict[str, str]
    results: Path


def plan(
    members: Sequence[GridMember],
    folder: str | Path,
    *,
    source: Mapping[str, Any],
    values: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    processes: int = 1,
) -> tuple[list[Member], Source]:
    """The members of a sweep with all they need, and their source, packed.

    Args:
        members: Of a grid.
        folder: Where the run directories go.
        source: Arguments of :func:`collapse_zoo.sources.find_source`.
        values: Values of the recipes in place of the paper's.
        training: Further arguments of :func:`collapse_zoo.training.train`.
        processes: GPUs of one machine for each.
    """
    found = find_source(**source)
    made = []
    for member in members:
        recipe = member.name.recipe(**{"vocabulary": len(found.tokenizer)} | dict(values or {}))
        name = str(name_of(recipe, found.label))
        # epochs given as an option move the last checkpoint
        last = (recipe.epochs - 1,) if recipe.epochs != member.name.epochs or recipe.max_steps else member.checkpoints
        run = str(Path(folder) / name)
        made.append(Member(name, run, recipe, dict(source), dict(training or {}), last, processes))
    if made:
        check_model(made[0].recipe)  # what is wrong with one configuration is told here, not by a hundred jobs
    return made, found


def sweep(
    members: Sequence[Member],
    source: Source,
    folder: str | Path,
    *,
    launcher: str | None = None,
    resources: Resources | None = None,
    resubmissions: int = 5,
    poll_seconds: float = 30.0,
    progress: Report | None = None,
) -> Swept:
    """Train, collect and measure every member; killed, it goes on, and finished work is not done again.

    Args:
        members: Of :func:`plan`.
        source: Their text; it is packed here, before anything is launched.
        folder: Of the run directories, the results table and the jobs' files.
        launcher: None for this process, one after the other; "local" or "slurm" for jobs.
        resources: What each job asks for.
        resubmissions: How often a pre-empted job is sent again.
        poll_seconds: Between two looks at the jobs.
        progress: Called as progress(what, done, total[, note]).
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    _remember(folder, members)
    left = [member for member in members if not member.done]
    for length in sorted({member.recipe.chunk_length for member in left}):
        source.chunks(length, progress)
    if launcher:
        problems = launch(
            left,
            launcher,
            folder / "jobs",
            resources or Resources(),
            resubmissions=resubmissions,
            poll_seconds=poll_seconds,
        )
    else:
        problems = {}
        for member in left:
            try:
                work(member, source, progress)
            except CollapseError as error:
                problems[member.name] = str(error)
            except Exception as error:  # the other members' days of work do not wait for one that nobody foresaw
                log.exception("%s failed", member.name)
                problems[member.name] = f"{type(error).__name__}: {first_line(error)}"
    _remember(folder, members, problems)
    rows = [row for member in members for row in _rows(member)]
    Results(rows).write(folder / "results.json")
    Results(rows).write(folder / "results.csv")
    return Swept(rows, problems, folder / "results.csv")


def status(folder: str | Path) -> list[dict[str, Any]]:
    """How far each member of the sweeps in a folder is, and every other run there.

    Returns:
        For each: ``member``, ``epochs`` trained and to train, ``chunks`` collected, ``measured`` checkpoints,
        ``published``, ``state``.
    """
    folder = Path(folder)
    swept = _remembered(folder)
    runs = {run.name: run for run in local_runs(folder)}
    names = [*swept, *(name for name in runs if name not in swept)]
    return [_status(name, runs.get(name), swept.get(name, {}), folder) for name in names]


def _status(name: str, run: Run | None, swept: dict[str, Any], folder: Path) -> dict[str, Any]:
    record = (run.record if run else None) or {}
    ks = swept.get("checkpoints") or [each["k"] for each in record.get("epochs", [])]
    measured = {row.model for row in run.results()} if run else set()
    epochs = [each["k"] for each in record.get("epochs", [])]
    steps = (record.get("recipe") or {}).get("max_steps")
    total = swept.get("epochs") or (record.get("recipe") or {}).get("epochs") or len(epochs)
    return {
        "member": name,
        "epochs": f"{len(epochs)}" if steps else f"{len(epochs)} of {total}",
        "chunks": _collected(run, ks) if run else "0",
        "measured": f"{sum(f'{name}@{k}' in measured for k in ks)} of {len(ks)}",
        "published": str(record.get("published") or "no"),
        "state": _state(record, run, swept, all(f"{name}@{k}" in measured for k in ks)),
    }


def _state(record: dict[str, Any], run: Run | None, swept: dict[str, Any], measured: bool) -> str:
    if run is None or not record:
        return f"failed: {swept['problem']}" if swept.get("problem") else "waiting"
    if record["state"] == "finished":
        if measured:
            return "done"
        return f"failed: {swept['problem']}" if swept.get("problem") else "trained"
    if _held(run.path):
        return "training"
    if record["state"] == "failed":
        return f"failed: {record['problem']}"
    return "interrupted: the same command goes on"


def _collected(run: Run, ks: Sequence[int]) -> str:
    """Chunks in the checkpoints' stores, and how far one is that is being collected."""
    chunks, unfinished = 0, ""
    for k in ks:
        folder = run.store(k)
        if is_store(folder):
            chunks += Store.load(folder).manifest["coverage"]["train"]["chunks"]
        progress = Partial(folder).read()
        if progress is not None:
            unfinished = f" and {progress.done - progress.start} of {progress.stop - progress.start} slices"
    return f"{chunks:,}{unfinished}"


def _held(folder: Path) -> bool:
    """Whether a living process of this machine, or one of another, holds the folder."""
    try:
        pid, host = (folder / ".lock").read_text().split("\n")[:2]
    except (OSError, ValueError):
        return False
    if host != socket.gethostname():
        return True
    try:
        os.kill(int(pid), 0)
    except (OSError, ValueError):
        return False
    return True


def _rows(member: Member) -> list[Row]:
    wanted = {f"{member.name}@{k}" for k in member.checkpoints}
    return [row for row in member.run.results() if row.model in wanted]


def _remember(folder: Path, members: Sequence[Member], problems: Mapping[str, str] | None = None) -> None:
    """Add members to the folder's list, so that a status knows those that have not begun."""
    swept = _remembered(folder)
    for member in members:
        about = {"checkpoints": list(member.checkpoints), "epochs": member.recipe.epochs}
        swept[member.name] = about | {"problem": (problems or {}).get(member.name)}
    write_atomic(folder / SWEEP, (json.dumps(swept, indent=1) + "\n").encode(), other=ANOTHER_OUTPUT)


def _remembered(folder: Path) -> dict[str, dict[str, Any]]:
    try:
        return dict(json.loads((folder / SWEEP).read_text()))
    except (OSError, ValueError):
        return {}
