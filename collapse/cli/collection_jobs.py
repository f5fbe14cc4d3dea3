"""``--launcher``: collect in parts, as SLURM jobs or as processes of this machine.

A job runs ``collapse collect … --part k/n``, which resumes an interrupted part. First the jobs of the training pass
run, then the jobs of the validation pass. Last, the user's command runs without ``--launcher`` and collects what is
still missing: with SLURM as one more job, otherwise in this process.
"""

import json
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import click

from collapse.cli.options import is_given, with_options
from collapse.cli.terminal import say
from collapse.core import ranks
from collapse.core.paths import expanded
from collapse.core.reading import read_json
from collapse.core.submitting import queued, submit
from collapse.errors import CollapseError, UsageError
from collapse.inputs.collection_spec import CollectionSpec
from collapse.stores.writing import write_atomic

JOBS = ".jobs"
"""Subfolder of a store's folder that has the files and logs of the jobs that collect the store."""

_RECORD = "jobs.json"
_SLURM_ONLY = ("partition", "hours", "slurm")

launching_options = with_options(
    click.option(
        "--launcher",
        type=click.Choice(["slurm", "local"]),
        help="Collect in parts: as SLURM jobs, or as processes of this machine.",
    ),
    click.option("--jobs", type=click.IntRange(min=1), default=4, show_default=True, help="Number of jobs at a time."),
    click.option("--partition", metavar="NAME", help="SLURM partition."),
    click.option(
        "--hours", type=click.FloatRange(0.02), default=24.0, show_default=True, help="Wall time of a SLURM job."
    ),
    click.option(
        "--slurm",
        multiple=True,
        metavar="KEY=VALUE",
        help="Another option of sbatch, such as account=mine or exclusive.",
    ),
)


def run_or_submit_jobs(
    models: Sequence[str], place_of: Callable[[str], str | None], store: str | None, given: Mapping[str, Any]
) -> bool:
    """Collect models in parts if ``--launcher`` is given; return True if SLURM jobs do the rest of the command.

    If the result is False, the caller continues as without ``--launcher``: it opens complete stores, and collects what
    is missing.

    Args:
        models: The models.
        place_of: Called with a model, returns the folder of its store; None if no ``--store`` is given.
        store: The folder of ``--store``, which also holds the files of the jobs; None if no ``--store`` is given.
        given: Options of :func:`collapse.collect`.

    Raises:
        UsageError: An option that the jobs need is missing, or an option cannot be used with ``--launcher``.
        CollapseError: A part failed, SLURM rejects the jobs, or jobs of another command use the folder.
    """
    options = click.get_current_context().params
    given_here = partial(is_given, click.get_current_context())
    if options["launcher"] != "slurm" and (unused := [*filter(given_here, _SLURM_ONLY)]):
        raise UsageError(f"--{unused[0]} is for SLURM jobs: also give --launcher slurm, or remove it")
    if options["launcher"] is None:
        if given_here("jobs"):
            raise UsageError("--jobs needs a launcher: also give --launcher slurm or --launcher local")
        return False
    if ranks.count() > 1:
        raise UsageError("--launcher starts processes of its own: run the command without torchrun")
    if store is None:
        raise UsageError("--launcher needs a folder that all jobs share: give --store")
    for name in ("part", "recollect"):
        if name in given:
            raise UsageError(f"--{name} cannot be used with --launcher: remove one of them")
    places = {str(place_of(model)): model for model in models}
    parts, folder = options["jobs"], expanded(store) / JOBS
    if options["launcher"] == "slurm":  # the jobs of all models run at the same time
        return _launch_slurm(places, max(1, parts // max(1, len(places))), given, folder)
    from collapse.cli.local_parts import run_parts

    for place, model in places.items():
        for phase in ("train", "validation"):  # the validation needs the whole training pass
            if missing := _missing(model, place, parts, given).get(phase):
                commands = {k: _part_command(model, place, k, parts, given) for k in missing}
                ended = run_parts(commands, expanded(place), phase, parts, folder)
                for k in _missing(model, place, parts, given).get(phase, ()):
                    raise CollapseError(f"part {k}/{parts} failed: {ended[k]}. Run the same command again to resume")
    shutil.rmtree(folder, ignore_errors=True)
    return False


def jobs_of(store: Path) -> tuple[Mapping[str, Any], str, bool]:
    """Return the record of a store's last jobs, a description of their states, and whether any job waits or runs.

    The keys of the record are "parts" (number of parts per store), "jobs" (ids of the jobs) and "command" (words of the
    command line). If there are no jobs, the record is empty and the description is "".

    Raises:
        CollapseError: SLURM's queue cannot be read.
    """
    folder = store / JOBS
    try:
        record = read_json(folder / _RECORD)
    except OSError:
        return {}, "", False
    jobs = record["jobs"]
    left = queued(jobs)
    counts = Counter(state.lower() for state in left.values())
    failed = [job for job in jobs if job not in left and not (folder / f"{job}_0_result.pkl").exists()]
    if failed and (left or failed[-1] == jobs[-1]):  # the last job collects what failed jobs did not
        counts["failed"] = len(failed)
    states = ", ".join(f"{n} {state}" for state, n in counts.items()) or "all have ended"
    said = f"SLURM jobs {jobs[0]} to {jobs[-1]}: {states}; their logs are in {folder}"
    if counts and not left:
        said += ". Run their command again to submit jobs for what is missing"
    return record, said, bool(left)


def _launch_slurm(places: Mapping[str, str], parts: int, given: Mapping[str, Any], folder: Path) -> bool:
    """Submit jobs for what is missing, unless earlier jobs still wait or run; return whether any job waits or runs.

    ``places`` maps the folder of each store to its model, ``parts`` is the number of parts per store, and ``folder``
    is the folder for the files of the jobs.
    """
    from collapse.stores.lock import locked  # slow to import

    with locked(folder, wait=True):
        missing = {place: _missing(model, place, parts, given) for place, model in places.items()}
        if not any(missing.values()):
            return False
        record, said, is_running = jobs_of(folder.parent)
        if is_running and record["command"] != _command_line():
            running = " ".join(dict.fromkeys(job.partition("_")[0] for job in record["jobs"]))
            raise CollapseError(
                f"{folder.parent} is in use by jobs of another command ({shlex.join(record['command'])}). Wait until "
                f"they end, or cancel them: scancel {running}"
            )
        if not is_running:
            if said:
                say(f"earlier {said}")
            stages = [
                [
                    _part_command(model, place, k, parts, given)
                    for place, model in places.items()
                    for k in missing[place].get(phase, ())
                ]
                for phase in ("train", "validation")
            ]
            last = [*option_words(click.get_current_context().parent), *_command_line("launcher", "jobs", *_SLURM_ONLY)]
            about = {"parts": parts, "command": _command_line()}
            _submit([*stages, [last]], about, folder)
            _, said, _ = jobs_of(folder.parent)
    say(f"{said}. For their progress: collapse status {shlex.quote(str(folder.parent))}")
    return True


def _submit(stages: Sequence[Sequence[Sequence[str]]], about: Mapping[str, Any], folder: Path) -> None:
    """Submit an array of jobs for each stage, and write the record of the jobs to ``folder``.

    A stage is a list of command lines, with one job for each command line. A stage begins when the previous stage has
    ended, even if jobs of the previous stage failed. The record has the fields in ``about`` and the ids of the jobs.
    """
    options = click.get_current_context().params
    words = [each.strip("-").partition("=") for each in options["slurm"]]
    more = {key.replace("-", "_"): value or True for key, _, value in words}
    how: dict[str, Any] = {
        "timeout_min": round(options["hours"] * 60),
        "slurm_partition": options["partition"],
        "slurm_array_parallelism": options["jobs"],
        "slurm_additional_parameters": {"requeue": True, **more},
    }
    if "cpus_per_task" in more:
        how["slurm_srun_args"] = ["--cpus-per-task", more["cpus_per_task"]]  # srun does not inherit it from sbatch
    made: list[str] = []
    for commands in filter(None, stages):
        if made:
            how["slurm_dependency"] = f"afterany:{made[-1].partition('_')[0]}"
        try:
            made += [job.job_id for job in submit(Job(), commands, folder, name="collapse", **how)]
        except CollapseError as error:
            if not made:
                raise
            waiting = f"The jobs {made[0]} to {made[-1]} are in the queue: first cancel them"
            raise CollapseError(f"{error}. {waiting}") from error
        write_atomic(folder / _RECORD, json.dumps({**about, "jobs": made}).encode())


class Job:
    """Run a command line as a submitit job. If the job is pre-empted or runs out of time, submitit queues it again."""

    def __call__(self, words: Sequence[str]) -> None:
        """Run the command line in this process."""
        from collapse.cli import main

        try:
            main(list(words))
        except SystemExit as ended:
            if ended.code:  # submitit would add a traceback to any other exception
                raise

    def checkpoint(self, words: Sequence[str]) -> Any:
        """Return the submission with which submitit queues this job again."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, words)


def _missing(model: str, place: str, parts: int, given: Mapping[str, Any]) -> dict[str, list[int]]:
    """For each phase, return the numbers of the missing parts; {} if the collection is complete.

    ``place`` is the folder of the model's store, and ``parts`` is the number of all parts.
    """
    from collapse.inputs.resolving import resolve
    from collapse.stores.request import Request

    request = resolve(model, CollectionSpec(**given), expanded(place))
    assert isinstance(request, Request)  # a published store is used only without a folder
    return request.missing_parts(parts)


def _part_command(model: str, place: str, k: int, parts: int, given: Mapping[str, Any]) -> list[str]:
    """Return the words of the command line that collects part number ``k`` of a model into the folder ``place``."""
    context = click.get_current_context()
    own = {each.name for each in fields(CollectionSpec)} & given.keys()
    options = [f"--store={place}", f"--part={k}/{parts}", *option_words(context, own)]
    return [*option_words(context.parent), "collect", *options, "--", model]


def _command_line(*without: str) -> list[str]:
    """Return the current command line as words, except options in ``without`` and those that every command accepts."""
    context = click.get_current_context()
    own = context.params.keys() - set(without)
    arguments = [context.params[each.name] for each in context.command.params if isinstance(each, click.Argument)]
    words = [word for each in arguments for word in ([each] if isinstance(each, str) else each)]
    return [str(context.info_name), *option_words(context, own), "--", *words]


def option_words(context: click.Context | None, names: Collection[str] | None = None) -> list[str]:
    """Return the options that the user gave to the command of ``context``, as words of a command line.

    With ``names``, return only the options with these names. ``context`` must not be None; its type allows None, so
    that callers can pass the ``parent`` of a context.
    """
    assert context is not None  # every command is in the group of all commands
    words = []
    for each in context.command.params:
        if isinstance(each, click.Option) and is_given(context, each.name) and (names is None or each.name in names):
            value, flag = context.params[each.name], max(each.opts, key=len)
            if each.is_flag:
                words += [flag] if value in (True, each.flag_value) else []  # the flag_value of --json is "json"
            else:
                several = value if each.multiple else [",".join(map(str, value)) if isinstance(value, tuple) else value]
                words += [f"{flag}={one}" for one in several]
    return words
