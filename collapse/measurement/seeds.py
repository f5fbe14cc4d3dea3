"""The yardstick of a difference: how much measurements vary between models that differ in their seed only."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from collapse.errors import CollapseError, UsageError, counted
from collapse.measurement.comparing import mixed
from collapse.measurement.model_names import part_names, with_parts
from collapse.measurement.results import Results
from collapse.plugin.plugin_manager import plugins

if TYPE_CHECKING:
    import pandas as pd

_SEEDS = ("seed", "init_seed")
"""Parts of a model's name in which seeds differ."""


@dataclass(frozen=True)
class Spread:
    """Standard deviations over models that differ in their seed only.

    Attributes:
        deviations: Standard deviation by measurement, pooled over groups of such models.
        notes: What the models are, and why they may be no yardstick.
    """

    deviations: Mapping[str, float]
    notes: list[str]


def spread_of_seeds(seeds: Results | str | Path | None, *, min_count: int = 1) -> Spread | None:
    """Return the spread of the measurements over the seeds in a results table.

    Rows differ in their seed only if the names of their models say so (``collapse_model_parts``). In a table whose
    names say nothing, all rows are seeds of one model.

    Args:
        seeds: The table, its file, or its name; None for none.
        min_count: Of what is compared: of a table with several, the rows with this one are taken; a note says if the
            table has another.

    Raises:
        UsageError: There is no such name or file.
        CollapseError: No two rows differ in their seed only, or the table cannot be read.
    """
    if seeds is None:
        return None
    if not isinstance(seeds, Results | str | Path):
        raise UsageError(f"seeds is of type {type(seeds).__name__}: give a results table, its file or its name")
    frame, limits = _with_limit((seeds if isinstance(seeds, Results) else Results.read(seeds)).frame(), min_count)
    groups = _groups(frame)
    if not groups:
        raise CollapseError(
            f"of {counted(len(frame), 'row')} no two differ in their seed only: a spread needs two models or more"
        )
    known = [name for name in plugins().measurements() if name in frame and frame[name].dtype.kind in "iuf"]
    deviations = {name: pooled for name in known if (pooled := _pooled([group[name] for group in groups])) is not None}
    models = sum(map(len, groups))
    of = "" if len(groups) == 1 else f", pooled over {len(groups)} sizes and recipes"
    source = f" ({seeds})" if not isinstance(seeds, Results) else ""
    note = f"seeds' sd: standard deviation over {models} models that differ in their seed only{source}{of}"
    remarks = [f"seeds: {remark}" for remark in mixed(each for group in groups for each in group.to_dict("records"))]
    return Spread(deviations, [note, *limits, *remarks])


def _with_limit(frame: "pd.DataFrame", min_count: int) -> "tuple[pd.DataFrame, list[str]]":
    """Return the rows measured with this ``--min-count``; else all, with a note.

    Tables without the column, such as the published ones, are of all classes.
    """
    limits = frame["min_count"].fillna(1).astype(int) if "min_count" in frame else frame.index.to_series() * 0 + 1
    if (limits == min_count).any() or frame.empty:
        return frame[limits == min_count], []
    theirs = " and ".join(f"{each:,}" for each in sorted(limits.unique()))
    return frame, [f"seeds: measured with --min-count {theirs}, A and B with {min_count:,}"]


def _groups(frame: "pd.DataFrame") -> list["pd.DataFrame"]:
    """Return the rows of models that differ in their seed only, at least two in each group."""
    whole = with_parts(frame)
    others = [name for name in part_names(whole) if name not in _SEEDS]
    groups = [group for _, group in whole.groupby(others, dropna=False)] if others else [frame]
    return [group for group in groups if len(group) > 1]


def _pooled(groups: list["pd.Series[float]"]) -> float | None:
    """Return the standard deviation within groups, (n − 1) in each; None if no group has two values."""
    kept = [values for group in groups if len(values := group.dropna()) > 1]
    freedom = sum(len(values) - 1 for values in kept)
    return float((sum(values.var() * (len(values) - 1) for values in kept) / freedom) ** 0.5) if kept else None
