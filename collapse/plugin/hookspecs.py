"""The complete plugin contract. A plugin is a module with any of these hooks, marked ``@collapse.hookimpl``.

Entry points in the group ``collapse`` name modules that compute (loaded when first needed; they may import torch).
Those in ``collapse.commands`` name a click command as ``module:object`` (loaded when it is used or its help is shown),
or a module that adds commands (loaded at every start, so it imports nothing heavy).
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    import click

    from collapse.plugin.statistic import Statistic

API = 1
"""Version of the contract. A plugin may declare the version for which it was written: ``COLLAPSE_API = 1``."""

hookspec = pluggy.HookspecMarker("collapse")
hookimpl = pluggy.HookimplMarker("collapse")


@hookspec
def collapse_metrics() -> Sequence[Callable[..., Any]]:  # type: ignore[empty-body]  # a specification has no body
    """Return metrics: functions declared with ``@metric``, ``@class_metric`` or ``@pair_metric``."""


@hookspec
def collapse_statistics() -> Sequence[type["Statistic"]]:  # type: ignore[empty-body]  # as above
    """Return extra statistics, filled in the same pass as the means: subclasses of ``collapse.Statistic``."""


@hookspec
def collapse_analyses() -> Sequence[Callable[..., Any]]:  # type: ignore[empty-body]  # as above
    """Return analyses of a results table: functions declared with ``@analysis``."""


@hookspec
def collapse_figures() -> Sequence[Callable[..., Any]]:  # type: ignore[empty-body]  # as above
    """Return figures of a results table or of stores: functions declared with ``@figure``."""


@hookspec
def collapse_prepare_model(model: Any) -> str | None:
    """Replace modules of a loaded transformers model, in place, by equivalent faster ones; return a name for them.

    The name is recorded as the store's ``attention``; None means that the model was not changed. The new modules must
    give the same numbers up to rounding: measurements of prepared and unprepared models are treated as comparable.
    """


@hookspec
def collapse_trained_on(folder: Path) -> Mapping[str, Any] | None:
    """Return options of ``collapse.collect`` that name the texts on which the model in a local folder was trained.

    They apply if the user names no text; None means that the plugin does not know the folder. Raise a CollapseError
    if it is known, but the texts or the model are not what they were.
    """


@hookspec
def collapse_results() -> Mapping[str, Path]:  # type: ignore[empty-body]  # as above
    """Return results tables that can be given by a name instead of a file: the files (.csv, .json, .parquet) by name.

    A name is lower-case letters, digits, ``_`` and ``-``. A file of the user with this very path comes first.
    """


@hookspec
def collapse_model_parts(model: str) -> Mapping[str, int | float | str] | None:
    """Return what the name of a model says about it, such as depth, width and epochs; None for another model's name.

    These become columns of a results table for analyses, unless the table has columns of these names. The key
    ``architecture`` says which models have one size, and ``recipe`` how they were trained: analyses use both.
    """


@hookspec
def collapse_commands(cli: "click.Group") -> None:
    """Add click commands to ``collapse`` (entry-point group ``collapse.commands`` only)."""
