"""The command line: a thin layer over the public functions, with one file per command.

Only this package prints. It also converts a :class:`CollapseError` to an error message and an exit code.
"""

import io
import logging
import os
import re
import signal
import sys
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from collapse.cli.config import with_config
from collapse.cli.options import InOrder
from collapse.cli.terminal import MESSAGE, say, say_aside, say_error
from collapse.core import ranks
from collapse.core.extras import missing_package
from collapse.core.threads import prepare
from collapse.errors import CollapseError, UsageError, shortened

if TYPE_CHECKING:
    from collapse.plugin.loading import Plugin

command_found: list["Plugin"] = []
"""Plugins that add commands; :func:`main` fills this list."""

_COMMANDS = (
    "measure compare collect pack status merge verify info tokens push pull analyze figures report results metrics "
    "plugins"
).split()
_COMMANDS_OF_RANKS = ("collect", "measure")
"""Commands whose work is divided among the ranks of torchrun."""

_GLOBAL_OPTION = re.compile(
    r"(?P<flag>-v|--verbose)|(?P<joined>--(plugin|threads|config|save-config)=.*|-p.+)|"
    r"(?P<option>-p|--plugin|--threads|--config|--save-config)"
)
"""Options that every command accepts."""


@click.group(cls=InOrder, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="linguistic-collapse", prog_name="collapse")
@click.option(
    "-p",
    "--plugin",
    multiple=True,
    metavar="FILE_OR_MODULE",
    help="Load another plugin, or disable one with no:NAME; may be repeated.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Number of threads; overrides OMP_NUM_THREADS.  [default: SLURM_CPUS_PER_TASK, or all available CPUs]",
)
@click.option("-v", "--verbose", is_flag=True, help="Print more details on stderr.")
@click.option("--config", metavar="FILE", expose_value=False, help="Read more options and arguments from a YAML file.")
@click.option("--save-config", metavar="FILE", expose_value=False, help="Save the given options and arguments to FILE.")
def cli(plugin: tuple[str, ...], threads: int | None, verbose: bool) -> None:
    """Measure neural collapse in causal language models.

    \b
    collapse demo                              see neural collapse happen, offline
    collapse measure MODEL --text train.jsonl  collect or find a store; measure it
    collapse metrics                           list all measurements

    The options below may also follow any command.
    """
    _start_logging(verbose)
    prepare(threads)  # before the first import of torch
    if click.get_current_context().invoked_subcommand in _COMMANDS_OF_RANKS:
        ranks.join(sys.argv[1:], silent=not verbose)
    if plugin:
        from collapse.plugin.plugin_manager import add_plugins

        add_plugins(plugin)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 for success, 1 for a failure, 2 for wrong usage, 130 for Ctrl-C.

    ``arguments`` are the words after ``collapse``; None for the words in ``sys.argv``.
    """
    # Set before transformers and datasets are imported. The first variable stops requests that only count downloads.
    os.environ.setdefault("HF_UPDATE_DOWNLOAD_COUNTS", "0")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    _add_commands()
    if "_COLLAPSE_COMPLETE" in os.environ:
        from collapse.cli.completion import prepare_completion

        prepare_completion()
    sys.exit(_run(arguments))


def _run(arguments: list[str] | None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    verbose = any(word in ("-v", "--verbose") for word in words)
    try:
        _refuse_empty(words)
        words = with_config(cli, _global_options_first(words))
        with ranks.left_at_the_end(), ranks.together():
            outcome: Any = cli.main(args=words, prog_name="collapse", standalone_mode=False)
        return outcome if isinstance(outcome, int) else 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(file=shown)  # includes the usage line; say() escapes quoted text
        told = shown.getvalue().rstrip("\n").replace("\nError: ", "\ncollapse: ", 1)
        say(shortened(told, MESSAGE), err=True)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        say_error("interrupted: run the same command again. A collection keeps its finished slices")
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # the reader (head, less) has exited: redirect stdout, or Python reports an error at shutdown
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except CollapseError as error:
        if verbose:
            logging.getLogger("collapse").exception("the full error:")
        say_error(str(error))
        return 2 if isinstance(error, UsageError) else 1
    except (ImportError, OSError) as error:
        missing = missing_package(error)
        if verbose or (missing is None and isinstance(error, ImportError)):
            raise
        where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        say_error(missing or f"{where}{getattr(error, 'strerror', None) or error}")
    return 1


def _global_options_first(words: list[str]) -> list[str]:
    """Put ``-p``, ``-v`` and other options that every command accepts in front of the command's name.

    >>> _global_options_first(["measure", "a", "-p", "mine.py", "-v", "--", "-v"])
    ['-p', 'mine.py', '-v', 'measure', 'a', '--', '-v']
    >>> _global_options_first(["metrics", "-pmine.py"])
    ['-pmine.py', 'metrics']
    """
    end = words.index("--") if "--" in words else len(words)
    ours, others, rest = list[str](), list[str](), iter(words[:end])
    for word in rest:
        found = _GLOBAL_OPTION.fullmatch(word)
        (ours if found else others).append(word)
        if found and found["option"]:
            ours += islice(rest, 1)
    return [*ours, *others, *words[end:]]


def _refuse_empty(words: list[str]) -> None:
    """Reject an empty argument, which is usually a shell variable that is not set."""
    for before, word in zip(["", *words], words, strict=False):
        if word == "" or (word.startswith("--") and word.endswith("=")):
            where = word.rstrip("=") or before or "collapse"
            raise UsageError(f"the value after {where} is empty: check whether a shell variable is not set")


def _add_commands() -> None:
    from collapse.plugin.loading import command_plugins

    if cli.commands:
        return
    for name in _COMMANDS:
        cli.add_command(import_module(f"collapse.cli.{name}").command, name)
    command_found.extend(command_plugins(cli))
    for plugin in command_found:
        if plugin.problem:
            say_error(plugin.problem)


class _Plain(logging.Handler):
    """Write log records as plain lines to the current stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        say_aside(self.format(record))


def _start_logging(verbose: bool) -> None:
    log = logging.getLogger("collapse")
    if not any(isinstance(handler, _Plain) for handler in log.handlers):
        log.addHandler(_Plain())
        log.propagate = False
    # INFO is a line per phase; a terminal shows progress bars instead.
    log.setLevel(logging.DEBUG if verbose else logging.WARNING if sys.stderr.isatty() else logging.INFO)
