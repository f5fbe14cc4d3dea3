"""Measurements beside their nulls: the same of the untrained model and of shuffled labels, and what is reachable."""

import math
from typing import Any

from collapse import CollapseError, Drawing, Results, figure
from collapse.errors import counted
from collapse.plugin.metrics import limit_at
from collapse.plugin.plugin_manager import plugins
from collapse_figures.labels import shown
from collapse_figures.panels import axis, beside

_MODEL, _REACHABLE = "model", "reachable"


@figure("nulls", title="Measurements beside their nulls")
def nulls(results: Results) -> Drawing:
    """Headline measurements of each model, of its nulls, and the values that are reachable; a mark each."""
    having = [row for row in results.rows if row.nulls]
    if not having:
        raise CollapseError("needs rows with nulls: collapse measure --null, and results as .json, which keep them")
    kinds = list(dict.fromkeys(kind for row in having for kind in row.nulls))
    panels = []
    for name in plugins().headlines():
        values = [each for row in having for each in _values(row, name)]
        if any(each["of"] in kinds for each in values) and any(each["of"] == _MODEL for each in values):
            panels.append(_panel(name, values, [_MODEL, *kinds, _REACHABLE]))
    if not panels:
        raise CollapseError("no headline measurement has a value in both a row and one of its nulls")
    models = len({row.store or id(row) for row in having})  # rows of one store differ in --min-count
    caption = (
        f"Headline measurements of {counted(models, 'model')}, of the nulls {' and '.join(kinds)} on the same "
        "text, and the values that these classes and dimensions can reach, if an axis can show them. A model that is "
        "no nearer to these than its nulls are shows no collapse: that of GNC2 is the value of random points."
    )
    left_out = len(results) - len(having)
    notes = (f"{counted(left_out, 'row')} without nulls not drawn",) if left_out else ()
    return Drawing(beside(panels, columns=4), caption, notes=notes)


def _values(row: Any, name: str) -> list[dict[str, Any]]:
    _, measure = plugins().measurements()[name]
    limit = measure.towards if measure.reachable is None else measure.reachable
    of = {_MODEL: row.measurements.get(name)}
    of |= {kind: values.get(name) for kind, values in row.nulls.items()}
    of |= {_REACHABLE: limit_at(limit, row.classes, row.dim)}
    return [
        {"model": row.model, "name": name, "of": each, "value": value}
        for each, value in of.items()
        if value is not None and math.isfinite(value) and (value > 0 or each != _REACHABLE or not shown(name).log)
    ]


def _panel(name: str, values: list[dict[str, Any]], order: list[str]) -> Any:
    import altair as alt

    numbers = [each["value"] for each in values]
    log = shown(name).log and min(numbers) > 0
    return (
        alt.Chart(alt.InlineData(values=values), title=shown(name).title)
        .mark_tick(thickness=1.5)
        .encode(
            x=axis("x", "value", numbers, title=shown(name).axis, log=log),
            y=alt.Y("of:N", title=None, sort=order),
            color=alt.Color("of:N", sort=order, legend=None),
            tooltip=["model:N", "name:N", "of:N", alt.Tooltip("value:Q", format=".4g")],
        )
    )
