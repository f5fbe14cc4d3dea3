"""``python -m benchmarks``: run benchmarks, print their tables, and write JSON into a folder for this machine.

Threads are set before torch is loaded, as in ``collapse``, so this module does not import torch.
"""

import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path

import click

from benchmarks.machine import ROOT, described
from benchmarks.record import Record
from collapse.cli.rendering import print_table
from collapse.cli.terminal import say, say_error
from collapse.core.threads import prepare
from collapse.errors import CollapseError, UsageError, near_names

NAMES = ("accumulate", "collect", "validate", "pairs", "train", "pack", "startup", "ranks", "placed", "monitor")
ON_GPU = ("collect", "validate", "pairs", "placed")


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--quick", is_flag=True, help="Small sizes, a few minutes in all; written only with --output.")
@click.option("--output", metavar="DIR", help="Where to write JSON.  [default: benchmarks/results/MACHINE]")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", help=f"cuda: only {', '.join(ON_GPU)}.")
@click.option("--threads", type=click.IntRange(1, 1024), metavar="N", help="As that of collapse.")
def command(names: tuple[str, ...], quick: bool, output: str | None, device: str, threads: int | None) -> None:
    """Measure how fast this checkout is on this machine.

    \b
    accumulate  class moments of batches
    collect     collection, compared with the decoder's forward pass
    validate    decisions and loss, compared with one float32 product
    pairs       the sweep over class pairs, compared with bare Gram products
    train       training of the zoo's models
    pack        packing of a text, compared with the tokenizer alone
    startup     time to start
    ranks       ranks with one thread each, compared with one rank with all threads
    placed      collection of a model on several devices, and quantized
    monitor     updates of the monitor; a measurement by the callback

    Without a name, all benchmarks run.
    """
    for name in names:
        if name not in NAMES:
            raise UsageError(f"no benchmark is called {name!r}; {near_names(name, NAMES)}")
        if device != "cpu" and name not in ON_GPU:
            raise UsageError(f"{name} runs on the CPU only: run it without --device {device}")
    prepare(threads)
    with tempfile.TemporaryDirectory() as home:
        os.environ["COLLAPSE_HOME"] = home  # neither read nor fill the user's cache
        for name in dict.fromkeys(names or (NAMES if device == "cpu" else ON_GPU)):
            _run(name, quick, output, device)


def _run(name: str, quick: bool, output: str | None, device: str) -> None:
    """Run, print and write one benchmark."""
    where = [device] if name in ON_GPU else []
    record: Record = import_module(f"benchmarks.{name}").benchmark(quick, *where)
    record.run = described(quick=quick, device=device)
    print_table(record.table(record.about))
    if output is not None or not quick:
        folder = Path(output) if output else ROOT / "benchmarks" / "results" / record.run["machine"]["name"]
        say(f"written to {record.write(folder)}")


def main() -> None:
    """Run the command, and print errors as ``collapse`` does."""
    try:
        command.main(prog_name="python -m benchmarks", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except CollapseError as error:
        say_error(str(error))
        sys.exit(2 if isinstance(error, UsageError) else 1)


if __name__ == "__main__":
    main()
