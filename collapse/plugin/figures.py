"""Declarations of figures: a function of a results table, or of stores, that returns a Vega-Lite specification."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

from collapse.errors import PluginError, near_names
from collapse.plugin.measures import name_of

Of = Literal["results", "stores", "parts"]
Function = TypeVar("Function", bound=Callable[..., Any])

FIGURE = "__collapse_figure__"
_NAME = re.compile(r"[a-z][a-z0-9_-]*")


@dataclass(frozen=True)
class Drawing:
    """What a figure's function returns.

    Attributes:
        spec: A Vega-Lite specification with its data inside: a dictionary, or an Altair chart.
        caption: What is drawn and of what, in sentences, as under a figure of a paper.
        title: Another title than the declared one, or "".
        notes: Remarks, such as rows left out for missing values.
    """

    spec: Any
    caption: str
    title: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figure:
    """A declared figure: its name, its function, and the keywords of :func:`figure`."""

    name: str
    function: Callable[..., Any]
    title: str
    of: Of
    needs: tuple[str, ...] = ()
    source: str = ""

    @property
    def called(self) -> str:
        """The function's full name, for messages."""
        return f"{self.function.__module__}.{name_of(self.function)}"

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (self.function.__doc__ or "").strip().split("\n")[0]


def figure(
    name: str, *, title: str, of: Of = "results", needs: Sequence[str] = (), source: str = ""
) -> Callable[[Function], Function]:
    """Declare ``f(results) -> Drawing`` or, with ``of="stores"`` or ``of="parts"``, ``f(stores) -> Drawing``.

    A function that cannot draw what it is given raises a :class:`collapse.CollapseError` that says what is missing.

    Args:
        name: Lower-case letters, digits, _ and -: part of the names of files.
        title: One line, shown above the figure.
        of: "results" for a function of a results table, "stores" for one of a list of stores, "parts" for one of stores
            that are parts of collections (``collapse collect --part k/n``), of any number of them, of which
            :func:`collapse.convergence` measures growing merges.
        needs: Columns in which the results must have a number; of stores, what each must hold: counts, means,
            variances, classifier, validation, n_params, or a statistic's name.
        source: Where such a figure is published, such as "Wu & Papyan 2024, Figure 1".

    Raises:
        PluginError: The declaration is wrong; the message names the keyword.
    """

    def declare(function: Function) -> Function:
        try:
            _check(name, title, of, needs)
        except PluginError as error:
            called = f"{getattr(function, '__module__', '?')}.{name_of(function)}"
            raise PluginError(f"the declaration of {called} is wrong: {error}") from error
        setattr(function, FIGURE, Figure(name, function, title, of, tuple(needs), source))
        return function

    return declare


def declared_figure(function: Any) -> Figure:
    """Return the :class:`Figure` that the decorator attached to a function.

    Raises:
        PluginError: The function was not declared.
    """
    found = getattr(function, FIGURE, None)
    if not isinstance(found, Figure):
        name = getattr(function, "__qualname__", None) or f"{function!r:.60}"
        raise PluginError(f"{name} is not declared as a figure: decorate it with @figure")
    return found


def _check(name: Any, title: Any, of: Any, needs: Any) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise PluginError(f"{name!r:.40} is not a figure name: use lower-case letters, digits, _ and -")
    if not isinstance(title, str) or not title.strip():
        raise PluginError(f"title={title!r:.40}: give one line of text")
    if of not in get_args(Of):
        raise PluginError(f"of={of!r:.40}: there is no such choice; {near_names(str(of), get_args(Of))}")
    if isinstance(needs, str):
        raise PluginError(f"needs={needs!r:.60}: give a list of names, such as ['val_loss']")


def numbers_of(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of data that a specification holds, in order.

    >>> views = [{"data": {"values": [{"x": 1}]}}, {"data": {"name": "d"}}]
    >>> numbers_of({"hconcat": views, "datasets": {"d": [{"y": 2}]}})
    [{'x': 1}, {'y': 2}]
    """
    found: list[dict[str, Any]] = []
    for key, value in spec.items():
        if key == "data":
            found += value.get("values") or []
        elif key == "datasets":
            found += [row for rows in value.values() for row in rows]
        else:
            views = value if isinstance(value, list) else [value]
            found += [row for each in views if isinstance(each, Mapping) for row in numbers_of(each)]
    return found
