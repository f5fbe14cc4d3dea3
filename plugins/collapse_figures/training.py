"""Training curves: the loss and the properties of collapse at each checkpoint of a run."""

from typing import TYPE_CHECKING, Any

from collapse import CollapseError, Drawing, Results, figure
from collapse.errors import counted
from collapse.measurement.model_names import run_and_step
from collapse_figures.labels import shown
from collapse_figures.panels import axis, coloured, logged, together
from collapse_figures.scaling import HEADLINES
from collapse_figures.tables import colour_of, field, having, limits_of_lines, measured, records, remarks

if TYPE_CHECKING:
    import pandas as pd

_FEW = 6  # ticks


@figure("training", title="Loss and neural collapse during training", source="Wu & Papyan 2024, Figure 5")
def training(results: Results) -> Drawing:
    """Loss and every headline measurement at the checkpoints of each run, by training step or epoch."""
    import altair as alt

    frame, along, title = _by_time(results)
    present = having(frame, HEADLINES)
    if not present:
        raise CollapseError(f"needs one of {', '.join(HEADLINES)}, of which the table has no value")
    colour = colour_of(frame, names="run")
    lines = ["run", *limits_of_lines(frame)]
    panels = [
        alt.Chart(title=shown(name).title)
        .mark_line(point={"size": 10, "strokeWidth": 0}, strokeWidth=0.8)
        .encode(
            x=_time_axis(frame, along, title),
            y=axis("y", name, frame[name], log=logged(frame, name)),
            detail=[f"{each}:N" for each in lines],
            tooltip=[alt.Tooltip("model:N"), alt.Tooltip(f"{field(name)}:Q", title=name, format=".4g")],
            **coloured(colour),
        )
        for name in present
    ]
    rows = records(frame, ["model", *lines, along, *present, *([colour.column] if colour else [])])
    runs = counted(frame["run"].nunique(), "run")
    checkpoints = counted(len(frame[["run", along]].drop_duplicates()), "checkpoint")
    each = "run" if len(lines) == 1 else "run and limit of --min-count"
    caption = f"Loss and measurements of {checkpoints} of {runs}, a line per {each}, against {title}."
    return Drawing(together(panels, rows), caption, notes=remarks(frame))


def _time_axis(frame: "pd.DataFrame", along: str, title: str) -> Any:
    import altair as alt

    times = sorted({float(each) for each in frame[along]})
    found = axis("x", along, times, title=title)
    if len(times) <= _FEW:
        found.axis = alt.Axis(values=times, format="~s")
    return found


def _by_time(results: Results) -> "tuple[pd.DataFrame, str, str]":
    """Return the checkpoints of runs with two or more of them, the column of their time, and its title."""
    frame = measured(results)
    frame["run"] = [run_and_step(str(model))[0] for model in frame["model"]]
    times = {"step": "training step"} if "step" in frame else {}
    if "checkpoint" in frame:
        frame["epochs_trained"] = frame["checkpoint"] + 1
        times["epochs_trained"] = "epochs trained"
    for along, title in times.items():
        kept = frame.dropna(subset=[along])
        several = kept.groupby("run")[along].transform("nunique") > 1
        if several.any():
            return kept[several].reset_index(drop=True), along, title
    raise CollapseError(
        "needs two checkpoints of one run: a column step, or models named after their step or epoch, such as "
        "run/checkpoint-100, run-step100, owner/name@step100 or TinyStories-02x0768_03d@2"
    )
