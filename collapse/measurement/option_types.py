"""Whether a value is of the type that an analysis's option is annotated with, and how to say that type."""

import inspect
from collections.abc import Callable, Collection, Iterable, Sequence
from numbers import Integral, Real
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

_SAID = {str: "a text", int: "a whole number", float: "a number", bool: "True or False", NoneType: "None"}


def hints_of(function: Callable[..., Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the types of some parameters; without those whose annotation cannot be evaluated."""
    given = inspect.signature(function).parameters
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    found: dict[str, Any] = {}
    for name in names:
        if given[name].annotation is inspect.Parameter.empty:
            continue
        try:
            found |= get_type_hints(SimpleNamespace(__annotations__={name: given[name].annotation}), globalns=scope)
        except Exception:  # evaluating a plugin's annotations can raise anything
            continue
    return found


def takes(hint: Any, value: Any) -> bool:
    """Whether a value is of a type; a text is a list of texts too, and of unknown types everything is.

    >>> takes(int, 2), takes(int, 2.5), takes(float, 2), takes(Sequence[str] | None, "a,b"), takes(Sequence[str], [5])
    (True, False, True, True, False)
    """
    if get_origin(hint) in (Union, UnionType):
        return any(takes(each, value) for each in get_args(hint))
    if get_origin(hint) is Literal:
        return any(type(value) is type(each) and value == each for each in get_args(hint))
    if get_origin(hint) in (list, tuple, Sequence) and get_args(hint):
        inner = get_args(hint)[0]
        if isinstance(value, str):
            return takes(inner, value)
        # a generator can be read only once, by the analysis
        return isinstance(value, Iterable) and not (
            isinstance(value, Collection) and not all(takes(inner, each) for each in value)
        )
    if hint in (int, float):
        return isinstance(value, Integral if hint is int else Real) and not isinstance(value, bool)
    return isinstance(value, hint) if hint in (str, bool, NoneType) else True


def said(hint: Any) -> str:
    """Say a type in words.

    >>> said(Sequence[str] | None), said(Literal["a", "b"])
    ('a text or a list of texts, or None', "'a' or 'b'")
    """
    if get_origin(hint) in (Union, UnionType):
        return ", or ".join(said(each) for each in get_args(hint))
    if get_origin(hint) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    if get_origin(hint) in (list, tuple, Sequence) and get_args(hint):
        inner = get_args(hint)[0]
        return "a text or a list of texts" if inner is str else f"a list, each {said(inner)}"
    return _SAID.get(hint, str(hint))
