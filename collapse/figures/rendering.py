"""Render a specification to SVG, PDF or PNG with vl-convert, which needs neither a browser nor a network."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal

from collapse.errors import CollapseError, UsageError, first_line
from collapse.extras import missing_package
from collapse.figures.theme import themed

Format = Literal["pdf", "svg", "png"]

WIDTHS = {"column": 3.25, "page": 6.75}
"""Inches: one column of a paper of two, and its whole page."""

NARROWEST, WIDEST = 1.5, 40.0
_POINTS = 72  # an inch; Vega's pixels become points
_PPI = 300
_SMALLEST_PANEL, _LARGE_PANEL = 36.0, 150.0
_FLAT, _SQUARE = 0.62, 0.95  # height over width, of large or many panels and of small and few
_FEW = 4
_LOWEST = 76.0  # points; an axis title longer than its panel is high would lift the panel's title above the others
_NARROW = 4.5 * _POINTS  # then two panels are side by side, and three entries of a legend
_CLOSE = 0.5  # points
_SIZE = re.compile(r'(<svg[^>]*?) width="([\d.]+)" height="([\d.]+)"')


def inches(width: str | float) -> float:
    """Return a width in inches: a number, or a name of :data:`WIDTHS`.

    Raises:
        UsageError: It is neither, or outside 1.5 to 40 inches.

    >>> inches("column"), inches("5")
    (3.25, 5.0)
    """
    try:
        found = WIDTHS[width] if isinstance(width, str) and width in WIDTHS else float(width)
    except ValueError as error:
        raise UsageError(f"--width must be column, page or a number of inches, got {width!r:.40}") from error
    if not NARROWEST <= found <= WIDEST:
        raise UsageError(f"--width must be from {NARROWEST} to {WIDEST:g} inches, got {width}")
    return found


def check_installed() -> None:
    """Raise a CollapseError that names the extra if vl-convert is not installed."""
    _vl_convert()


def rendered(spec: dict[str, Any], form: Format, *, width: float = WIDTHS["column"], dark: bool = False) -> bytes:
    """Render a specification at a width in print.

    The width of its panels is chosen so that the whole picture has this width and text keeps its size. Panels side by
    side (``columns``) become two at the width of a column, and at most four at that of a page.

    Args:
        spec: A Vega-Lite specification with its data inside.
        form: "pdf", "svg" or "png" (300 pixels an inch).
        width: Inches.
        dark: On a dark background.

    Raises:
        CollapseError: vl-convert cannot render it, or is not installed.
    """
    return converted(svg_of(spec, width=width, dark=dark), form)


def converted(svg: str, form: Format) -> bytes:
    """Return a picture of :func:`svg_of` in another format; raises as :func:`rendered`."""
    if form == "svg":
        return svg.encode()
    vl_convert = _vl_convert()
    with _refusals(f"write it as {form}"):
        return bytes(vl_convert.svg_to_pdf(svg) if form == "pdf" else vl_convert.svg_to_png(svg, ppi=_PPI))


def svg_of(spec: dict[str, Any], *, width: float = WIDTHS["column"], dark: bool = False) -> str:
    """Render a specification to SVG, as :func:`rendered` does; raises as it does."""
    goal = width * _POINTS
    spec = _narrowed(themed(spec, dark=dark), narrow=goal < _NARROW)
    columns = _columns(spec)
    tried: list[tuple[float, float]] = []
    panel = max(0.7 * goal / columns, _SMALLEST_PANEL)
    for _ in range(5):
        svg = _converted_at(spec, panel)
        size = _size(svg)[0]
        tried.append((panel, size))
        if abs(size - goal) <= _CLOSE:
            break
        slope = columns if len(tried) < 2 else (size - tried[-2][1]) / ((panel - tried[-2][0]) or 1)
        following = max(panel + (goal - size) / slope, _SMALLEST_PANEL) if slope > 0.1 else panel
        if following == panel:  # it has sizes of its own, or cannot become narrower
            break
        panel = following
    return _scaled(svg, goal)


def _converted_at(spec: dict[str, Any], panel: float) -> str:
    ratio = _FLAT if panel > _LARGE_PANEL or len(spec.get("concat") or ()) > _FEW else _SQUARE
    height = max(panel * ratio, _LOWEST)
    sizes = {"continuousWidth": panel, "continuousHeight": height}
    config = {**spec["config"], "view": {**spec["config"]["view"], **sizes}}
    vl_convert = _vl_convert()
    with _refusals("render it"):
        return str(vl_convert.vegalite_to_svg({**spec, "config": config}, vl_version=_version(), allowed_base_urls=[]))


@contextmanager
def _refusals(what: str) -> Iterator[None]:
    """Make a CollapseError of whatever vl-convert raises; a panic of its Rust code is no Exception."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
        raise
    except BaseException as error:
        raise CollapseError(f"vl-convert cannot {what}: {first_line(error)}") from error


def _narrowed(spec: dict[str, Any], *, narrow: bool) -> dict[str, Any]:
    """Return a specification with fewer panels and entries of legends side by side, if there is no room for more."""
    legend = {"columns": 3 if narrow else 8, **spec["config"]["legend"]}
    spec = {**spec, "config": {**spec["config"], "legend": legend}}
    if not isinstance(spec.get("columns"), int):
        return spec
    return {**spec, "columns": min(spec["columns"], 2 if narrow else 4)}


def _columns(spec: dict[str, Any]) -> int:
    """Return the number of panels side by side, to begin with; the true one follows from the first two pictures."""
    if "hconcat" in spec:
        return max(len(spec["hconcat"]), 1)
    return max(min(spec.get("columns") or 1, len(spec.get("concat") or [0] * 100)), 1)


def _size(svg: str) -> tuple[float, float]:
    found = _SIZE.search(svg)
    if found is None:
        raise CollapseError("vl-convert made a picture without a size")
    return float(found[2]), float(found[3])


def _scaled(svg: str, goal: float) -> str:
    """Return a picture of exactly this width; text shrinks only if the picture cannot become narrow enough."""
    width, height = _size(svg)
    return _SIZE.sub(rf'\g<1> width="{goal:g}" height="{height * goal / width:g}"', svg, count=1)


def _vl_convert() -> Any:
    try:
        import vl_convert
    except ImportError as error:
        raise CollapseError(missing_package(error) or first_line(error)) from error
    return vl_convert


@cache
def _version() -> str:
    """Return the newest version of Vega-Lite that vl-convert has."""
    return str(max(_vl_convert().get_vegalite_versions(), key=lambda each: tuple(map(int, each.split(".")))))
