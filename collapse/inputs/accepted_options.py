"""The options of a collection as keywords of a function, in its signature and docstring."""

from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import wraps
from inspect import Parameter, signature
from typing import ParamSpec, TypeVar

from collapse.errors import near_names
from collapse.inputs.collection_spec import CollectionSpec, options_of

P = ParamSpec("P")
R = TypeVar("R")


def accepts(*without: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Add the options of a collection as keywords to the signature and docstring of a function with ``**options``.

    Descriptions of the options replace ``{options}`` in its docstring. An unknown argument raises a TypeError that
    suggests similar names. The options in ``without`` are not added; the function refuses them.
    """

    def accepting(function: Callable[P, R]) -> Callable[P, R]:
        plain = signature(function)
        own = {name: each for name, each in plain.parameters.items() if each.kind is not Parameter.VAR_KEYWORD}
        known = {*options_of(), *own}

        @wraps(function)
        def run(*arguments: P.args, **options: P.kwargs) -> R:
            for name in options.keys() - known:
                raise TypeError(f"{function.__name__}() takes no argument {name!r}; {near_names(name, known)}")
            return function(*arguments, **options)

        options = [each for each in fields(CollectionSpec) if each.name not in (*own, *without)]
        more = [Parameter(f.name, Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type) for f in options]
        run.__signature__ = plain.replace(parameters=[*own.values(), *more])  # type: ignore[attr-defined]
        run.__doc__ = (function.__doc__ or "").replace("{options}", options_text([each.name for each in options]))
        return run

    return accepting


def options_text(names: Iterable[str]) -> str:
    """Describe some options of a collection for the ``Args`` section of a docstring."""
    known = {name: options_of()[name] for name in names}
    lines = [f"{name}: {each.help}{f' None: {each.unset}.' if each.unset else ''}" for name, each in known.items()]
    return f"\n{' ' * 8}".join(lines)
