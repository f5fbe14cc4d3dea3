"""The progress callback of long operations, and a bar on a terminal or in a notebook."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, runtime_checkable

from collapse.core.escaping import visible

if TYPE_CHECKING:
    from rich.console import Console

P = ParamSpec("P")
R = TypeVar("R")

_PERIOD = 1_800.0
"""Seconds over which the speed is estimated. In rich's default of 30 s, a large model may not complete two batches."""


@runtime_checkable
class Report(Protocol):
    """Progress callback, called as report(what, done, total[, note]).

    The total may be None. The note is text that is shown in place of the rate.
    """

    def __call__(self, what: str, done: int, total: int | None, note: str = "", /) -> Any: ...


@contextmanager
def progress_bar(out: "Console") -> Iterator[Report]:
    """Yield a progress callback that draws a bar for each phase and removes it when the phase is done."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),  # the remaining width
        TaskProgressColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        TextColumn("{task.fields[rate]}", markup=False),  # last, because a line that is too long loses its end
    )
    with Progress(*columns, console=out, transient=True, expand=True, speed_estimate_period=_PERIOD) as bar:
        out.show_cursor(True)  # rich hides the cursor, and a killed process could not restore it
        tasks: dict[str, Any] = {}

        def report(what: str, done: int, total: int | None, note: str = "") -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(visible(what), total=total, completed=max(done - 1, 0), rate="")
            speed = bar.tasks[bar.task_ids.index(tasks[what])].speed
            bar.update(tasks[what], completed=done, total=total, rate=visible(note) or _shown(speed))
            if total is not None and done >= total:
                bar.remove_task(tasks.pop(what))
                if not tasks:
                    bar.refresh()  # now, because the caller may print

        yield report


def numbered(report: Report, at: int, of: int) -> Report:
    """Return a progress callback that passes ``what`` to ``report`` with a prefix: the model's number, as "2 of 5, ".

    ``at`` is the model's number, and ``of`` the number of models. For a single model, ``report`` itself is returned.
    """
    if of == 1:
        return report
    return lambda what, done, total, note="": report(f"{at} of {of}, {what}", done, total, note)


def _shown(speed: float | None) -> str:
    """Format a speed as units per second, or per minute if it is low.

    >>> _shown(None), _shown(12345.6), _shown(0.05)
    ('', '12,345.6/s', '3.0/min')
    """
    if not speed:
        return ""
    return f"{speed:,.1f}/s" if speed >= 0.1 else f"{60 * speed:.1f}/min"


def shows_progress(function: Callable[P, R]) -> Callable[P, R]:
    """Give a public function a progress bar, in a terminal or notebook, if its caller passes no ``progress``."""

    @wraps(function)
    def run(*arguments: P.args, **options: P.kwargs) -> R:
        if options.get("progress") is not None or not _somebody_looks():
            return function(*arguments, **options)
        from rich.console import Console

        with progress_bar(Console(stderr=True)) as report:
            options["progress"] = report
            return function(*arguments, **options)

    return run


def _somebody_looks() -> bool:
    """Return whether the program runs on a terminal, or in a notebook that can show a bar."""
    if "ipykernel" in sys.modules:
        return find_spec("ipywidgets") is not None
    return sys.stderr is not None and sys.stderr.isatty()
