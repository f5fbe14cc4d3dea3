"""Power laws of measurements in the size of models and in the epochs of training."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collapse import CollapseError, Results, Table, analysis, hookimpl
from collapse.errors import UsageError, counted
from collapse.measurement.columns import Column, read_column
from collapse.measurement.model_names import ARCHITECTURE, RECIPE
from collapse.measurement.sheets import Sheet
from collapse_analyses import shown
from collapse_analyses.bootstrap import intervals
from collapse_analyses.checking import check_numbers
from collapse_analyses.residuals import Floats, explained, is_explained
from collapse_analyses.rows import groups_of, names_of
from collapse_analyses.selecting import Selected, select, table_of

if TYPE_CHECKING:
    import pandas as pd

FIXED: Mapping[str, tuple[str, ...]] = {
    "width": ("depth", RECIPE),
    "dim": ("depth", RECIPE),
    "depth": ("width", RECIPE),
    "n_params": (RECIPE,),
    "epochs": (ARCHITECTURE, "decay"),
}
"""Sizes, and what is held fixed in the fit for each, where the table has it."""


@analysis("scaling")
def scaling(
    results: Results,
    *,
    columns: Sequence[str] | None = None,
    where: Sequence[str] | None = None,
    sizes: Sequence[str] | None = None,
    cluster: str | None = None,
    resamples: int = 1_999,
    level: float = 0.95,
    seed: int = 0,
) -> Table:
    """Fit power laws of measurements in the size of models.

    These are measurement ∝ size^exponent, for width, depth, parameters and epochs. An exponent is the slope of
    log|measurement| on log size by least squares, while depth (or width) and the recipe are held fixed. The fit for
    epochs takes the last checkpoint of each run.

    Args:
        columns: Measurements, separated by commas: names, prefixes, arithmetic, or label=expression. The validation
            loss and every measurement by default; paper means the seven of the paper's Table 1.
        where: Keep the rows whose column matches a glob, such as 'decay=0.1'. Rows must match every filter.
        sizes: Sizes, separated by commas. By default width (dim where names do not say it), depth, n_params and epochs,
            where they vary.
        cluster: Resample whole groups of rows with equal values of this column; by default of architecture, where names
            say it and the size varies between architectures, else rows.
        resamples: Number of bootstrap resamples.
        level: Of the intervals.
        seed: Seed of the resamples.

    Returns:
        A row a column and size: column, size, exponent, low, high, R2 (of what is not held fixed), rows.

    Raises:
        UsageError: An unknown column or filter.
        CollapseError: Fewer than 3 rows, no size varies, or no measurement can be fitted.

    >>> from collapse import Row
    >>> rows = [Row(f"2x{d}", None, "", "", 1, 9, d, 99, {"nc1.cdnv": d**-0.5}) for d in (16, 32, 64, 128)]
    >>> [(row["size"], round(row["exponent"], 9)) for row in scaling(Results(rows), columns="nc1.cdnv").records()]
    [('width', -0.5)]
    """
    check_numbers(resamples=(resamples, 1), seed=(seed, 0), level=level)
    frame, notes = table_of(results, where)
    wanted = names_of(sizes, frame, "--sizes") or _varying_sizes(frame)
    clusters = names_of(cluster, frame, "--cluster")
    found = _measurements(frame, notes, wanted, columns, len(results))
    options = {"resamples": resamples, "seed": seed, "level": level}
    records, left_out = [], []
    for column in found.tested:
        if (column.values > 0).any() == (column.values < 0).any() or (column.values == 0).any():
            left_out.append(column.label)
            continue
        records += [_record(found, column, size, clusters, options) for size in wanted]
    records = [record for record in records if record["exponent"] is not None]
    if not records:
        raise CollapseError(
            "no power law can be fitted: a measurement needs one sign in all rows, and a size must vary while the rest "
            "is fixed"
        )
    if left_out:
        found.notes.append(f"not fitted: {', '.join(left_out)} (zero, or of both signs)")
    return Table(
        title=f"Power laws, {counted(len(found.frame), 'row')}",
        columns=list(records[0]),
        rows=[list(record.values()) for record in records],
        notes=[*found.notes, *_explain(found.frame, _fitted(records, wanted), clusters, resamples, seed)],
        shown=_shown(records, level),
    )


def _varying_sizes(frame: "pd.DataFrame") -> list[str]:
    there = [name for name in FIXED if name in frame and frame[name].nunique() > 1]
    if "width" in there and "dim" in there:
        there.remove("dim")
    if not there:
        raise CollapseError(f"no size varies in the table: {', '.join(FIXED)}; name others with --sizes")
    return there


def _measurements(
    frame: "pd.DataFrame", notes: Sequence[str], sizes: Sequence[str], columns: Sequence[str] | None, whole: int
) -> Selected:
    """The measurements to fit, and the first size in the place of a goal; all sizes are numbers above 0."""
    for size in sizes:
        values = read_column(frame, size).values
        if (values <= 0).any():
            raise UsageError(f"{size} is {np.nanmin(values):g} in a row: a size must be above 0 (--sizes)")
    found = select(frame, notes, against=sizes[0], columns=columns, whole=whole, named=sizes)
    if columns is None and "val_loss" in found.frame:
        loss = read_column(found.frame, "val_loss")
        if not np.isnan(loss.values).any() and not is_explained(loss.values, loss.values - loss.values.mean()):
            found.tested.insert(0, loss)
    return found


def _record(
    found: Selected, column: Column, size: str, clusters: Sequence[str], options: Mapping[str, Any]
) -> dict[str, Any]:
    frame = found.frame
    kept = _kept(frame, size)
    record: dict[str, Any] = {"column": column.label, "size": size, "exponent": None, "low": None, "high": None}
    record |= {"R2": None, "rows": int(kept.sum())}
    frame = frame.loc[kept]
    groupings = [groups_of(frame, [name]) for name in _fixed(frame, size)]
    model = explained(len(frame), groupings, []) if len(frame) >= 3 else None
    if model is None or model.degrees < 1:
        return record
    x, y = np.log(frame[size].to_numpy(np.float64)), np.log(np.abs(column.values[kept]))
    x_n, y_n = model.residuals(x), model.residuals(y)
    if is_explained(x, x_n):
        return record
    exponent = float(x_n @ y_n / (x_n @ x_n))
    names = list(clusters) or _own_clusters(frame)
    span = intervals(x_n, y_n, clusters_n=groups_of(frame, names) if names else None, **options).slope
    record["low"], record["high"] = span or (None, None)
    return record | {"exponent": exponent, "R2": _share(x_n, y_n)}


def _kept(frame: "pd.DataFrame", size: str) -> NDArray[np.bool_]:
    """The rows of the fit for a size."""
    if size == "epochs" and "checkpoint" in frame:
        return (frame["checkpoint"] == frame["epochs"] - 1).to_numpy(dtype=np.bool_, na_value=False)
    return np.ones(len(frame), dtype=np.bool_)


def _fixed(frame: "pd.DataFrame", size: str) -> list[str]:
    """What is held fixed in the fit for a size: the columns that have a value in each of its rows."""
    return [name for name in FIXED.get(size, ()) if name in frame and frame[name].notna().all()]


def _fitted(records: Sequence[Mapping[str, Any]], sizes: Sequence[str]) -> list[str]:
    return [size for size in sizes if any(record["size"] == size for record in records)]


def _own_clusters(frame: "pd.DataFrame") -> list[str]:
    """The clusters of a fit where none are named; of two architectures, resamples would say nothing."""
    return [ARCHITECTURE] if ARCHITECTURE in frame and frame[ARCHITECTURE].nunique() > 2 else []


def _share(x_n: Floats, y_n: Floats) -> float | None:
    yy = float(y_n @ y_n)
    return float((x_n @ y_n) ** 2 / ((x_n @ x_n) * yy)) if yy > 0 else None


def _explain(
    frame: "pd.DataFrame", sizes: Sequence[str], clusters: Sequence[str], resamples: int, seed: int
) -> list[str]:
    notes = ["exponent: slope of log|measurement| on log size; R²: share of what is not held fixed"]
    for size in sizes:
        fixed = _fixed(frame.loc[_kept(frame, size)], size)
        last = ", at the last checkpoint" if size == "epochs" and "checkpoint" in frame else ""
        if fixed or last:
            additive = ", their effects on log|measurement| taken as additive" if len(fixed) > 1 else ""
            notes.append(f"{size}: {' and '.join(fixed) or 'nothing'} held fixed{additive}{last}")
    units: dict[str, list[str]] = {}
    for size in sizes:
        names = list(clusters) or _own_clusters(frame.loc[_kept(frame, size)])
        units.setdefault(f"groups of equal {' and '.join(names)}" if names else "rows", []).append(size)
    drawn = [what + (f" ({', '.join(of)})" if len(units) > 1 else "") for what, of in units.items()]
    of_what = " and of ".join(drawn)
    return [*notes, f"intervals: percentiles of {resamples:,} bootstrap resamples of {of_what} (seed {seed})"]


def _shown(records: Sequence[Mapping[str, Any]], level: float) -> Sheet:
    rows = [
        [
            each["column"],
            each["size"],
            shown.signed(each["exponent"]),
            shown.interval(each["low"], each["high"]),
            shown.fixed(each["R2"]),
            each["rows"],
        ]
        for each in records
    ]
    return Sheet(["column", "size", "exponent", f"{100 * level:g} % interval", "R²", "rows"], rows, keys=2)


@hookimpl
def collapse_analyses() -> list[object]:
    """The analyses of this file."""
    return [scaling]
