"""The hooks that a plugin may implement with ``@collapse.hookimpl``.

Metrics, statistics, analyses and figures need no hook: collapse finds the declarations in a plugin's module.

An entry point in the group ``collapse`` refers to a module with declarations, or with any hook except
``collapse_commands``. Such a module is loaded when it is first needed, and may import torch. An entry point in the
group ``collapse.commands`` refers to a module that adds commands. Such a module is loaded at every start, so it must
not import anything heavy.
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
    """Replace modules of a loaded transformers model in place by faster modules, and return a name for the new modules.

    The store records the name as ``attention``; None means that the model is unchanged. The new modules must give
    the same numbers up to rounding, because measurements with and without them are treated as comparable.
    """


@hookspec
def collapse_trained_on(folder: Path) -> Mapping[str, Any] | None:
    """Return options of ``collapse.collect`` that name the texts on which the model in a local folder was trained.

    These options apply if the user names no text. Return None for an unknown folder. Raise a CollapseError if the
    folder is known, but the texts or the model have changed since training.
    """


@hookspec
def collapse_sources(model: str) -> Any:
    """Return a ``collapse.Source`` for a MODEL name of the plugin, such as ``mine:resnet``; None for any other name.

    Choose names that are neither paths nor ids on the Hub. All commands that collect accept such a name as MODEL, and
    use the source's ``identity`` to find the store.
    """


@hookspec
def collapse_results() -> Mapping[str, Path]:  # type: ignore[empty-body]  # a specification has no body
    """Return a dictionary from names to results files (.csv, .json, .parquet); users can give a name instead of a path.

    A name consists of lower-case letters, digits, ``_`` and ``-``. It takes precedence over a file of the same name.
    """


@hookspec
def collapse_model_parts(model: str) -> Mapping[str, int | float | str] | None:
    """Return the values in a model's name, such as depth, width and epochs; None if the plugin does not know the name.

    The values become columns of a results table for analyses, unless the table already has these columns. Analyses
    also use two keys. Models of the same size must have the same ``architecture``, and models that were trained in the
    same way must have the same ``recipe``.
    """


@hookspec
def collapse_losses() -> Mapping[str, Callable[..., Any]]:  # type: ignore[empty-body]
    """Return loss functions by the names that users give to ``collapse zoo train --regularize NAME:WEIGHT``.

    Training calls each function as ``loss(h, y, weight, bias)``: ``h`` are the top-layer embeddings of a batch (N, d)
    in the precision of training, ``y`` the next tokens (N,), ``weight`` the output layer's rows (V, d), and ``bias``
    its bias (V,) or None. The function returns a scalar tensor that is differentiable in ``h`` and ``weight``. Training
    multiplies this loss by WEIGHT, and adds it to the cross-entropy in nats per token. A name must be an identifier,
    because it becomes part of the run's name.
    """


@hookspec
def collapse_commands(cli: "click.Group") -> None:
    """Add click commands to ``collapse``. Only plugins in the entry-point group ``collapse.commands`` use this hook."""
