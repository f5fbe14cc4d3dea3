"""A figure of a run's loss during training, for stores in the run's folder."""

from collections.abc import Sequence
from typing import Any

from collapse import CollapseError, Drawing, Store, figure
from collapse.errors import counted
from collapse_zoo.runs import STATE, STORES, Run


@figure("run-loss", title="Loss during training", of="stores", source="Wu & Papyan 2024, Figure 5")
def run_loss(stores: Sequence[Store]) -> Drawing:
    """Training loss by step, and validation loss at the checkpoints, of the runs whose stores are given."""
    folders = [each.path.parent for each in stores if each.path is not None]
    runs = [Run(path) for path in dict.fromkeys(each.parent for each in folders if each.name == STORES)]
    rows: list[dict[str, Any]] = []
    for run in runs:
        for line in run.state().get("log_history", ()):
            shown = {"loss": line.get("loss"), "validation": line.get("eval_validation_loss")}
            shown = {key: value for key, value in shown.items() if value is not None}
            if shown:
                rows.append({"run": run.name, "step": line["step"], **shown})
    if not rows:
        raise CollapseError(
            f"this figure needs stores in a run directory RUN, such as RUN/{STORES}/epoch-1, and the file RUN/{STATE}"
        )
    axis = {"tickCount": 5}
    y = {"type": "quantitative", "title": "loss (nats/token)", "scale": {"zero": False}, "axis": axis}
    shared: dict[str, Any] = {"x": {"field": "step", "type": "quantitative", "title": "training step", "axis": axis}}
    if len(runs) > 1:
        shared["color"] = {"field": "run", "type": "nominal", "legend": {"columns": 1, "labelLimit": 170}}
    spec = {
        "data": {"values": rows},
        "encoding": shared,
        "layer": [
            {"mark": {"type": "line", "strokeWidth": 0.8}, "encoding": {"y": {**y, "field": "loss"}}},
            {"mark": {"type": "point", "size": 25}, "encoding": {"y": {**y, "field": "validation"}}},
        ],
    }
    of = counted(len(runs), "run")
    caption = f"Training loss of {of} by step (line), and validation loss at the checkpoints (points)."
    return Drawing(spec, caption)
