"""Change settings of libraries and of the process temporarily: progress bars, logging, determinism, environment."""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

from collapse.core.progress import Report


@contextmanager
def environment(*, override: bool = False, **variables: str) -> Iterator[None]:
    """Set environment variables, and restore them at the end; those that are set are kept, unless with override."""
    changed = {name: os.environ.get(name) for name in variables if override or name not in os.environ}
    os.environ.update({name: variables[name] for name in changed})
    try:
        yield
    finally:
        for name, before in changed.items():
            if before is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = before


@contextmanager
def deterministic_algorithms() -> Iterator[None]:
    """Let torch use deterministic algorithms only."""
    import torch

    were = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    with environment(CUBLAS_WORKSPACE_CONFIG=":4096:8"):  # without it cuBLAS refuses determinism
        torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(were, warn_only=warn_only)


@contextmanager
def quiet(*libraries: str) -> Iterator[None]:
    """Suppress log lines and progress bars of transformers, datasets, accelerate or huggingface_hub.

    Errors still raise exceptions, which we report ourselves.
    """
    if "transformers" in libraries:  # it also shows the bars of huggingface_hub
        libraries = ("huggingface_hub", *libraries)
    with ExitStack() as stack:
        for name in dict.fromkeys(libraries):
            stack.enter_context(_no_lines(name))
            if name in _BARS:
                stack.enter_context(no_bars(name))
        yield


_BARS = {  # module and functions of each library's switch
    "datasets": ("datasets", "disable_progress_bars", "enable_progress_bars"),
    "huggingface_hub": ("huggingface_hub.utils", "disable_progress_bars", "enable_progress_bars"),
    "transformers": ("transformers.utils.logging", "disable_progress_bar", "enable_progress_bar"),
}


@contextmanager
def no_bars(name: str) -> Iterator[None]:
    """Suppress the progress bars of transformers, datasets or huggingface_hub."""
    module, hide, show = _BARS[name]
    switches = import_module(module)
    known = getattr(switches, "are_progress_bars_disabled", None)
    hidden = known() if known else not switches.is_progress_bar_enabled()
    getattr(switches, hide)()
    try:
        yield
    finally:
        getattr(switches, hide if hidden else show)()


@contextmanager
def gguf_reported(what: str, report: Report | None) -> Iterator[None]:
    """Report how many tensors of a GGUF file are read, instead of transformers' own bar, which has no switch."""
    module: Any = import_module("transformers.modeling_gguf_pytorch_utils")
    bar = getattr(module, "tqdm", None)

    def counted(tensors: Sequence[Any], **_: Any) -> Iterator[Any]:
        for done, tensor in enumerate(tensors, 1):
            yield tensor
            if report is not None:
                report(what, done, len(tensors))

    if bar is not None:  # later versions may have none
        module.tqdm = counted
    try:
        yield
    finally:
        if bar is not None:
            module.tqdm = bar


@contextmanager
def _no_lines(name: str) -> Iterator[None]:
    if name != "accelerate":
        import_module(f"{name}.utils.logging").get_verbosity()  # its first call sets the level
    log = logging.getLogger(name)
    level = log.level
    log.setLevel(logging.CRITICAL if name == "datasets" else logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
