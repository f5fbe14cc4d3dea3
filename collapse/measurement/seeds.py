"""Compute how much measurements vary between models that differ only in their seed, to judge a difference."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collapse.errors import CollapseError, counted
from collapse.measurement.comparable import mixed
from collapse.measurement.model_names import parts_of
from collapse.measurement.part_errors import Error
from collapse.measurement.prepared import of_top
from collapse.measurement.results import Results
from collapse.plugin.plugin_manager import plugins

_SEEDS = ("seed", "init_seed")
"""Values in a model's name that are seeds."""


def spread_of_seeds(
    seeds: Results | str | Path, models: Sequence[Mapping[str, Any]], min_count: int = 1
) -> tuple[dict[str, Error], list[str]]:
    """Return the standard deviation of each measurement over seeds of given models, and notes.

    A row of the table belongs to a model if both have the same d and number of parameters, and if their names give the
    same values (``collapse_model_parts``) except for seeds. The deviations of different models are pooled.

    Args:
        seeds: The table, its file, or its name.
        models: One mapping per model, with its name (``model``), ``dim`` and ``n_params``.
        min_count: The ``--min-count`` of the comparison. Rows with this value are used. If there are none, all rows are
            used, and a note says so.

    Raises:
        UsageError: ``seeds`` is neither a results file nor the name of a table.
        CollapseError: The table has fewer than two seeds of a model, is missing, or cannot be read.
    """
    table, left_out = of_top(seeds if isinstance(seeds, Results) else Results.read(seeds))
    frame, notes = table.frame(), [f"seeds: {each}" for each in left_out]
    # tables without the column, such as the published ones, are of all classes
    limits = frame.assign(min_count=frame.get("min_count", 1))["min_count"].fillna(1).astype(int)
    if (limits == min_count).any():
        frame = frame[limits == min_count]
    else:
        theirs = " and ".join(f"{each:,}" for each in sorted(limits.unique()))
        notes.append(f"seeds: measured with --min-count {theirs}, A and B with {min_count:,}")
    source = "the table" if isinstance(seeds, Results) else str(seeds)
    groups = [_apart_from_seeds(each) for each in frame.to_dict("records")]
    ours = dict.fromkeys(map(_apart_from_seeds, models))
    for group in ours:
        if groups.count(group) < 2:
            has = f"{source} has {counted(groups.count(group), 'model')} of {group}, but a standard deviation needs two"
            raise CollapseError(f"{has}: measure models that differ from A and B in their seed only")
    frame = frame.assign(group=groups)[[group in ours for group in groups]]
    known = [name for name in plugins().measurements() if name in frame and frame[name].dtype.kind in "iuf"]
    of_group = frame.groupby("group")[known]
    freedom = (of_group.count() - 1).clip(lower=0)
    deviations = ((of_group.var() * freedom).sum() / freedom.sum()) ** 0.5  # NaN where no group has two values
    pooled = " of A and B, pooled" if len(ours) > 1 else ""
    how = f"seeds' sd: over {len(frame)} seeds{pooled} ({source})"
    notes += [f"seeds: {remark}" for remark in mixed(frame.to_dict("records"))]
    return {name: (sd, int(freedom[name].sum()), how) for name, sd in deviations.dropna().items()}, notes


def _apart_from_seeds(model: Mapping[Any, Any]) -> str:
    """Describe a model by its size, and by the values in its name except seeds."""
    import pandas as pd

    size = {name: int(model[name]) for name in ("dim", "n_params") if pd.notna(model.get(name))}
    parts = {name: value for name, value in parts_of(str(model.get("model"))).items() if name not in _SEEDS}
    return ", ".join(f"{name} {value}" for name, value in (size | parts).items())
