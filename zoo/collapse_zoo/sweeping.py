"""Many recipes: trained, collected and measured in turn or as jobs, into one results table; and how far they are."""

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collapse.errors import CollapseError, InUseError, first_line
from collapse.files import ANOTHER_OUTPUT, write_atomic
from collapse.lock import is_locked, locked
from collapse.manifest import is_store
from collapse.partial import Partial
from collapse.reporting import Report
from collapse.results import Results, Row, check_output
from collapse.store import Store
from collapse_zoo.catalogue import run_folders
from collapse_zoo.checks import check_model, check_same
from collapse_zoo.grids import GridMember
from collapse_zoo.launching import Resources, launch
from collapse_zoo.members import Member, wanted, work
from collapse_zoo.names import name_of
from collapse_zoo.records import read_swept
from collapse_zoo.runs import Run
from collapse_zoo.sources import Source, find_source

log = logging.getLogger("collapse")

SWEEP = "sweep.json"
TABLES = ("results.json", "results.csv")

_PATIENCE_SECONDS = 30.0
"""How long a sweep waits for another that writes the folder's list or table, which takes milliseconds."""


@dataclass(frozen=True)
class Swept:
    """What a sweep came to.

    Attributes:
        rows: A row a measured checkpoint of this sweep, members in order.
        problems: What went wrong, by member.
        elsewhere: Members that another process works on: the same sweep, once that is done, has their rows too.
        results: The results table of all sweeps into the folder, .csv; a .json lies beside it.
    """

    rows: list[Row]
    problems: dict[str, str]
    results: Path
    elsewhere: tuple[str, ...] = ()


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
    made: dict[str, Member] = {}
    for member in members:
        recipe = member.name.recipe(**{"vocabulary": len(found.tokenizer)} | dict(values or {}))
        name = str(name_of(recipe, found.label))
        # epochs given as an option move the last checkpoint, and steps end wherever the text's length says
        epochs = (recipe.epochs - 1,) if recipe.epochs != member.name.epochs else member.checkpoints
        last = None if recipe.max_steps else epochs
        run = str(Path(folder) / name)
        if name in made and last is not None:  # --epochs or --weight-decay made two members equal
            last = tuple(sorted({*last, *(made[name].checkpoints or ())}))
        made[name] = Member(name, run, recipe, dict(source), dict(training or {}), last, processes)
    for first in list(made.values())[:1]:
        check_model(first.recipe)  # what is wrong with one configuration is told here, not by a hundred jobs
    return list(made.values()), found


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
        busy = _work_on(busy, source, problems, progress)  # finished or left by the other process meanwhile
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
        for table in TABLES:
            results.write(folder / table)
    return Swept(rows, problems, folder / "results.csv", elsewhere)


def _refused(members: Sequence[Member], source: Source) -> dict[str, str]:
    """Why members cannot be done, by name: their folders hold something else, which stays, also in the table."""
    refused = {}
    for member in members:
        try:
            check_same(member.run, member.recipe, source)  # a name does not say everything that a recipe does
        except CollapseError as error:
            refused[member.name] = str(error)
    return refused


def _left(members: Sequence[Member], problems: dict[str, str]) -> list[Member]:
    """The members that are not done; one that is damaged is a problem."""
    left = []
    for member in members:
        try:
            if member.run.finished:
                member.run.check_model(quick=True)
            if not member.done:
                left.append(member)
        except CollapseError as error:
            problems[member.name] = str(error)
    return left


def _work_on(
    members: Sequence[Member], source: Source, problems: dict[str, str], progress: Report | None
) -> list[Member]:
    """Do members in this process, one after the other; returns those that another process works on."""
    busy = []
    for member in members:
        try:
            work(member, source, progress)
        except InUseError as error:
            log.warning("%s is skipped: it is in progress elsewhere (%s)", member.name, error)
            busy.append(member)
        except CollapseError as error:
            problems[member.name] = str(error)
        except Exception as error:  # the other members' days of work do not wait for one that nobody foresaw
            log.exception("%s failed", member.name)
            problems[member.name] = f"{type(error).__name__}: {first_line(error)}"
    return busy


def status(folder: str | Path) -> list[dict[str, Any]]:
    """How far each member of the sweeps in a folder is, and every other run there.

    Returns:
        For each: ``member``, ``epochs`` trained and to train, ``chunks`` collected, ``measured`` checkpoints,
        ``published``, ``state``.
    """
    folder = Path(folder)
    swept = read_swept(folder / SWEEP)
    runs = {run.path.name: run for run in run_folders(folder)}
    names = [*swept, *(name for name in runs if name not in swept)]
    return [_status(name, runs.get(name), swept.get(name, {}), folder) for name in names]


def _status(name: str, run: Run | None, swept: dict[str, Any], folder: Path) -> dict[str, Any]:
    none = {"member": name, "epochs": "0", "chunks": "0", "measured": "0", "published": "no"}
    try:
        return _of_run(name, run, swept) if run else none | {"state": _waiting(swept)}
    except CollapseError as error:
        return none | {"state": f"damaged: {error}"}


def _of_run(name: str, run: Run, swept: dict[str, Any]) -> dict[str, Any]:
    record = run.record
    assert record is not None  # run_folders saw it
    epochs = [each["k"] for each in record["epochs"]]
    ks = wanted(record, swept["checkpoints"]) if "checkpoints" in swept else epochs
    measured = run.measured().intersection(ks)
    total = swept.get("epochs") or record["recipe"].get("epochs") or len(epochs)
    return {
        "member": name,
        "epochs": f"{len(epochs)}" if record["recipe"].get("max_steps") else f"{len(epochs)} of {total}",
        "chunks": _collected(run, ks),
        "measured": f"{len(measured)} of {len(ks) or 1}",
        "published": str(record.get("published") or "no"),
        "state": _state(record, run, swept, bool(ks) and len(measured) == len(ks)),
    }


def _state(record: dict[str, Any], run: Run, swept: dict[str, Any], measured: bool) -> str:
    if is_locked(run.path):
        return "measuring" if record["state"] == "finished" else "training"
    if record["state"] == "finished":
        run.check_model(quick=True)
        if measured:
            return "done"
        return f"failed: {swept['problem']}" if swept.get("problem") else "trained"
    if record["state"] == "failed":
        return f"failed: {record.get('problem')}"
    return "interrupted: the same command goes on"


def _waiting(swept: dict[str, Any]) -> str:
    return f"failed: {swept['problem']}" if swept.get("problem") else "waiting"


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


def _all_rows(folder: Path, members: Sequence[Member]) -> list[Row]:
    """The rows of every sweep into a folder, not of these members alone."""
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


def _rows(name: str, run: Run, checkpoints: Sequence[int] | None) -> list[Row]:
    names = {f"{name}@{k}" for k in wanted(run.record, checkpoints)}
    return [row for row in run.results() if row.model in names]


def _remember(folder: Path, members: Sequence[Member], problems: Mapping[str, str], refused: Collection[str]) -> None:
    """Add members to the folder's list, so that a status knows those that have not begun.

    One that was refused and is in the list already stays as it was: this command is not what failed it.
    """
    with _locked(folder):  # another sweep may add its own
        swept = read_swept(folder / SWEEP)
        for member in members:
            if member.name in refused and member.name in swept:
                continue
            ks = None if member.checkpoints is None else list(member.checkpoints)
            about = {"checkpoints": ks, "epochs": member.recipe.epochs}
            swept[member.name] = about | {"problem": problems.get(member.name)}
        write_atomic(folder / SWEEP, (json.dumps(swept, indent=1) + "\n").encode(), other=ANOTHER_OUTPUT)


def _locked(folder: Path) -> AbstractContextManager[None]:
    return locked(folder, option="--output", patience=_PATIENCE_SECONDS)
