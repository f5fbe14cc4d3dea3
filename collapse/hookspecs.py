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
def collapse_commands(cli: "click.Group") -> None:
    """Add click commands to ``collapse`` (entry-point group ``collapse.commands`` only)."""
