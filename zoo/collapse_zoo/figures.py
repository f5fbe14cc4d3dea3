"""The loss of every training step of a run, found through the stores that lie in its folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collapse import CollapseError, Drawing, Store, figure
from collapse.errors import counted
from collapse_zoo.runs import CURVE, RECORD, STORES, Run

_MOST = 2_000  # points, of all runs together


@figure("run-loss", title="Loss during training", of="stores", source="in the manner of Wu & Papyan 2024, Figure 5")
def run_loss(stores: Sequence[Store]) -> Drawing:
    """Training loss by step, and validation loss after each epoch, of the runs whose stores are given."""
    folders = list(dict.fromkeys(found for each in stores if (found := _run_of(each)) is not None))
    rows: list[dict[str, Any]] = []
    for folder in folders:
        run, lines = Run(folder), Run(folder).curve()
        name = str(run.record.get("name", folder.name))
        steps = [{"run": name, "step": each["step"], "loss": each["loss"]} for each in lines if "loss" in each]
        rows += steps[:: max(1, -(-len(steps) * len(folders) // _MOST))]
        ends = [each for each in lines if each.get("validation_loss") is not None]
        rows += [{"run": name, "step": each["step"], "validation": each["validation_loss"]} for each in ends]
    if not rows:
        raise CollapseError(f"needs stores in the folder of a run, RUN/{STORES}/epoch-1, beside its {CURVE}")
    axis = {"tickCount": 5}
    y = {"type": "quantitative", "title": "loss (nats/token)", "scale": {"zero": False}, "axis": axis}
    shared: dict[str, Any] = {"x": {"field": "step", "type": "quantitative", "title": "training step", "axis": axis}}
    if len(folders) > 1:
        shared["color"] = {"field": "run", "type": "nominal", "legend": {"columns": 1, "labelLimit": 170}}
    hover = [{"field": name, "type": kind} for name, kind in (("run", "nominal"), ("step", "quantitative"))]
    spec = {
        "data": {"values": rows},
        "encoding": shared,
        "layer": [
            {"mark": {"type": "line", "strokeWidth": 0.8}, "encoding": {"y": {**y, "field": "loss"}}},
            {
                "mark": {"type": "point", "size": 25},
                "encoding": {"y": {**y, "field": "validation"}, "tooltip": [*hover, {"field": "validation"}]},
            },
        ],
    }
    caption = (
        f"Training loss of {counted(len(folders), 'run')} by step (line), and validation loss after each epoch "
        f"(points). At most {_MOST:,} steps are drawn."
    )
    left = len(stores) - sum(_run_of(each) is not None for each in stores)
    return Drawing(spec, caption, notes=(f"{counted(left, 'store')} in no run's folder left out",) if left else ())


def _run_of(store: Store) -> Path | None:
    """Return the folder of the run that a store lies in, as ``RUN/stores/epoch-1``."""
    if store.path is None or store.path.parent.name != STORES:
        return None
    folder = store.path.parent.parent
    return folder if (folder / RECORD).is_file() and (folder / CURVE).is_file() else None
