"""``python -m benchmarks``: run benchmarks, print their tables, and write JSON by machine.

Threads are set before torch is loaded, as ``collapse`` does it; so nothing here imports torch before.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from benchmarks.machine import ROOT, described
from benchmarks.options import Options
from benchmarks.record import Record
from collapse.cli.rendering import print_table
from collapse.cli.terminal import say, say_error
from collapse.errors import CollapseError, UsageError, near_names
from collapse.extras import missing_package
from collapse.threads import prepare

NAMES = ("accumulate", "collect", "validate", "pairs", "train", "startup", "neighbour")
RESULTS = ROOT / "benchmarks" / "results"
_OWN = {
    "collect": ("model", "text", "chunk_length", "batch_size", "model_args"),
    "validate": ("against",),
    "pairs": ("classes", "dim"),
    "train": ("compile",),
}
"""Options of single benchmarks."""


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--quick", is_flag=True, help="Small sizes, a few minutes in all; written only with --output.")
@click.option("--output", metavar="DIR", help="Where to write JSON.  [default: benchmarks/results/MACHINE]")
@click.option("--threads", type=click.IntRange(1, 1024), metavar="N", help="As that of collapse.")
@click.option("--model", metavar="DIR", help="collect: a model of yours.  [default: a new GPT-Neo 4x256]")
@click.option("--text", metavar="FILE", help="collect: its text.")
@click.option("--chunk-length", type=click.IntRange(min=2), default=512, help="collect: tokens of its chunks.")
@click.option("--batch-size", type=click.IntRange(min=1), default=4, help="collect: chunks of its batches.")
@click.option("--model-arg", "model_args", multiple=True, metavar="KEY=VALUE", help="collect: as that of collapse.")
@click.option("--against", metavar="COMMIT", help="validate: also that of an older commit, in turn.")
@click.option("--classes", type=click.IntRange(min=2), help="pairs: a number of classes of yours.")
@click.option("--dim", type=click.IntRange(min=1), help="pairs: its dimensions.  [default: 768]")
@click.option("--compile", is_flag=True, help="train: compile the models on a GPU.")
def command(names: tuple[str, ...], quick: bool, output: str | None, threads: int | None, **options: Any) -> None:
    """Measure how fast this checkout is on this machine.

    \b
    accumulate  class moments of batches
    collect     collection against the model's bare forward
    validate    the validation pass against one float32 product
    pairs       the pair sweep against its bare Gram products, and other packages
    train       training of the zoo's models
    startup     time to start
    neighbour   beside a busy process, and within half a CPU

    Without a name, all that this machine can.
    """
    for name in names:
        if name not in NAMES:
            raise UsageError(f"no benchmark is called {name!r}; {near_names(name, NAMES)}")
    chosen = list(dict.fromkeys(names)) or list(NAMES)
    _check_own(chosen, options)
    if output is not None or not quick:
        _check_output(Path(output) if output else RESULTS)
    prepare(threads)
    with tempfile.TemporaryDirectory() as home:
        os.environ["COLLAPSE_HOME"] = home  # nothing is found in the user's cache, nor left there
        failed = [name for name in chosen if not _run(name, Options(quick=quick, **options), output)]
    if quick and output is None:
        say("quick: nothing is written without --output")
    sys.exit(1 if failed else 0)


def _check_own(chosen: list[str], options: dict[str, Any]) -> None:
    context = click.get_current_context()
    given = {each for each in options if context.get_parameter_source(each) is not click.core.ParameterSource.DEFAULT}
    for name, own in _OWN.items():
        if name not in chosen and (others := given.intersection(own)):
            flag = f"--{min(others).replace('model_args', 'model-arg').replace('_', '-')}"
            raise UsageError(f"{flag} is an option of the benchmark {name}, which is not among: {', '.join(chosen)}")
    if (options["model"] is None) != (options["text"] is None):
        raise UsageError("--model and --text belong together: give both, or neither for a new GPT-Neo")


def _check_output(folder: Path) -> None:
    """Raise UsageError, before minutes of work, if a folder cannot be made or written into."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        why = "it is a file" if isinstance(error, FileExistsError) else error.strerror or str(error)
        raise UsageError(f"{folder} cannot be written into: {why}; name another folder with --output") from error


def _run(name: str, options: Options, output: str | None) -> bool:
    """Run, print and write one benchmark; return whether it could be run."""
    try:
        benchmark: Callable[[Options], Record] = import_module(f"benchmarks.{name}").benchmark
        record = benchmark(options)
    except UsageError:
        raise
    except (CollapseError, ImportError) as error:
        missing = missing_package(error) or str(error)
        say_error(f"{name}: {missing}")
        return False
    except (RuntimeError, MemoryError) as error:
        from collapse.numerics.devices import is_out_of_memory  # torch, which reads its threads when it is loaded

        if not is_out_of_memory(error):
            raise
        say_error(f"{name}: this machine's memory does not hold it: {str(error).splitlines()[0]}")
        return False
    run = described(quick=options.quick, gpu=record.run.get("gpu"))
    growth = [] if options.quick else record.growth  # laws of small sizes are those of the time to begin
    record = Record(**{**vars(record), "run": run, "growth": growth})
    for at, table in enumerate(record.printed()):
        print_table(table if at else replace(table, title=f"{name}: {record.about}\n{table.title}"))
        say("")
    if output is not None or not options.quick:
        folder = Path(output) if output else RESULTS / run["machine"]["name"]
        try:
            say(f"written to {record.write(folder)}")
        except OSError as error:
            say_error(f"{name}: {folder} cannot be written into: {error.strerror or error}")
            return False
    return True


def main() -> None:
    """Run the command, and print errors as ``collapse`` does."""
    try:
        command.main(prog_name="python -m benchmarks", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        say_error("interrupted")
        sys.exit(130)
    except CollapseError as error:
        say_error(str(error))
        sys.exit(2 if isinstance(error, UsageError) else 1)


if __name__ == "__main__":
    main()
