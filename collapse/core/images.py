"""Render a Vega-Lite specification to SVG, PDF or PNG with vl-convert, which needs neither a browser nor a network."""

import math
import re
from typing import Any, Literal

from collapse.core.extras import missing_package
from collapse.core.theme import themed
from collapse.errors import CollapseError, UsageError, first_line

Format = Literal["pdf", "svg", "png"]

WIDTHS = {"column": 3.25, "page": 6.75}
"""Widths in inches of a column and of a page, in a two-column paper."""

_POINTS = 72  # points per inch; Vega's pixels become points
_PPI = 300
_SMALLEST_PANEL, _LARGE_PANEL = 36.0, 150.0  # widths in points
_FLAT, _SQUARE = 0.62, 0.95  # height over width: flat for large or many panels, square for few small panels
_FEW = 4
_LOWEST = 76.0  # points; in a lower panel, a long axis title moves the panel's title up, out of line with the others
_NARROW = 4.5 * _POINTS  # a narrower picture has at most two panels and three legend entries side by side
_CLOSE = 0.5  # points; a picture is rendered again if its width differs more from the wanted width
_SIZE = re.compile(r'(<svg[^>]*?) width="([\d.]+)" height="([\d.]+)"')


def inches(width: str | float) -> float:
    """Return a width in inches. ``width`` is a number of inches, also as text, or a name in :data:`WIDTHS`.

    Raises:
        UsageError: ``width`` is neither a number nor a known name.

    >>> inches("column"), inches("5")
    (3.25, 5.0)
    """
    try:
        found = WIDTHS[width] if isinstance(width, str) and width in WIDTHS else float(width)
        if not 0 < found < math.inf:
            raise ValueError(width)
        return found
    except ValueError as error:
        raise UsageError(f"--width must be column, page or a number of inches, got {width!r:.40}") from error


def vl_convert() -> Any:
    """Import vl-convert, or raise a CollapseError that names the extra that installs it."""
    try:
        import vl_convert
    except ImportError as error:
        raise CollapseError(missing_package(error) or first_line(error)) from error
    return vl_convert


def converted(svg: str, form: Format) -> bytes:
    """Convert an SVG picture, made by :func:`svg_of`, to "svg", "pdf" or "png" (with 300 pixels per inch).

    Raises:
        CollapseError: vl-convert cannot render the picture, or is not installed.
    """
    if form == "svg":
        return svg.encode()
    made = _call("svg_to_pdf", svg) if form == "pdf" else _call("svg_to_png", svg, ppi=_PPI)
    return bytes(made)


def svg_of(spec: dict[str, Any], *, width: float = WIDTHS["column"]) -> str:
    """Render a Vega-Lite specification to SVG. The specification must contain its data.

    ``width`` is the printed width of the whole picture in inches. The width of the panels is chosen to fit. Text
    becomes smaller only if the panels cannot become narrow enough. The specification's ``columns`` (panels side by
    side) is reduced to at most 2 if ``width`` is less than 4.5 inches, otherwise to at most 4.

    Raises:
        CollapseError: vl-convert cannot render the specification, or is not installed.
    """
    goal = width * _POINTS
    spec = themed(spec)
    spec["config"]["legend"] = {"columns": 3 if goal < _NARROW else 8, **spec["config"]["legend"]}
    if isinstance(spec.get("columns"), int):
        spec["columns"] = min(spec["columns"], 2 if goal < _NARROW else 4)
    panels = spec.get("concat") or spec.get("hconcat") or [spec]
    columns = len(panels) if "hconcat" in spec else min(spec.get("columns") or 1, len(panels))
    panel, drawn, before = max(0.7 * goal / columns, _SMALLEST_PANEL), 0.0, None
    for _ in range(5):  # only a rendered picture shows how much space its axes and legends need
        svg = _with_panels(spec, panel, few=len(panels) <= _FEW)
        found = _SIZE.search(svg)
        assert found is not None  # vl-convert writes it
        drawn, height = float(found[2]), float(found[3])
        if abs(drawn - goal) <= _CLOSE or drawn == before:  # done, or it cannot become narrower
            break
        panel, before = max(panel + (goal - drawn) / columns, _SMALLEST_PANEL), drawn
    # text shrinks only if the picture cannot become narrow enough
    return _SIZE.sub(rf'\g<1> width="{goal:g}" height="{height * goal / drawn:g}"', svg, count=1)


def _with_panels(spec: dict[str, Any], panel: float, *, few: bool) -> str:
    height = max(panel * (_FLAT if panel > _LARGE_PANEL or not few else _SQUARE), _LOWEST)
    view = {**spec["config"]["view"], "continuousWidth": panel, "continuousHeight": height}
    sized = {**spec, "config": {**spec["config"], "view": view}}
    return str(_call("vegalite_to_svg", sized, allowed_base_urls=[]))


def _call(function: str, *given: Any, **options: Any) -> Any:
    """Call a function of vl-convert; convert its exceptions, including Rust panics, to a CollapseError."""
    called = getattr(vl_convert(), function)
    try:
        return called(*given, **options)
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        raise CollapseError(
            f"the figure cannot be rendered: {first_line(error)} (vl-convert); correct its Vega-Lite specification"
        ) from error
