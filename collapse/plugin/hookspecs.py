"""The hooks that a plugin may implement with ``@collapse.hookimpl``; each returns one answer or None.

Metrics, statistics, analyses and figures need no hook: collapse finds the declarations in a plugin's module.

An entry point in the group ``collapse`` refers to a module with declarations or with other hooks than
``collapse_commands``. This module is loaded when first needed and may import torch. An entry point in
``collapse.commands`` refers to a module that adds commands. This module is loaded at every start, so it must not import
anything heavy.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    import click

hookspec = pluggy.HookspecMarker("collapse")
hookimpl = pluggy.HookimplMarker("collapse")


@hookspec
def collapse_prepare_model(model: Any) -> str | None:
    """Replace modules of a loaded transformers model, in place, with faster equivalents; return a name for them.

    The store records the name as ``attention``; None means that the model is unchanged. The new modules must give
    the same numbers up to rounding, because measurements with and without them are treated as comparable.
    """


@hookspec
def collapse_trained_on(folder: Path) -> Mapping[str, Any] | None:
    """Return options of ``collapse.collect`` that name the texts on which the model in a local folder was trained.

    They apply if the user names no text. Return None for an unknown folder. Raise a CollapseError if the folder is
    known, but the texts or the model have changed since training.
    """


@hookspec
def collapse_sources(model: str) -> Any:
    """Return a ``collapse.Source`` for a MODEL name of the plugin, such as ``mine:resnet``; None for any other name.

    Choose names that are neither paths nor ids on the Hub. All commands that collect accept this name as
    MODEL, and find its store by the source's ``identity``.
    """


@hookspec
def collapse_results() -> Mapping[str, Path]:  # type: ignore[empty-body]  # a specification has no body
    """Return results files (.csv, .json, .parquet) by names that users can give instead of a path.

    A name consists of lower-case letters, digits, ``_`` and ``-``. It takes precedence over a file of the same name.
    """


@hookspec
def collapse_model_parts(model: str) -> Mapping[str, int | float | str] | None:
    """Return the values in a model's name, such as depth, width and epochs; None if the plugin does not know the name.

    They become columns of a results table for analyses, unless the table already has these columns. Analyses also use
    two keys: models of one size have the same ``architecture``, and models that were trained alike have the same
    ``recipe``.
    """


@hookspec
def collapse_losses() -> Mapping[str, Callable[..., Any]]:  # type: ignore[empty-body]
    """Return losses by the names that users give to ``collapse zoo train --regularize NAME:WEIGHT``.

    Training calls each as ``loss(h, y, weight, bias)`` with the top-layer embeddings of a batch (N, d) in the precision
    of training, the next tokens (N,), and the output layer's rows (V, d) and bias (V,) or None. It returns a scalar
    tensor, differentiable in h and weight, which is multiplied by WEIGHT and added to the cross-entropy in nats per
    token. A name is an identifier, because it becomes part of the run's name.
    """


@hookspec
def collapse_commands(cli: "click.Group") -> None:
    """Add click commands to ``collapse``; called only for plugins in the entry-point group ``collapse.commands``."""
