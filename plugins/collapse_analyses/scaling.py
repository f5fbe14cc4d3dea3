"""Power laws of measurements in the size of models and in the epochs of training."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collapse import CollapseError, Results, Table, analysis
from collapse.errors import UsageError, counted
from collapse.measurement.columns import Column, read_column
from collapse.measurement.model_names import ARCHITECTURE, RECIPE
from collapse_analyses import shown
from collapse_analyses.checking import check_numbers
from collapse_analyses.jackknife import FEWEST, interval, interval_of_slope, without_each
from collapse_analyses.residuals import Codes, Explained, Floats, explained, is_explained
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
    level: float = 0.95,
) -> Table:
    """Fit power laws of measurements in the size of models.

    These are measurement ∝ size^exponent, for width, depth, parameters and epochs. An exponent is the slope of
    log|measurement| on log size by least squares, while depth (or width) and the recipe are held fixed. The fit for
    epochs takes the last checkpoint of each run. A curvature whose interval excludes 0 says that no single exponent
    describes the rows: the exponents of the smaller and of the larger half of the sizes then differ.

    Args:
        columns: Measurements, separated by commas: names, prefixes, arithmetic, or label=expression. The validation
            loss and every measurement by default; paper means the seven of the paper's Table 1.
        where: Keep the rows whose column matches a glob, such as 'decay=0.1'. Rows must match every filter.
        sizes: Sizes, separated by commas. By default width (dim where names do not say it), depth, n_params and epochs,
            where they vary.
        cluster: Leave out together the rows with equal values of this column; by default of architecture, where names
            say it and the size varies between architectures, else rows.
        level: Of the intervals.

    Returns:
        A row a column and size: column, size, exponent, low, high, R2 (of what is not held fixed), rows; curvature,
        curvature_low, curvature_high (of log² size beside log size), exponent_small and exponent_large (of the smaller
        and of the larger half of the sizes). The last five are None of fewer than three sizes.

    Raises:
        UsageError: An unknown column or filter.
        CollapseError: Fewer than 3 rows, no size varies, or no measurement can be fitted.

    >>> from collapse import Row
    >>> rows = [Row(f"2x{d}", None, "", "", 1, 9, d, 99, {"nc1.cdnv": d**-0.5}) for d in (16, 32, 64, 128)]
    >>> [(row["size"], round(row["exponent"], 9)) for row in scaling(Results(rows), columns="nc1.cdnv").records()]
    [('width', -0.5)]
    """
    check_numbers(level=level)
    frame, notes = table_of(results, where)
    wanted = names_of(sizes, frame, "--sizes") or _varying_sizes(frame)
    clusters = names_of(cluster, frame, "--cluster")
    found = _measurements(frame, notes, wanted, columns, len(results))
    records, left_out = [], []
    for column in found.tested:
        if (column.values > 0).any() == (column.values < 0).any() or (column.values == 0).any():
            left_out.append(column.label)
            continue
        records += [_record(found, column, size, clusters, level) for size in wanted]
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
        notes=[*found.notes, *_explain(found.frame, records, clusters, level)],
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


_CURVED = ("curvature", "curvature_low", "curvature_high", "exponent_small", "exponent_large")


def _record(found: Selected, column: Column, size: str, clusters: Sequence[str], level: float) -> dict[str, Any]:
    kept = _kept(found.frame, size)
    frame, y = found.frame.loc[kept], np.log(np.abs(column.values[kept]))
    record: dict[str, Any] = {"column": column.label, "size": size, "exponent": None, "low": None, "high": None}
    record |= {"R2": None, "rows": int(kept.sum()), **dict.fromkeys(_CURVED)}
    fit = _fit(frame, y, size, [])
    if fit is None:
        return record
    model, x_n, y_n = fit
    names = list(clusters) or _own_clusters(frame)
    codes = groups_of(frame, names) if names else None
    record |= dict(zip(("exponent", "low", "high", "R2"), _slope(x_n, y_n, model, codes, level), strict=True))
    x = np.log(frame[size].to_numpy(np.float64))
    sizes = np.unique(x)
    bent = _fit(frame, y, size, [x], power=2) if len(sizes) > 2 else None
    if bent is not None:
        model, x_n, y_n = bent
        record |= dict(zip(_CURVED, _slope(x_n, y_n, model, codes, level, curved=True), strict=False))
        half = (len(sizes) + 1) // 2
        for name, rows in (("exponent_small", x <= sizes[half - 1]), ("exponent_large", x >= sizes[-half])):
            part = _fit(frame.loc[rows], y[rows], size, [])
            record[name] = part and float(part[1] @ part[2] / (part[1] @ part[1]))
    return record


def _fit(
    frame: "pd.DataFrame", y: Floats, size: str, controls: Sequence[Floats], power: int = 1
) -> tuple[Explained, Floats, Floats] | None:
    """What is held fixed, and what it leaves of a power of log size and of y; None if that is nothing."""
    groupings = [groups_of(frame, [name]) for name in _fixed(frame, size)]
    model = explained(len(frame), groupings, controls) if len(frame) >= 3 else None
    x = np.log(frame[size].to_numpy(np.float64))
    x = (x - x.mean()) ** power
    if model is None or model.degrees < 1 or is_explained(x, model.residuals(x)):
        return None
    return model, model.residuals(x), model.residuals(y)


def _slope(
    x_n: Floats, y_n: Floats, model: Explained, clusters_n: Codes | None, level: float, curved: bool = False
) -> tuple[float, float | None, float | None, float | None]:
    """The slope of y on x, its interval, and R²."""
    slope, yy = float(x_n @ y_n / (x_n @ x_n)), float(y_n @ y_n)
    if yy == 0:
        return slope, None, None, None
    without_G = without_each(x_n, y_n, model, clusters_n)[1]
    if curved:  # with a line held fixed too, the plain jackknife is cautious
        found = interval_of_slope(slope, x_n, without_G, model, clusters_n, level)
    else:
        found = interval(slope, without_G, model.degrees if clusters_n is None else int(clusters_n.max()), level)
    low, high, _ = found or [None] * 3
    return slope, low, high, slope**2 * float(x_n @ x_n) / yy


def _kept(frame: "pd.DataFrame", size: str) -> NDArray[np.bool_]:
    """The rows of the fit for a size."""
    if size == "epochs" and "checkpoint" in frame:
        return (frame["checkpoint"] == frame["epochs"] - 1).to_numpy(dtype=np.bool_, na_value=False)
    return np.ones(len(frame), dtype=np.bool_)


def _fixed(frame: "pd.DataFrame", size: str) -> list[str]:
    """What is held fixed in the fit for a size: the columns that have a value in each of its rows."""
    return [name for name in FIXED.get(size, ()) if name in frame and frame[name].notna().all()]


def _own_clusters(frame: "pd.DataFrame") -> list[str]:
    """The clusters of a fit where none are named."""
    return [ARCHITECTURE] if ARCHITECTURE in frame and frame[ARCHITECTURE].nunique() > 1 else []


def _explain(
    frame: "pd.DataFrame", records: Sequence[Mapping[str, Any]], clusters: Sequence[str], level: float
) -> list[str]:
    sizes = list(dict.fromkeys(each["size"] for each in records))
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
    few = f"; –: fewer than {FEWEST}" if any(each["low"] is None for each in records) else ""
    notes.append(f"intervals: jackknife of {' and of '.join(drawn)}, Student's t{few}")
    if any(each["curvature"] is not None for each in records):
        notes.append(
            "curvature: coefficient of log² size beside log size, 0 for a power law; small, large: exponents of the "
            "smaller and of the larger half of the sizes"
        )
    bent = [
        f"{each['column']} in {each['size']}"
        for each in records
        if each["curvature_low"] is not None and not each["curvature_low"] <= 0 <= each["curvature_high"]
    ]
    if bent:
        notes.append(
            f"no single exponent describes {', '.join(bent)}: the {100 * level:g} % interval of curvature excludes 0"
        )
    return notes


def _shown(records: Sequence[Mapping[str, Any]], level: float) -> Table:
    rows = [
        [
            each["column"],
            each["size"],
            shown.signed(each["exponent"]),
            shown.interval(each["low"], each["high"]),
            shown.fixed(each["R2"]),
            each["rows"],
            shown.signed(each["curvature"]),
            shown.interval(each["curvature_low"], each["curvature_high"]),
            shown.signed(each["exponent_small"]),
            shown.signed(each["exponent_large"]),
        ]
        for each in records
    ]
    headings = ["column", "size", "exponent", f"{100 * level:g} % interval", "R²", "rows"]
    return Table("", [*headings, "curvature", "its interval", "small", "large"], rows, keys=2)
