"""Training curves: the loss and the properties of collapse at each checkpoint of a run."""

from collapse import CollapseError, Drawing, Results, figure
from collapse.core.steps import run_and_step
from collapse.errors import counted
from collapse.plugin.plugin_manager import plugins
from collapse_figures.panels import axis, curves
from collapse_figures.tables import MEASUREMENTS, colour_of, measured, remarks


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
            "needs two checkpoints of one run: a column step, or models named after their step or epoch, such as "
            "run/checkpoint-100, run-step100, owner/name@step100 or TinyStories-02x0768_03d@2"
        )
    geometric = bool(kept[along].median() < kept[along].max() / 5)
    x = axis("x", along, kept[along], title=times[along], format=",d" if geometric else "~s", log=geometric)
    if geometric:  # a log axis that has 0
        x = x.scale(type="symlog", nice=False)
    names = [name for name in MEASUREMENTS if name in plugins().headlines()]
    spec = curves(kept, names, x, along, colour_of(kept, names="run"), ["run"], collapsed=True)
    checkpoints = counted(len(kept[["run", along]].drop_duplicates()), "checkpoint")
    of = f"{checkpoints} of {counted(kept['run'].nunique(), 'run')}"
    caption = (
        f"Loss and measurements of {of}, a line per run, against {times[along]}. The dashed line is the value at full "
        "collapse, where an axis can show it."
    )
    return Drawing(spec, caption, notes=remarks(kept))
