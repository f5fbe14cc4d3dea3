"""Find what each parameter name of a plugin's function refers to, as pytest does for fixtures.

A parameter can have the name of another declared function, a name in :mod:`collapse.plugin.parameter_names`, or the
name of a statistic. The other function must be defined in the same module, or imported into it. numerics/values.py
computes the values.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache
from inspect import signature, unwrap
from typing import Any, Literal

from collapse.errors import PluginError, near_names
from collapse.plugin.guarding import called
from collapse.plugin.parameter_names import HELD, OF_CLASSES, OF_PAIRS, PER_CLASS, need_of

DECLARATION = "__collapse_declaration__"
FILE_PREFIX = "collapse_plugin_"
"""Prefix of the module name of a plugin that is a file."""


@dataclass(frozen=True)
class Asked:
    """What the name of a function's parameter refers to.

    Attributes:
        name: The parameter's name.
        kind: "function" for a declared function; "value" or "field" for a name in
            :mod:`collapse.plugin.parameter_names`, where a field is a value of class pairs; "side" for ``row_X`` or
            ``column_X``, which are the values of X for the classes of a tile; "statistic" for a statistic.
        target: The declared function; for a side, the :class:`Asked` for X; otherwise None.
        optional: Whether the parameter has a default and so needs no value.
    """

    name: str
    kind: Literal["function", "value", "field", "side", "statistic"]
    target: Any = None
    optional: bool = False


@cache
def asked(function: Callable[..., Any]) -> tuple[Asked, ...]:
    """Return what the name of each parameter of a function refers to."""
    parameters = signature(function).parameters.values()
    return tuple(_looked_up(each.name, function, each.default is not each.empty) for each in parameters)


def _looked_up(name: str, function: Callable[..., Any], optional: bool) -> Asked:
    other = globals_of(function).get(name)
    if other is not function and _kind(other):
        return Asked(name, "function", other, optional)
    if name in OF_PAIRS:
        return Asked(name, "field", None, optional)
    if name in HELD or name in OF_CLASSES:
        return Asked(name, "value", None, optional)
    for prefix in ("row_", "column_"):
        if name.startswith(prefix):
            return Asked(name, "side", _looked_up(name.removeprefix(prefix), function, optional), optional)
    return Asked(name, "statistic", None, optional)


def globals_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the globals of the module that defines a function, also if a decorator of another module wraps it."""
    found: dict[str, Any] = getattr(unwrap(function), "__globals__", {})
    return found


def closure(
    function: Callable[..., Any], *, required: bool = False, within: tuple[Callable[..., Any], ...] = ()
) -> Iterator[Asked]:
    """Yield what a function's parameters refer to, directly or through other functions.

    ``row_X`` and ``column_X`` refer to X. With ``required``, parameters that have a default are skipped. ``within``
    lists the functions through which this function was reached, to find cycles.

    Raises:
        PluginError: A function is its own parameter, directly or through other functions.
    """
    if function in within:
        names = " → ".join(called(each) for each in (*within, function))
        raise PluginError(f"functions are parameters of each other in a cycle: {names}; remove one of these parameters")
    for each in asked(function):
        if required and each.optional:
            continue
        each = each.target if each.kind == "side" else each
        yield each
        if each.kind == "function":
            yield from closure(each.target, required=required, within=(*within, function))


def needs(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return what a store must hold for a function: counts, means, …, or names of statistics."""
    found: dict[str | None, None] = {}
    for each in closure(function, required=True):
        if each.kind != "function":
            found[each.name if each.kind == "statistic" else need_of(each.name)] = None
    return tuple(name for name in found if name is not None)


def check(function: Callable[..., Any], *, pairs: bool, statistics: Collection[str]) -> None:
    """Raise PluginError if a parameter names an unknown value, or a value that this kind of function cannot get.

    ``pairs`` says whether the function is a function of pairs; ``statistics`` are the names of all registered
    statistics. Statistics in the function's module are known too, because a notebook can pass them to
    :func:`collapse.collect_arrays`.
    """
    module = globals_of(function)
    own = [name for name, each in module.items() if _kind(each)]
    types = [each for each in module.values() if isinstance(each, type) and hasattr(each, DECLARATION)]
    statistics = {*statistics, *(getattr(each, "name", "") for each in types)}
    known = {*HELD, *OF_CLASSES, *(OF_PAIRS if pairs else ()), *statistics, *own} - {function.__name__}
    for each in closure(function):
        if each.kind == "statistic" and each.name not in statistics:
            near = near_names(each.name, known)
            raise PluginError(f"{called(function)} has the parameter {each.name!r}, which names no known value; {near}")
    for each in asked(function):
        of_pairs = each.kind in ("field", "side") or (each.kind == "function" and of_tiles(each.target))
        if of_pairs and not pairs:
            raise PluginError(
                f"{called(function)} has the parameter {each.name!r}, which is a value of class pairs: remove the "
                "parameter, or declare the function with @pair_metric or @pair_derived"
            )
        if pairs and (each.name in PER_CLASS or (each.kind == "function" and _kind(each.target) == "class")):
            sides = f"row_{each.name} and column_{each.name}"
            raise PluginError(
                f"{called(function)} takes pairs of classes, but {each.name!r} has one row per class: use {sides}"
            )


def of_tiles(function: Callable[..., Any]) -> bool:
    """Return whether a function is declared as a function of pairs."""
    return _kind(function) == "pair"


def functions_of_pairs(function: Callable[..., Any]) -> set[Callable[..., Any]]:
    """Return the functions of pairs that are parameters of a function, directly or through other functions."""
    return {each.target for each in closure(function) if each.kind == "function" and of_tiles(each.target)}


def _kind(function: Any) -> str | None:
    """Return the kind of a declared function; None for any other object.

    The kind of a metric is "scalar", "class" or "pair". The kind is "derived" for ``@derived``, and "pair" for
    ``@pair_derived``.
    """
    return getattr(getattr(function, DECLARATION, None), "kind", None)
