"""The hooks that a plugin may implement, marked ``@collapse.hookimpl``: actions, each with one answer or none.

Metrics, statistics, analyses and figures need no hook: the declarations in a plugin's module are found.

Entry points in the group ``collapse`` name modules that compute (loaded when first needed; they may import torch).
Those in ``collapse.commands`` name a module that adds commands (loaded at every start, so it imports nothing heavy).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    import click

API = 2
"""Version of the contract. A plugin may declare the version for which it was written: ``COLLAPSE_API = 2``."""

hookspec = pluggy.HookspecMarker("collapse")
hookimpl = pluggy.HookimplMarker("collapse")


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
def collapse_results() -> Mapping[str, Path]:  # type: ignore[empty-body]  # a specification has no body
    """Return results tables that can be given by a name instead of a file: the files (.csv, .json, .parquet) by name.

    A name is lower-case letters, digits, ``_`` and ``-``. It comes before a file of the same name.
    """


@hookspec
def collapse_model_parts(model: str) -> Mapping[str, int | float | str] | None:
    """Return the values in the name of a model, such as depth, width and epochs; None for another model's name.

    These become columns of a results table for analyses, unless the table has columns of these names. The key
    ``architecture`` says which models have one size, and ``recipe`` how they were trained: analyses use both.
    """


@hookspec
def collapse_commands(cli: "click.Group") -> None:
    """Add click commands to ``collapse`` (entry-point group ``collapse.commands`` only)."""
