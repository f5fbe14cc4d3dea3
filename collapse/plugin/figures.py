"""Declare figures: functions that take a results table or stores, and return a Vega-Lite specification."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from collapse.core.images import Format, converted, inches, svg_of
from collapse.core.paths import expanded
from collapse.errors import UsageError
from collapse.plugin.metrics import Declared, Function, check_name, declare

Of = Literal["results", "stores", "parts"]


@dataclass(frozen=True)
class Drawing:
    """What a figure's function returns.

    Attributes:
        spec: A Vega-Lite specification with its data inside: a dictionary, or an Altair chart, which is converted.
        caption: A caption in sentences, as in a paper: what is drawn, from which data.
        title: A title that replaces the declared one, or "".
        notes: Remarks, such as rows excluded for missing values.
    """

    spec: Any
    caption: str
    title: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if hasattr(self.spec, "to_dict"):
            object.__setattr__(self, "spec", self.spec.to_dict())

    def _repr_mimebundle_(self, *_: Any, **__: Any) -> Any:  # for notebooks
        import altair

        return altair.renderers.get()(self.spec)

    def save(self, path: str | Path, *, width: str | float = "column") -> None:
        """Write the picture to a .pdf, .svg or .png file (extra ``report``).

        Args:
            path: The file.
            width: "column" (3.25 inches), "page" (6.75 inches), or a number of inches.

        Raises:
            UsageError: The file has another suffix, or the width is unknown.
            CollapseError: The extra is not installed.
        """
        kind = Path(path).suffix.lower().removeprefix(".")
        if kind not in get_args(Format):
            raise UsageError(f"a picture cannot be saved as {path}: choose a name with .pdf, .svg or .png")
        svg = svg_of({**self.spec, "description": self.title}, width=inches(width))
        expanded(path).write_bytes(converted(svg, cast(Format, kind)))


@dataclass(frozen=True)
class Figure(Declared):
    """A declared figure; its attributes are the arguments of :func:`figure`."""

    name: str
    title: str
    of: Of
    needs: tuple[str, ...] = ()
    source: str = ""


def figure(
    name: str, *, title: str, of: Of = "results", needs: Sequence[str] = (), source: str = ""
) -> Callable[[Function], Function]:
    """Declare a function ``f`` that takes what ``of`` says, and returns a :class:`collapse.Drawing`.

    The columns in ``needs`` are checked before f is called. If anything else is missing, such as rows, f must raise a
    :class:`collapse.CollapseError` that says what is missing.

    Args:
        name: Lower-case letters, digits, _ and -, with a letter first; part of the file names.
        title: One line, shown above the figure.
        of: What the function takes. With "results", it takes a :class:`collapse.Results`; with "stores", a list of
            :class:`collapse.Store`; with "parts", a list of :class:`collapse.Part`. The parts
            (``collapse collect --part k/n``) can belong to several collections.
        needs: With "results", the columns that the table must have, each with at least one number. With "stores", the
            names of what each store must hold: counts, means, variances, classifier, validation, n_params, or a
            statistic's name. Only a figure that needs the column ``layer`` gets the rows of all layers of a table;
            other figures get only the rows of the layer ``top``.
        source: Where such a figure is published, such as "Wu & Papyan 2024, Figure 1".

    Raises:
        PluginError: The name is invalid.
    """
    check_name("figure", name)
    return lambda function: declare(function, Figure(function, name, title, of, tuple(needs), source))


def numbers_of(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of data that a specification holds, in order.

    >>> views = [{"data": {"values": [{"x": 1}]}}, {"data": {"name": "d"}}]
    >>> numbers_of({"hconcat": views, "datasets": {"d": [{"y": 2}]}})
    [{'x': 1}, {'y': 2}]
    """
    found: list[dict[str, Any]] = []
    for key, value in spec.items():
        if key == "data" and isinstance(value, Mapping):
            found += value.get("values") or []
        elif key == "datasets" and isinstance(value, Mapping):
            found += [row for rows in value.values() for row in rows]
        elif isinstance(value, Mapping):
            found += numbers_of(value)
        elif isinstance(value, list):
            found += [row for each in value if isinstance(each, Mapping) for row in numbers_of(each)]
    return found
