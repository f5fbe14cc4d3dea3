"""Every figure of every plugin, drawn; or the reason why it is not."""

from dataclasses import dataclass

from collapse.errors import CollapseError
from collapse.figures.sources import Material
from collapse.measurement.drawing import draw
from collapse.plugin.figures import Drawing, Figure
from collapse.plugin.plugin_manager import plugins
from collapse.progress import Report


@dataclass(frozen=True)
class Drawn:
    """A figure of the report.

    Attributes:
        figure: Its declaration.
        drawing: What was drawn, or None.
        why_not: Why it is not drawn, or "".
    """

    figure: Figure
    drawing: Drawing | None
    why_not: str = ""


def draw_all(material: Material, progress: Report | None = None) -> list[Drawn]:
    """Draw every figure for which there is something; a figure that fails costs only itself."""
    figures = list(plugins().figures.values())
    made = []
    for done, figure in enumerate(figures):
        if progress is not None:
            progress("figures", done, len(figures))
        made.append(_drawn(figure, material))
    if progress is not None and figures:
        progress("figures", len(figures), len(figures))
    return made


def _drawn(figure: Figure, material: Material) -> Drawn:
    made_of = material.of(figure.of)
    if not len(made_of):
        return Drawn(figure, None, f"it is drawn from {figure.of}, and none is given")
    try:
        return Drawn(figure, draw(figure.name, made_of))
    except CollapseError as error:
        return Drawn(figure, None, str(error))
