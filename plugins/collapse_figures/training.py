"""Training curves: the loss and the properties of collapse at each checkpoint of a run."""

from typing import TYPE_CHECKING

from collapse import CollapseError, Drawing, Results, figure
from collapse.errors import counted
from collapse.measurement.model_names import run_and_step
from collapse_figures.panels import axis, curves
from collapse_figures.tables import colour_of, drawn_in, limits_of_lines, measured, one_of, remarks

if TYPE_CHECKING:
    import pandas as pd


@figure("training", title="Loss and neural collapse during training", source="Wu & Papyan 2024, Figure 5")
def training(results: Results) -> Drawing:
    """Loss and every headline measurement at the checkpoints of each run, by training step or epoch."""
    frame, along, title = _by_time(results)
    lines = ["run", *limits_of_lines(frame)]
    x = axis("x", along, frame[along], title=title, format="~s")
    spec = curves(frame, one_of(frame, drawn_in("curves")), along, x, colour_of(frame, names="run"), lines)
    runs = counted(frame["run"].nunique(), "run")
    checkpoints = counted(len(frame[["run", along]].drop_duplicates()), "checkpoint")
    each = "run" if len(lines) == 1 else "run and limit of --min-count"
    caption = f"Loss and measurements of {checkpoints} of {runs}, a line per {each}, against {title}."
    return Drawing(spec, caption, notes=remarks(frame))


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
