"""Sweeps: train and measure the runs of a grid, one after the other or as jobs, into one results table.

A run's record says what is to be done: recipe, texts, arguments of training, checkpoints to measure. So a job needs
only the run's folder. ``python -m collapse_zoo.sweeping FOLDER`` does its work; torchrun calls this for several GPUs.
"""

import logging
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collapse.core.progress import Report
from collapse.errors import CollapseError, InUseError, first_line
from collapse.measurement.results import Row
from collapse.stores.lock import is_locked, locked
from collapse.stores.writing import check_output_place
from collapse_zoo.grids import GridMember
from collapse_zoo.launching import Resources, launch
from collapse_zoo.recipes import Recipe, name_of
from collapse_zoo.records import describe
from collapse_zoo.runs import Run, runs_in, write_rows
from collapse_zoo.sources import Source, find_source
from collapse_zoo.training import check_recipe, leave_group, numbered, train

log = logging.getLogger("collapse")


@dataclass(frozen=True)
class Swept:
    """The result of a sweep.

    Attributes:
        members: Number of runs.
        rows: One row per measured checkpoint of this sweep, in the order of the members.
        results: The results table of all runs in the folder, .csv; there is also a .json file.
        problems: Error messages by member.
        elsewhere: Members on which another process works; repeat the sweep afterwards to get their rows too.
    """

    members: int
    rows: list[Row]
    results: Path
    problems: dict[str, str] = field(default_factory=dict)
    elsewhere: list[str] = field(default_factory=list)


def sweep(
    members: Sequence[GridMember],
    source: Source,
    folder: str | Path,
    *,
    values: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    launcher: str | None = None,
    resources: Resources | None = None,
    progress: Report | None = None,
) -> Swept:
    """Train, collect and measure every member; repeated after a kill, it resumes and skips finished work.

    Args:
        members: Members of a grid.
        source: Their text and tokenizer; the text is packed here, before anything is launched.
        folder: Folder of the run directories, the results table and the jobs' files.
        values: Values of the recipes that replace the paper's.
        training: Further arguments of :func:`collapse_zoo.training.train`.
        launcher: None to run in this process, one after the other; "local" or "slurm" for jobs.
        resources: Resources of each job; a member is trained on its ``gpus`` of one machine.
        progress: Called as progress(what, done, total[, note]).
    """
    folder, resources = Path(folder), resources or Resources(gpus=0)
    for table in ("results.csv", "results.json"):
        check_output_place(folder / table)
    planned = _planned(members, source, values or {}, progress)
    runs = [Run(folder / name) for name in planned]
    problems, elsewhere = dict[str, str](), list[str]()
    here = {"source": source.arguments, "training": dict(training or {}), "processes": max(1, resources.gpus)}
    for run, (recipe, ks) in zip(runs, planned.values(), strict=True):
        try:
            _plan(run, recipe, source, ks, here)
        except InUseError:
            elsewhere.append(run.path.name)
        except CollapseError as error:
            problems[run.path.name] = str(error)
    left = [run for run in runs if run.path.name not in (*problems, *elsewhere) and not is_done(run)]
    said = launch(left, work, launcher, folder / "jobs", resources) if launcher else _work_on(left, source, progress)
    for run in left:
        if is_done(run):
            continue
        if is_locked(run.path):
            elsewhere.append(run.path.name)
        else:
            problems[run.path.name] = said.get(run.path.name, "it was not finished")
            run.update(problem=problems[run.path.name])
    with locked(folder, option="--output", wait=True):
        write_rows(folder, [row for run in runs_in(folder) for row in run.results()])
    rows = [row for run in runs if run.path.name not in problems for row in run.results()]
    return Swept(len(runs), rows, folder / "results.csv", problems, elsewhere)


def work(run: Run, source: Source | None = None, progress: Report | None = None) -> None:
    """Train, collect and measure a member; finished work is not repeated.

    Raises:
        InUseError: Another process trains or measures it.
        CollapseError: A step failed.
    """
    here = run.record["here"]
    if here["processes"] > 1 and not run.finished:
        _work_on_many(run, here["processes"])
    else:
        _work(run, source or find_source(**here["source"]), progress)


def is_done(run: Run) -> bool:
    """Whether a member is trained, and every checkpoint that its sweep wants is measured."""
    return run.finished and run.measured().issuperset(run.record.get("measure", ()))


def _planned(
    members: Sequence[GridMember], source: Source, values: Mapping[str, Any], progress: Report | None
) -> dict[str, tuple[Recipe, list[int]]]:
    """Return the recipe of each run, by name, and the k of the checkpoints to measure."""
    made = dict[str, tuple[Recipe, list[int]]]()
    for member in members:
        recipe = source.recipe(member.name, **values)
        ks = list(member.checkpoints) if recipe.epochs == member.name.epochs else [recipe.epochs - 1]
        chunks = len(source.chunks(recipe.chunk_length, progress))  # packed once, before jobs begin
        if recipe.max_steps:
            ks = [-(-recipe.max_steps // -(-chunks // recipe.batch_size)) - 1]
        name = str(name_of(recipe, source.label))
        if name in made:  # --epochs or --weight-decay made two members equal
            ks = sorted({*ks, *made[name][1]})
        made[name] = recipe, ks
    for recipe, _ in list(made.values())[:1]:
        check_recipe(recipe, source)  # a wrong option is reported once, not by a hundred jobs
    return made


def _plan(run: Run, recipe: Recipe, source: Source, ks: Sequence[int], here: Mapping[str, Any]) -> None:
    """Write into a run's record what is to be done.

    Raises:
        UsageError: The folder holds another run.
        CollapseError: The finished run has lost its model.
        InUseError: Another process works on it.
    """
    run.check_same(recipe, source.identity())
    if run.finished:
        run.check_model()
    with locked(run.path, option="--output"):
        record = run.record
        if record.get("state", "waiting") == "waiting":
            record = describe(recipe, source, run.path.name) | {"state": "waiting"}
        measure = sorted({*record.get("measure", ()), *ks})
        run.update(**record | {"measure": measure, "problem": None, "here": record.get("here", {}) | here})


def _work_on(runs: Sequence[Run], source: Source, progress: Report | None) -> dict[str, str]:
    """Do the work of runs in this process, one after the other; return the error messages by name."""
    problems = {}
    for number, run in enumerate(runs, 1):
        log.info("%d of %d: %s", number, len(runs), run.name)
        try:
            work(run, source, numbered(progress, number, len(runs)))
        except InUseError as error:
            log.warning("%s is skipped: it is in progress elsewhere (%s)", run.name, error)
        except CollapseError as error:
            problems[run.name] = str(error)
        except Exception as error:  # an unexpected error must not stop the other members' days of work
            log.exception("%s failed", run.name)
            problems[run.name] = f"{type(error).__name__}: {first_line(error)}"
    return problems


def _work_on_many(run: Run, processes: int) -> None:
    """Do a run's work on several GPUs of this machine."""
    launched = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    process = subprocess.Popen([*launched, "-m", "collapse_zoo.sweeping", str(run.path)])
    try:
        if process.wait():
            if is_locked(run.path):
                raise InUseError(f"{run.path} is in use by another process")
            problem = run.record["problem"]
            raise CollapseError(problem or f"training {run.name} on {processes} processes failed; see its log")
    finally:  # a signal that ends this process must also end training
        process.terminate()
        process.wait()


def _work(run: Run, source: Source, progress: Report | None = None) -> None:
    record = run.record
    options = record["here"]["training"]
    train(run.recipe, source, run.path, name=run.name, measure=record["measure"], progress=progress, **options)


if __name__ == "__main__":
    this = Run(Path(sys.argv[1]))
    _work(this, find_source(**this.record["here"]["source"]))
    leave_group()
