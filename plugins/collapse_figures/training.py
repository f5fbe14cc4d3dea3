"""Draw the loss and the properties of collapse along the checkpoints of a run, or along the layers of a model."""

from typing import TYPE_CHECKING, Any

from collapse import CollapseError, Drawing, Results, figure
from collapse.core.steps import run_and_step
from collapse.errors import counted
from collapse.measurement.prepared import LAYER_DEPTH
from collapse.plugin.plugin_manager import plugins
from collapse_figures.panels import axis, curves
from collapse_figures.tables import MEASUREMENTS, Colour, colour_of, measured, remarks

if TYPE_CHECKING:
    import pandas as pd


@figure("training", title="Loss and neural collapse during training", source="Wu & Papyan 2024, Figure 5")
def training(results: Results) -> Drawing:
    """Loss and every headline measurement at the checkpoints of each run, by training step or epoch."""
    frame = measured(results)
    frame["run"] = [run_and_step(str(model))[0] for model in frame["model"]]
    times = {"step": "training step"} if "step" in frame else {}
    if "checkpoint" in frame:
        frame["epochs_trained"] = frame["checkpoint"] + 1
        times["epochs_trained"] = "epochs trained"
    for along in times:
        kept = frame.dropna(subset=[along])
        kept = kept[kept.groupby("run")[along].transform("nunique") > 1].reset_index(drop=True)
        if len(kept):
            break
    else:
        raise CollapseError(
            "this figure needs two checkpoints of one run: add a column step, or name models after their step or "
            "epoch, such as run/checkpoint-100, run-step100, owner/name@step100 or TinyStories-02x0768_03d@2"
        )
    geometric = bool(kept[along].median() < kept[along].max() / 5)
    x = axis("x", along, kept[along], title=times[along], format=",d" if geometric else "~s", log=geometric)
    if geometric:  # a log axis that has 0
        x = x.scale(type="symlog", nice=False)
    known = plugins().headlines()
    names = [each for name in MEASUREMENTS if name in known for each in (name, f"val_{name}")]
    spec = curves(kept, names, x, along, colour_of(kept, names="run"), ["run"], collapsed=True)
    checkpoints = counted(len(kept[["run", along]].drop_duplicates()), "checkpoint")
    of = f"{checkpoints} of {counted(kept['run'].nunique(), 'run')}"
    caption = (
        f"Loss and measurements of {of}, a line per run, against {times[along]}. The dashed line is the value at full "
        "collapse, where an axis can show it."
    )
    return Drawing(spec, caption, notes=remarks(kept))


@figure("depth", title="Loss and neural collapse along the layers", needs=["layer", "depth"])
def depth(results: Results) -> Drawing:
    """Loss and every headline measurement at each layer, a line per model and step."""
    frame = measured(results, needs=[LAYER_DEPTH])
    frame["run"] = frame.groupby([name for name in ("model", "store", "step") if name in frame], dropna=False).ngroup()
    frame = frame[frame.groupby("run")[LAYER_DEPTH].transform("nunique") > 1].reset_index(drop=True)
    if frame.empty:
        raise CollapseError("this figure needs two layers of one model: use collapse measure --layers all")
    x = axis("x", LAYER_DEPTH, frame[LAYER_DEPTH], title="layer", format="d", tickMinStep=1)
    names = sorted(plugins().headlines(), key=[*MEASUREMENTS, *plugins().headlines()].index)
    colour, more = _colour(frame)
    spec = curves(frame, names, x, LAYER_DEPTH, colour, ["run"], hover=["model", "layer"], collapsed=True, **more)
    caption = (
        f"Loss and measurements of {counted(frame['run'].nunique(), 'model')} at each layer: 0 is the input of the "
        "first block, the last layer is the input of the output embedding. In other layers, the loss and the linear "
        "classifier of NC4 use the model's final norm and output embedding (logit lens). The dashed line is the value "
        "at full collapse, where an axis can show it."
    )
    return Drawing(spec, caption, notes=remarks(frame.drop_duplicates("run").drop(columns="layer")))


def _colour(frame: "pd.DataFrame") -> tuple[Colour | None, dict[str, Any]]:
    """Return the column that determines the colour; if it is the step, also a legend that names some steps."""
    import altair as alt

    runs = {run_and_step(str(model))[0] for model in frame["model"]}
    steps = sorted(frame["step"].dropna().unique()) if "step" in frame else []
    if len(runs) > 1 or len(steps) < 2:
        return Colour("called", "model", "nominal") if 1 < frame["run"].nunique() <= 8 else colour_of(frame), {}
    some = alt.Legend(values=steps[:: -(-len(steps) // 8)])
    return Colour("step", "step", "ordinal"), {"color": alt.Color("step:O", legend=some)}
