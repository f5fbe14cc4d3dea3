"""The names that the parameters of an analysis cannot have."""

from collections.abc import Callable
from inspect import signature
from typing import Any

from collapse.errors import PluginError
from collapse.plugin.guarding import called

TAKEN = frozenset({"name", "results", "format", "format_", "json", "output", "help", "plugin", "threads", "verbose"})
"""Parameters and options of ``collapse analyze`` and of :func:`collapse.analyze`, which would hide an option."""


def check_parameters(function: Callable[..., Any]) -> None:
    """Refuse an analysis with an option that another one would hide; raises PluginError."""
    for each in signature(function).parameters.values():
        if each.kind is each.KEYWORD_ONLY and each.name in TAKEN:
            raise PluginError(
                f"the declaration of {called(function)} is wrong: "
                f"parameter {each.name} has a name that collapse analyze uses itself: "
                f"call it my_{each.name.strip('_')} or the like"
            )
