"""Add the options of a collection to the signature and the docstring of a function, as keyword arguments."""

from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import wraps
from inspect import Parameter, signature
from typing import ParamSpec, TypeVar

from collapse.errors import UsageError, near_names
from collapse.inputs.collection_spec import CollectionSpec, options_of

P = ParamSpec("P")
R = TypeVar("R")


def accepts(**refused: str | None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that adds the options of a collection, as keywords, to a function with ``**options``.

    The options are added to the function's signature. Their descriptions replace ``{options}`` in the docstring. An
    unknown argument raises a TypeError that suggests similar names.

    ``refused`` has the options that are not added, each with a reason. If a refused option is given, a UsageError
    states the reason. If the reason is None, a TypeError is raised, as for an unknown argument.
    """

    def accepting(function: Callable[P, R]) -> Callable[P, R]:
        plain = signature(function)
        own = {name: each for name, each in plain.parameters.items() if each.kind is not Parameter.VAR_KEYWORD}
        known = {name for name in options_of() if refused.get(name, name)} | {*own}

        @wraps(function)
        def run(*arguments: P.args, **options: P.kwargs) -> R:
            for name in options.keys() - known:
                raise TypeError(f"{function.__name__}() takes no argument {name!r}; {near_names(name, known)}")
            for name, why in refused.items():
                if options.get(name) is not None:
                    raise UsageError(f"{function.__name__}() takes no {name}: {why}")
            return function(*arguments, **options)

        options = [each for each in fields(CollectionSpec) if each.name not in (*own, *refused)]
        more = [Parameter(f.name, Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type) for f in options]
        run.__signature__ = plain.replace(parameters=[*own.values(), *more])  # type: ignore[attr-defined]
        run.__doc__ = (function.__doc__ or "").replace("{options}", options_text([each.name for each in options]))
        return run

    return accepting


NO_PART = "collect the parts, merge them, and measure the store"
"""Advice for a user who gives ``part`` to a function that measures."""


def options_text(names: Iterable[str]) -> str:
    """Describe some options of a collection for the ``Args`` section of a docstring."""
    known = {name: options_of()[name] for name in names}
    lines = [f"{name}: {each.help}{f' None: {each.unset}.' if each.unset else ''}" for name, each in known.items()]
    return f"\n{' ' * 8}".join(lines)
