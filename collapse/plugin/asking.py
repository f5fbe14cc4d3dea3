"""What a plugin's function asks for: its parameters' names say what it gets, as those of a pytest test name fixtures.

A name is, in this order, a declared function of the same module, what a store holds, what follows from its classes,
a field of a pair, or a plugin statistic. A parameter with the default None is optional.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial, wraps
from inspect import Parameter, signature, unwrap
from typing import Any, TypeVar

from collapse.errors import CollapseError, PluginError
from collapse.plugin.guarding import Watch, described

Function = TypeVar("Function", bound=Callable[..., Any])

_DERIVED = "__collapse_derived__"
_MEMO = "_derived"

HELD: Mapping[str, tuple[str, ...]] = {
    "classes": (),
    "counts": ("counts",),
    "means": ("means",),
    "variances": ("variances",),
    "classifier": ("classifier",),
    "bias": ("classifier",),
    "validation": ("validation",),
    "n_params": ("n_params",),
    "dtype": (),
    "min_count": (),
    "left_out": (),
}
"""Names of what a store holds, and what it needs to hold for them."""
OF_CLASSES: Mapping[str, tuple[str, ...]] = {
    "C": ("means",),
    "d": ("means",),
    "global_mean": ("means",),
    "mean_rounding": ("means",),
    "centred_means": ("means",),
    "norms": ("means",),
    "has_direction": ("means",),
    "s": (),
}
"""Names of what follows from the classes; ``s`` is the whole record, whose needs a metric declares itself."""
OF_PAIRS: Mapping[str, tuple[str, ...]] = {
    "gram": ("means",),
    "sqdist": ("means",),
    "distance": ("means",),
    "cosine": ("means",),
    "unit_sqdist": ("means",),
    "uncentred_unit_sqdist": ("means",),
    "variance_sum": ("variances",),
    "pair": (),
}
"""Names of fields of a tile of pairs; ``pair`` is the whole tile. ``row_X`` and ``column_X`` are blocks of X."""
_ATTRIBUTE = {"C": "n_classes", "d": "dim"}
_BLOCKS = ("row_", "column_")


@dataclass(frozen=True)
class Noted:
    """A number with a remark; None for a number that is not available."""

    value: Any
    text: str
    kind: str = "note"


class _Nothing(Exception):  # not an error: the answer is a note without a number
    def __init__(self, noted: Noted) -> None:
        self.noted = noted


def derived(function: Function | None = None, *, needs: Sequence[str] | None = None) -> Any:
    """Declare a value that several metrics ask for by the function's name; it is computed once.

    ``@derived(needs=[…])`` says what a store needs to hold for a function that asks for ``s``.

    Return :class:`Noted` with the value None where there is none: metrics that ask for it have no number then, and this
    note. A note beside a value is passed on to them.
    """
    if function is None:
        return partial(derived, needs=needs)
    setattr(function, _DERIVED, True if needs is None else tuple(needs))
    return function


def ask(function: Callable[..., Any], holder: Any) -> Any:
    """Call a plugin's function with what it asks for, of statistics or of a tile of pairs.

    Returns:
        What it returns; :class:`Noted` with the value None if something that it asks for has none.

    Raises:
        PluginError: A function that it asks for failed; the message names that one.
        Exception: Whatever the function raises.
    """
    try:
        given, notes = _given(function, holder)
    except _Nothing as nothing:
        return nothing.noted
    value = function(**given)
    if isinstance(value, Noted):
        notes, value = [*notes, value], value.value
    if not notes or value is None:
        return notes[-1] if notes else value
    return Noted(value, "; ".join(dict.fromkeys(each.text for each in notes)), notes[0].kind)


def asked(function: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return the function that calls another one with what it asks for."""

    @wraps(function)
    def of(holder: Any) -> Any:
        return ask(function, holder)

    return of


def needs_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return what a store needs to hold for a function: core needs and names of plugin statistics, in order."""
    declared: Any = getattr(function, _DERIVED, True)
    if declared is not True:
        return tuple(declared)
    found: dict[str, None] = {}
    for name, optional in asks_of(function):
        other = _declared(function, name)
        if optional:
            continue
        if other is not None:
            found |= dict.fromkeys(needs_of(other))
        else:
            found |= dict.fromkeys(_needs(name))
    return tuple(found)


def written_derived(s: Any) -> list[str]:
    """Return the derived values of some statistics that were written to after they were computed, and drop them all."""
    memo = vars(s).get(_MEMO, {})
    written = [name for _, watch in memo.values() for name in watch.written()]
    if written:
        memo.clear()
    return written


@cache
def asks_of(function: Callable[..., Any]) -> tuple[tuple[str, bool], ...]:
    """Return the names that a function asks for, and whether each is optional.

    Raises:
        PluginError: It has a parameter without a name, such as ``*args``.
    """
    found = []
    for each in signature(function).parameters.values():
        if each.kind not in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY):
            raise PluginError(f"its parameter {each} has no name to ask for: name what it needs, such as means")
        if each.default is not None and each.default is not Parameter.empty:
            continue  # the function's own
        found.append((each.name, each.default is None))
    return tuple(found)


def _needs(name: str) -> tuple[str, ...]:
    for known in (HELD, OF_CLASSES, OF_PAIRS):
        if name in known:
            return known[name]
    for block in _BLOCKS:
        if name.startswith(block):
            return _needs(name.removeprefix(block))
    return (name,)  # a plugin statistic


def _given(function: Callable[..., Any], holder: Any) -> tuple[dict[str, Any], list[Noted]]:
    given, notes = {}, list[Noted]()
    for name, optional in asks_of(function):
        value = _value(function, name, holder, optional)
        if isinstance(value, Noted):
            if value.value is None:
                raise _Nothing(value)
            notes.append(value)
            value = value.value
        given[name] = value
    return given, notes


def _value(function: Callable[..., Any], name: str, holder: Any, optional: bool) -> Any:
    s = getattr(holder, "statistics_of_pairs", holder)
    other = _declared(function, name)
    if other is not None:
        return _derived_value(other, s)
    if s is not holder:  # a tile of pairs
        if name == "pair":
            return holder
        if name in OF_PAIRS:
            return getattr(holder, name)
        for block, cut in zip(_BLOCKS, (holder.rows, holder.columns), strict=True):
            if name.startswith(block):
                return cut(name.removeprefix(block))
    if name == "s":
        return s
    if name in HELD or name in OF_CLASSES:
        return getattr(s, _ATTRIBUTE.get(name, name))
    if optional and not s.has(name):
        return None
    return s.statistic(name)


def _derived_value(function: Callable[..., Any], s: Any) -> Any:
    """Return a derived value of statistics, computed once; its tensors may not be written to."""
    memo = vars(s).setdefault(_MEMO, {})
    if function not in memo:
        try:
            value = ask(function, s)
        except CollapseError:
            raise
        except Exception as error:
            name = f"{function.__module__}.{function.__name__}"
            raise PluginError(f"{name}, which it asks for, failed: {described(error)}") from error
        memo[function] = value, Watch(dict(_tensors(function.__name__, value)))
    return memo[function][0]


def _tensors(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(value, "_version"):
        yield name, value
    elif hasattr(value, "__dataclass_fields__"):
        for key, each in vars(value).items():
            yield from _tensors(f"{name}.{key}", each)
    elif isinstance(value, tuple | list):
        for index, each in enumerate(value):
            yield from _tensors(f"{name}[{index}]", each)


def _declared(function: Callable[..., Any], name: str) -> Callable[..., Any] | None:
    """Return the declared function of this name in a function's module: a derived value, or a metric of one number."""
    plain = unwrap(function)  # decorators, such as type checkers, have globals of their own
    other = getattr(plain, "__globals__", {}).get(name)
    if not callable(other) or unwrap(other) is plain:
        return None
    is_scalar = getattr(getattr(other, "__collapse_declaration__", None), "kind", "") == "scalar"
    return other if hasattr(other, _DERIVED) or is_scalar else None
