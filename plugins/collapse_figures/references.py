"""Measurements beside those of null baselines (the untrained model, shuffled labels) and their reachable values."""

import math
from collections.abc import Iterator
from typing import Any

from collapse import CollapseError, Drawing, Results, Row, figure
from collapse.errors import counted
from collapse.plugin.plugin_manager import plugins
from collapse_figures.panels import axis, together
from collapse_figures.reachable import reachable_value
from collapse_figures.tables import MEASUREMENTS, shown

_RANDOM = " (the value that GNC2 can reach is that of random points)"


@figure("nulls", title="Measurements beside their nulls")
def nulls(results: Results) -> Drawing:
    """Headline measurements of each model and its null baselines, with the reachable values; one mark per value."""
    with_nulls = [row for row in results.rows if row.nulls]
    if not with_nulls:
        raise CollapseError(
            "this figure needs rows with null baselines: use collapse measure --null, and save the results as .json"
        )
    kinds = list(dict.fromkeys(kind for row in with_nulls for kind in row.nulls))
    panels = []
    properties = [name for name in MEASUREMENTS if name != "val_loss"]  # the loss comes last
    for name in sorted(plugins().headlines(), key=[*properties, *plugins().headlines()].index):
        values = [each for row in with_nulls for each in _values(row, name)]
        present = {each["of"] for each in values}
        if "model" in present and present & set(kinds):
            panels.append(_panel(name, values, ["model", *kinds, "reachable"]))
    if not panels:
        raise CollapseError(
            "no headline measurement has a value both for a model and for one of its null baselines: use collapse "
            "measure --null without --metrics"
        )
    random = any(row.classes > row.dim + 1 for row in with_nulls)
    models = len({row.store or id(row) for row in with_nulls})  # rows of one store differ in --min-count
    caption = (
        f"Headline measurements of {counted(models, 'model')}, of the null baselines {' and '.join(kinds)} on the "
        "same text, and the values that these classes and dimensions can reach, if an axis can show them. A model "
        f"shows collapse only if it is nearer to these values than its null baselines{_RANDOM if random else ''}."
    )
    left_out = len(results) - len(with_nulls)
    notes = (f"not drawn: {counted(left_out, 'row')} without null baselines",) if left_out else ()
    return Drawing(together(panels), caption, notes=notes)


def _values(row: Row, name: str) -> Iterator[dict[str, Any]]:
    """Yield a measurement's values that an axis can show: those of the model and its null baselines, and the reachable.

    Each has the fields model, name, of (whose value it is) and value. A log axis cannot show a reachable value of 0.
    """
    limit = reachable_value(name, row.classes, row.dim)
    of = {"model": row.measurements.get(name), **{kind: values.get(name) for kind, values in row.nulls.items()}}
    of |= {"reachable": None if shown(name).log and not limit else limit}
    for each, value in of.items():
        if value is not None and math.isfinite(value):
            yield {"model": row.model, "name": name, "of": each, "value": value}


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
