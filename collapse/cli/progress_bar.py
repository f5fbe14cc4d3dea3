"""Progress of long commands: bars on a terminal, and a line every ten seconds elsewhere. Always on stderr."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from collapse.cli.rendering import console
from collapse.cli.terminal import say_aside
from collapse.core.progress import Report, progress_bar


@contextmanager
def progress() -> Iterator[Report]:
    """Yield a progress callback that draws a bar on a terminal, or prints a line every ten seconds elsewhere."""
    if sys.stderr.isatty():
        with progress_bar(console(stderr=True)) as report:
            yield report
    else:
        yield _Lines()


class _Lines:
    """Progress without a terminal: a line every ten seconds, the first after two seconds."""

    def __init__(self) -> None:
        self._next = time.monotonic() + 2
        self._began: dict[str, tuple[float, int, int]] = {}  # start time, units done then, units done at the last call

    def __call__(self, what: str, done: int, total: int | None, note: str = "") -> None:
        now = time.monotonic()
        began, first, last = self._began.get(what, (now, done, done))
        if done < last:  # the same phase of another model
            began, first = now, done
        self._began[what] = began, first, done
        if now < self._next:
            return
        self._next = now + 10
        said = [f"{done:,} of {total:,} ({done / total:.0%})" if total else f"{done:,}", *([note] if note else [])]
        if total and first < done < total:
            said.append(f"{timedelta(seconds=round((now - began) / (done - first) * (total - done)))} left")
        say_aside(f"{what}: {', '.join(said)}")
