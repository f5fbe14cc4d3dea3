"""Sweeps: train, collect and measure many recipes, in sequence or as jobs, into one results table."""

import json
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collapse.errors import CollapseError, InUseError, first_line
from collapse.measurement.results import Results, Row, check_output
from collapse.progress import Report, lasting
from collapse.stores.lock import is_locked, locked
from collapse.stores.writing import ANOTHER_OUTPUT, write_atomic, write_error
from collapse_zoo.checks import check_model, check_same
from collapse_zoo.grids import GridMember
from collapse_zoo.launching import Resources, launch
from collapse_zoo.members import Member, prefixed, wanted, work
from collapse_zoo.names import name_of
from collapse_zoo.records import read_swept
from collapse_zoo.runs import RECORD, Run
from collapse_zoo.sources import Source

log = logging.getLogger("collapse")

SWEEP = "sweep.json"
TABLES = ("results.json", "results.csv")


@dataclass(frozen=True)
class Swept:
    """The result of a sweep.

    Attributes:
        rows: One row per measured checkpoint of this sweep, in the order of the members.
        problems: Error messages by member.
        elsewhere: Members on which another process works; repeat the sweep afterwards to get their rows too.
        results: The results table of all sweeps into the folder, .csv; there is also a .json file.
        held: Number of rows in that table.
    """

    rows: list[Row]
    problems: dict[str, str]
    results: Path
    elsewhere: tuple[str, ...] = ()
    held: int = 0


def plan(
    members: Sequence[GridMember],
    source: Source,
    folder: str | Path,
    *,
    values: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    processes: int = 1,
) -> list[Member]:
    """Return the complete descriptions of a sweep's members.

    Args:
        members: Members of a grid.
        source: The text and tokenizer of all members.
        folder: Folder of the run directories.
        values: Values of the recipes that replace the paper's.
        training: Further arguments of :func:`collapse_zoo.training.train`.
        processes: Number of GPUs of one machine for each member.
    """
    made: dict[str, Member] = {}
    for member in members:
        recipe = source.recipe(member.name, **(values or {}))
        name = str(name_of(recipe, source.label))
        # --epochs moves the last checkpoint; with max_steps, it depends on the length of the text
        epochs = (recipe.epochs - 1,) if recipe.epochs != member.name.epochs else member.checkpoints
        last = None if recipe.max_steps else epochs
        run = str(Path(folder) / name)
        if name in made and last is not None:  # --epochs or --weight-decay made two members equal
            last = tuple(sorted({*last, *(made[name].checkpoints or ())}))
        made[name] = Member(name, run, recipe, source.arguments, dict(training or {}), last, processes)
    for first in list(made.values())[:1]:
        check_model(first.recipe)  # report a wrong configuration once, not in a hundred jobs
    return list(made.values())


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
    """Train, collect and measure every member; repeated after a kill, it resumes and skips finished work.

    Args:
        members: Members from :func:`plan`.
        source: Their text; it is packed here, before anything is launched.
        folder: Folder of the run directories, the results table and the jobs' files.
        launcher: None to run in this process, one after the other; "local" or "slurm" for jobs.
        resources: Resources of each job.
        resubmissions: How often a pre-empted job is submitted again.
        poll_seconds: Seconds between two queries of the jobs' states.
        progress: Called as progress(what, done, total[, note]).
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(folder, error, other=ANOTHER_OUTPUT) from error
    for table in TABLES:
        check_output(folder / table)
    refused = _refused(members, source)
    problems = dict(refused)
    _remember(folder, members, problems, refused)
    left = _left([member for member in members if member.name not in refused], problems)
    for length in sorted({member.recipe.chunk_length for member in left}):
        source.chunks(length, progress)
    if launcher:
        busy = [member for member in left if is_locked(member.run.path)]
        sent = [member for member in left if member not in busy]
        found = launch(
            sent,
            launcher,
            folder / "jobs",
            resources or Resources(),
            resubmissions=resubmissions,
            poll_seconds=poll_seconds,
        )
        busy += [member for member in sent if member.name in found and is_locked(member.run.path)]
        problems |= {name: problem for name, problem in found.items() if name not in [each.name for each in busy]}
    else:
        busy = _work_on(left, source, problems, progress)
        for member in busy:
            log.info("%s: looking again, now that the others are done", member.name)
        busy = _work_on(busy, source, problems, progress)  # the other process may have finished or stopped by now
    unmeasured = _left([member for member in members if member.name not in problems], problems)
    elsewhere = tuple(member.name for member in unmeasured if member in busy)
    problems |= {each.name: "it was trained, and not measured" for each in unmeasured if each not in busy}
    rows = [
        row
        for member in members
        if member.name not in problems
        for row in _rows(member.name, member.run, member.checkpoints)
    ]
    _remember(folder, members, problems, refused)
    with _locked(folder):
        results = Results(_all_rows(folder, members))
        _report_lost(folder / TABLES[0], results, problems)
        for table in TABLES:
            results.write(folder / table)
    return Swept(rows, problems, folder / "results.csv", elsewhere, len(results))


def _refused(members: Sequence[Member], source: Source) -> dict[str, str]:
    """Say why members cannot be run, by name: their folders hold something else, which is kept, also in the table."""
    refused = {}
    for member in members:
        try:
            check_same(member.run, member.recipe, source)  # a name does not contain all values of a recipe
        except CollapseError as error:
            refused[member.name] = str(error)
    return refused


def _left(members: Sequence[Member], problems: dict[str, str]) -> list[Member]:
    """Return the unfinished members; a damaged or altered one is added to ``problems``."""
    left = []
    for member in members:
        try:
            member.run.check_written(member.measures)
            if not member.done:
                left.append(member)
        except CollapseError as error:
            problems[member.name] = str(error)
    return left


def _work_on(
    members: Sequence[Member], source: Source, problems: dict[str, str], progress: Report | None
) -> list[Member]:
    """Run members in this process, one after the other; return those on which another process works."""
    busy = []
    operations = [_operations(member, source) for member in members]
    began, done = time.monotonic(), 0.0
    for number, member in enumerate(members, 1):
        which = f"{number} of {len(members)}"
        left = (time.monotonic() - began) / done * sum(operations[number - 1 :]) if done else None
        log.info("%s: %s%s", which, member.name, "" if left is None else f" ({lasting(left)} left for all)")
        try:
            work(member, source, prefixed(progress, which))
            done += operations[number - 1]
        except InUseError as error:
            log.warning("%s is skipped: it is in progress elsewhere (%s)", member.name, error)
            busy.append(member)
        except CollapseError as error:
            problems[member.name] = str(error)
        except Exception as error:  # an unexpected error must not stop the other members' days of work
            log.exception("%s failed", member.name)
            problems[member.name] = f"{type(error).__name__}: {first_line(error)}"
    return busy


def _operations(member: Member, source: Source) -> float:
    """Return about how many floating-point operations a member's training takes; measuring takes a part of that."""
    recipe = member.recipe
    chunks = recipe.epochs * len(source.chunks(recipe.chunk_length))
    if recipe.max_steps:
        chunks = recipe.max_steps * recipe.batch_size
    return recipe.flops_per_token() * chunks * recipe.chunk_length


def _all_rows(folder: Path, members: Sequence[Member]) -> list[Row]:
    """Return the rows of every sweep into a folder, not only of these members."""
    runs = {member.name: member.run for member in members}
    rows = []
    for name, about in read_swept(folder / SWEEP).items():
        if about.get("problem"):
            continue
        try:
            rows += _rows(name, runs.get(name, Run(folder / name)), about["checkpoints"])
        except CollapseError as error:
            log.warning("%s is not in the table: %s", name, error)
    return rows


def _report_lost(table: Path, results: Results, problems: Mapping[str, str]) -> None:
    """Warn of the rows of earlier sweeps that the table loses."""
    kept = {row.model for row in results.rows}
    for row in Results.read(table).rows if table.is_file() else ():
        if row.model not in kept:
            reason = problems.get(row.model.rpartition("@")[0], "its run does not hold it any more")
            log.warning("%s is not in the table any more: %s", row.model, reason)


def _rows(name: str, run: Run, checkpoints: Sequence[int] | None) -> list[Row]:
    names = {f"{name}@{k}" for k in wanted(run.record, checkpoints)}
    return [row for row in run.results() if row.model in names]


def _remember(folder: Path, members: Sequence[Member], problems: Mapping[str, str], refused: Collection[str]) -> None:
    """Add members to the folder's list, so that the status includes those that have not started.

    A refused member that is already in the list is not changed if its folder holds another run, which did not fail.
    """
    with _locked(folder):  # another sweep may add its members
        swept = read_swept(folder / SWEEP)
        for member in members:
            if member.name in refused and member.name in swept and (member.run.path / RECORD).exists():
                continue
            ks = None if member.checkpoints is None else list(member.checkpoints)
            about = {"checkpoints": ks, "epochs": member.recipe.epochs}
            swept[member.name] = about | {"problem": problems.get(member.name)}
        write_atomic(folder / SWEEP, (json.dumps(swept, indent=1) + "\n").encode(), other=ANOTHER_OUTPUT)


def _locked(folder: Path) -> AbstractContextManager[None]:
    return locked(folder, option="--output", wait=True)
