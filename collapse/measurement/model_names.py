"""Read values such as depth, width and epochs from models' names, and add them to a table as columns."""

from typing import TYPE_CHECKING

from collapse.core.steps import run_and_step
from collapse.plugin.plugin_manager import plugins

if TYPE_CHECKING:
    import pandas as pd

ARCHITECTURE, RECIPE = "architecture", "recipe"
"""Columns for analyses: models of one size share an architecture, and models that were trained alike share a recipe."""


def parts_of(model: str) -> dict[str, int | float | str]:
    """Return the values in a model's name, as the first plugin that knows the name reads them.

    If no plugin knows the name, return the training step in the name, or {} if the name has no training step.

    Raises:
        PluginError: A plugin failed.

    >>> parts_of("TinyStories-12x1024_10L@9")["width"]
    1024
    """
    for _, found in plugins().answers("collapse_model_parts", model):
        if found is not None:
            return dict(found)
    step = run_and_step(model)[1]
    return {} if step is None else {"step": step}


def with_parts(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Add to a table columns with the values in its models' names; existing columns stay unchanged.

    Rows with unknown names get missing values. A table without the column ``model`` is returned unchanged.

    >>> import pandas as pd
    >>> made = with_parts(pd.DataFrame({"model": ["02x0064_01d07@0", "mine"]}))
    >>> made[["width", "seed", "architecture"]].values.tolist()
    [[64.0, 7.0, '2x64'], [nan, nan, nan]]
    """
    if "model" not in frame:
        return frame
    import pandas as pd

    parts = pd.DataFrame([parts_of(str(model)) for model in frame["model"]], index=frame.index)
    return frame.join(parts[[name for name in parts if name not in frame]])


def training_of(frame: "pd.DataFrame", groups: object) -> str | None:
    """Return the first of the columns recipe, checkpoint and step that differs within a group; None if none does.

    A column with missing values is skipped.

    Args:
        frame: A table with the columns that :func:`with_parts` adds from the models' names.
        groups: The group of each row, or a column's name.
    """
    for name in (RECIPE, "checkpoint", "step"):
        if name in frame and frame[name].notna().all() and (frame.groupby(groups)[name].nunique() > 1).any():
            return name
    return None
