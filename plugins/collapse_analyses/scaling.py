"""Fit power laws of measurements in the size of models and in the epochs of training."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from collapse import CollapseError, Results, Table, analysis
from collapse.errors import counted
from collapse.measurement.columns import choose_rows
from collapse.measurement.model_names import ARCHITECTURE, RECIPE
from collapse.measurement.prepared import prepared
from collapse_analyses.choosing import choose, groups_of
from collapse_analyses.fits import Codes, Floats, Jackknife, linear_model
from collapse_analyses.shown import SHARE, SIGNED, Cell, table_of

if TYPE_CHECKING:
    import pandas as pd

FIXED: Mapping[str, tuple[str, ...]] = {
    "width": ("depth", RECIPE),
    "dim": ("depth", RECIPE),
    "depth": ("width", RECIPE),
    "n_params": (RECIPE,),
    "epochs": (ARCHITECTURE, "decay"),
}
"""For each size, the columns that the fit of this size holds fixed, if the table has these columns."""
_NUMBERS = ("exponent", "low", "high", "R2")
_CURVED = ("curvature", "curvature_low", "curvature_high", "exponent_small", "exponent_large")
_HEADINGS: Mapping[str, Cell] = {
    "column": "column",
    "size": "size",
    "exponent": ("exponent", SIGNED),
    "95 % interval": ("low", "high", SIGNED),
    "R²": ("R2", SHARE),
    "rows": "rows",
    "curvature": ("curvature", SIGNED),
    "its interval": ("curvature_low", "curvature_high", SIGNED),
    "small": ("exponent_small", SIGNED),
    "large": ("exponent_large", SIGNED),
}


@analysis("scaling")
def scaling(
    results: Results,
    *,
    columns: Sequence[str] | None = None,
    where: Sequence[str] | None = None,
) -> Table:
    """Fit power laws of measurements in the size of models.

    The power laws are measurement ∝ size^exponent, for width, depth, parameters and epochs if they vary. An exponent is
    the least-squares slope of log|measurement| on log size. Each fit holds other columns fixed: for width, depth and
    the recipe; for depth, width and the recipe; for parameters, the recipe; for epochs, the architecture and the weight
    decay. The fit for epochs uses the last checkpoint of each run. Jackknife intervals leave out one architecture at a
    time, if architectures are known. If the interval of the curvature excludes 0, no single exponent describes the
    rows; then compare the exponents of the smaller and the larger half of the sizes.

    Args:
        columns: Measurements, separated by commas: names, prefixes, arithmetic, or label=expression. The validation
            loss and every measurement by default. The word paper means the seven measurements of Table 1.
        where: Keep the rows whose column matches a glob, such as 'decay=0.1'.

    Returns:
        A row per column and size: column, size, rows, exponent, low, high, R2 (of the variation that the fixed columns
        do not explain); curvature, curvature_low, curvature_high (coefficient of log² size), exponent_small and
        exponent_large (of the smaller and the larger half of the sizes). The last five are None for fewer than three
        sizes.

    Raises:
        UsageError: A column or filter is unknown.
        CollapseError: There are fewer than 3 rows, no size varies, or no measurement can be fitted.

    >>> from collapse import Row
    >>> rows = [Row(f"2x{d}", None, "", "", 1, 9, d, 99, {"nc1.cdnv": d**-0.5}) for d in (16, 32, 64, 128)]
    >>> [(row["size"], round(row["exponent"], 9)) for row in scaling(Results(rows), columns="nc1.cdnv").records()]
    [('width', -0.5)]
    """
    sizes = _varying_sizes(choose_rows(prepared(results), where))
    options: dict[str, Any] = {"columns": columns, "where": where, "also": ["val_loss"]}
    chosen = choose(results, against=sizes[0], needs=sizes, **options)
    frame = chosen.frame.reset_index(drop=True)
    signs = [each.label for each in chosen.tested if (each.values <= 0).any() and (each.values >= 0).any()]
    fitted = [each for each in chosen.tested if each.label not in signs]
    records = _records(frame, sizes, {each.label: np.log(np.abs(each.values)) for each in fitted})
    if not records:
        raise CollapseError(
            "no power law can be fitted: give a measurement that has the same sign (and no zeros) in all rows, and a "
            "table with models that differ in one size only, such as models of one depth and recipe but several widths"
        )
    notes = [*chosen.notes, *([f"not fitted: {', '.join(signs)} (zero, or of both signs)"] if signs else [])]
    notes += _explain(frame, records)
    return table_of(f"Power laws, {counted(len(frame), 'row')}", records, notes, _HEADINGS, keys=2)


def _varying_sizes(frame: "pd.DataFrame") -> list[str]:
    there = [name for name in FIXED if name in frame and frame[name].nunique() > 1]
    if "width" in there and "dim" in there:
        there.remove("dim")
    if not there:
        raise CollapseError(
            f"no power law can be fitted: none of the columns {', '.join(FIXED)} has different values in different "
            "rows. Give a table of models of several sizes"
        )
    return there


def _rows_of(frame: "pd.DataFrame", size: str) -> "pd.DataFrame":
    """Return the rows to fit a law in the column ``size``; for "epochs", only the last checkpoint of each run."""
    if size == "epochs" and "checkpoint" in frame:
        return frame[(frame["checkpoint"] == frame["epochs"] - 1).fillna(False)]
    return frame


def _fixed(frame: "pd.DataFrame", size: str) -> list[str]:
    """Return the columns that a fit in ``size`` holds fixed: those of ``FIXED`` with a value in every row."""
    return [name for name in FIXED[size] if name in frame and frame[name].notna().all()]


def _clusters(frame: "pd.DataFrame") -> Codes | None:
    """Return the architecture of each row, as codes; None if the rows have fewer than two architectures.

    The jackknife then leaves out one architecture at a time; without codes, it leaves out one row at a time.
    """
    several = ARCHITECTURE in frame and frame[ARCHITECTURE].nunique() > 1
    return groups_of(frame, [ARCHITECTURE]) if several else None


def _fit(frame: "pd.DataFrame", size: str, log_kn: Floats, power: int = 1) -> Floats:
    """Regress the logarithms of k columns on (log size)^power, while the columns in FIXED are held fixed.

    First, the effects of the columns in FIXED are subtracted from the logarithms and from (log size)^power. If
    ``power`` is 2, the effect of log size is subtracted too.

    Returns:
        For each column, its slope, the lower and upper end of the slope's interval, and R² of the variation that
        remains after the subtraction, shape (4, k). NaN if there are fewer than 3 rows, or no variation remains.
    """
    found = np.full((4, len(log_kn)), np.nan)
    if len(frame) < 3:
        return found
    x_n = np.log(frame[size].to_numpy(np.float64))
    x_n = x_n - x_n.mean()
    fixed = [groups_of(frame, [name]) for name in _fixed(frame, size)]
    model = linear_model(len(x_n), fixed, [x_n] if power > 1 else [])
    x_n = x_n**power
    left_n, left_kn = model.residuals(x_n), model.residuals(log_kn[:, frame.index])
    if model.degrees < 1 or model.explains(x_n):
        return found
    fits, square = Jackknife(model, _clusters(frame)), left_n @ left_n
    products = fits.products(np.concatenate([left_n[None], left_kn]))
    for at, y_n in enumerate(left_kn):
        slope, slope_G = float(y_n @ left_n / square), products[:, 0, at + 1] / products[:, 0, 0]
        # with power 2, log size is also held fixed, and intervals of the plain jackknife would be too wide
        ends = fits.interval(slope, slope_G) if power == 1 else fits.interval_of_slope(slope, left_n, slope_G)
        found[:, at] = slope, *ends[:2], slope**2 * square / (y_n @ y_n or 1.0)  # ends of None become NaN
    return found


def _records(frame: "pd.DataFrame", sizes: Sequence[str], logs: Mapping[str, Floats]) -> list[dict[str, Any]]:
    """Return a record per column and size; skip sizes that do not vary while the columns in FIXED are fixed."""
    records, log_kn = [], np.reshape([*logs.values()], (len(logs), len(frame)))
    for size in sizes:
        rows = _rows_of(frame, size)
        line = _fit(rows, size, log_kn)
        if np.isnan(line[0]).all():
            continue
        bent, values = _fit(rows, size, log_kn, power=2), np.unique(rows[size])
        half = (len(values) + 1) // 2
        halves = rows[rows[size] <= values[half - 1]], rows[rows[size] >= values[-half]]
        ends = np.where(np.isnan(bent[0]), np.nan, [_fit(part, size, log_kn)[0] for part in halves])
        numbers_k9 = np.concatenate([line, bent[:3], ends]).T.tolist()
        for column, numbers in zip(logs, numbers_k9, strict=True):
            named = zip((*_NUMBERS, *_CURVED), numbers, strict=True)
            found = {name: None if np.isnan(number) else number for name, number in named}
            records.append({"column": column, "size": size, "rows": len(rows)} | found)
    columns = list(logs)
    return sorted(records, key=lambda record: columns.index(record["column"]))


def _explain(frame: "pd.DataFrame", records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return notes on how to read the numbers."""
    notes = [
        "exponent: slope of log|measurement| on log size; R²: share of the remaining variation that the size explains",
        "curvature: coefficient of log² size, 0 for a power law; small, large: exponents of the smaller and the larger "
        "half of the sizes",
    ]
    for size in dict.fromkeys(each["size"] for each in records):
        rows = _rows_of(frame, size)
        fixed = " and ".join(_fixed(rows, size)) or "nothing"
        units = "rows" if _clusters(rows) is None else "architectures"
        last = f" ({counted(len(rows), 'last checkpoint')})" if len(rows) < len(frame) else ""
        notes.append(f"{size}{last}: {fixed} held fixed; intervals: jackknife of {units}, Student's t")
    bent = [
        f"{each['column']} in {each['size']}"
        for each in records
        if each["curvature_low"] is not None and not each["curvature_low"] <= 0 <= each["curvature_high"]
    ]
    if bent:
        notes.append(f"no single exponent describes {', '.join(bent)}: the 95 % interval of curvature excludes 0")
    return notes
