"""How much measurements vary between models that differ only in their seed, to judge a difference."""

from pathlib import Path

from collapse.errors import CollapseError, counted
from collapse.measurement.comparable import mixed
from collapse.measurement.model_names import part_names, with_parts
from collapse.measurement.results import Results
from collapse.plugin.plugin_manager import plugins

_SEEDS = ("seed", "init_seed")
"""Values in a model's name that are seeds."""


def spread_of_seeds(seeds: Results | str | Path, min_count: int = 1) -> tuple[dict[str, float], list[str]]:
    """Return the standard deviation of each measurement over seeds, pooled over groups of models, and notes.

    Which rows differ only in their seed follows from the models' names (``collapse_model_parts``). If no name is known,
    all rows are treated as seeds of one model.

    Args:
        seeds: The table, its file, or its name.
        min_count: ``--min-count`` of the compared stores. Rows with this value are used; if there are none, all rows
            are used and a note says so.

    Raises:
        UsageError: There is no such name or file.
        CollapseError: No two rows differ only in their seed, or the table cannot be read.
    """
    frame, notes = with_parts((seeds if isinstance(seeds, Results) else Results.read(seeds)).frame()), list[str]()
    rows = len(frame)
    # tables without this column, such as the published ones, include all classes
    limits = frame.assign(min_count=frame.get("min_count", 1))["min_count"].fillna(1).astype(int)
    if (limits == min_count).any():
        frame = frame[limits == min_count]
    else:
        theirs = " and ".join(f"{each:,}" for each in sorted(limits.unique()))
        notes.append(f"seeds: measured with --min-count {theirs}, A and B with {min_count:,}")
    others = [name for name in part_names(frame) if name not in _SEEDS]
    frame = frame.assign(group=frame.groupby(others, dropna=False).ngroup() if others else 0)
    frame = frame[frame.duplicated("group", keep=False)]
    if frame.empty:
        raise CollapseError(
            f"no two of {counted(rows, 'row')} differ only in their seed: give a table with at least two such models"
        )
    known = [name for name in plugins().measurements() if name in frame and frame[name].dtype.kind in "iuf"]
    groups = frame.groupby("group")[known]
    freedom = (groups.count() - 1).clip(lower=0)
    deviations = ((groups.var() * freedom).sum() / freedom.sum()) ** 0.5  # NaN where no group has two values
    sizes = frame["group"].nunique()
    of = "" if sizes == 1 else f", pooled over {sizes} sizes and recipes"
    source = f" ({seeds})" if not isinstance(seeds, Results) else ""
    note = f"seeds' sd: standard deviation over {len(frame)} models that differ only in their seed{source}{of}"
    remarks = [f"seeds: {remark}" for remark in mixed(frame.to_dict("records"))]
    return deviations.dropna().to_dict(), [note, *notes, *remarks]
