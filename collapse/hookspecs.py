"""The plugin contract, all of it. A plugin is a module with any of these hooks, marked ``@collapse.hookimpl``.

Entry points in the group ``collapse`` name modules that compute (loaded when first needed; they may import torch);
those in ``collapse.commands`` name modules that add commands (loaded at start; they import nothing heavy).
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    import click

    from collapse.accumulate import Statistic

hookspec = pluggy.HookspecMarker("collapse")
hookimpl = pluggy.HookimplMarker("collapse")


@hookspec
def collapse_metrics() -> Sequence[Callable[..., Any]]:  # type: ignore[empty-body]  # a specification has no body
    """Metrics: functions declared with ``@metric``, ``@class_metric`` or ``@pair_metric``."""


@hookspec
def collapse_statistics() -> Sequence[type["Statistic"]]:  # type: ignore[empty-body]  # as above
    """Extra statistics filled in the same pass as the means: subclasses of ``collapse.Statistic``."""


@hookspec
def collapse_analyses() -> Sequence[Callable[..., Any]]:  # type: ignore[empty-body]  # as above
    """Analyses of a results table: functions declared with ``@analysis``."""


@hookspec
def collapse_prepare_model(model: Any) -> str | None:
    """Swap modules of a loaded transformers model, in place, for equal and faster ones; returns what to call them.

    The name is recorded as the store's ``attention``; None says that the model was left as it is. What is swapped must
    give the same numbers up to rounding: measurements of prepared and unprepared models are compared as equals.
    """


@hookspec
def collapse_commands(cli: "click.Group") -> None:
    """Add click commands to ``collapse`` (entry-point group ``collapse.commands`` only)."""
