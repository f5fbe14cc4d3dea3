"""Change settings of libraries and of the process temporarily: log lines, progress bars, environment variables."""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from io import StringIO
from typing import Any

from collapse.core.progress import Report


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set environment variables, and restore them at the end."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def quiet(*libraries: str, bars: bool = False) -> Iterator[None]:
    """Suppress log lines of the given libraries below the level ERROR (for datasets, CRITICAL).

    Unless ``bars`` is True, also suppress the progress bars of the given libraries that have such bars (transformers,
    datasets and huggingface_hub). The libraries still raise exceptions for errors, and collapse reports these
    exceptions.
    """
    if "transformers" in libraries:  # transformers shows bars of huggingface_hub
        libraries = ("huggingface_hub", *libraries)
    with ExitStack() as stack:
        for name in libraries:
            if name in _BARS:
                import_module(f"{name}.utils.logging").get_verbosity()  # its first call sets the level
            log = logging.getLogger(name)
            stack.callback(log.setLevel, log.level)
            log.setLevel(logging.CRITICAL if name == "datasets" else logging.ERROR)
            if name in _BARS and not bars:
                module, ending = _BARS[name]
                switches = import_module(module)
                known = getattr(switches, "are_progress_bars_disabled", None)
                if not (known() if known else not switches.is_progress_bar_enabled()):
                    stack.callback(getattr(switches, f"enable_progress_bar{ending}"))
                getattr(switches, f"disable_progress_bar{ending}")()
        yield


_BARS = {  # module and name ending of the functions that enable and disable bars
    "datasets": ("datasets", "s"),
    "huggingface_hub": ("huggingface_hub.utils", "s"),
    "transformers": ("transformers.utils.logging", ""),
}


@contextmanager
def gguf_reported(what: str, report: Report | None) -> Iterator[None]:
    """Report how many tensors of a GGUF file are read, in place of transformers' own bar, which cannot be disabled."""
    module: Any = import_module("transformers.modeling_gguf_pytorch_utils")

    def counted(tensors: Sequence[Any], **_: Any) -> Iterator[Any]:
        for done, tensor in enumerate(tensors, 1):
            yield tensor
            if report is not None:
                report(what, done, len(tensors))

    bar, module.tqdm = module.tqdm, counted
    try:
        yield
    finally:
        module.tqdm = bar


def bytes_reported(what: str, report: Report | None) -> type | None:
    """Return a progress bar class with which the Hub client reports downloads of 1 MB or more; None without report."""
    if report is None:
        return None
    tqdm: Any = import_module("tqdm").tqdm

    class Bytes(tqdm):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            # ignore the client's bars of files and of received bytes; its bar of written bytes remains
            self.counts = options.get("unit") == "B" and options.get("desc") != "Downloading bytes"
            super().__init__(*arguments, **options | {"file": StringIO(), "leave": False})

        def display(self, *_: Any, **__: Any) -> None:
            if report and self.counts and self.n and (self.total or 0) >= 1e6:
                report(what, int(self.n), self.total, f"{self.n / 1e6:,.0f} of {self.total / 1e6:,.0f} MB")

        def update_transfer(self, n: float) -> None:
            pass

    return Bytes
