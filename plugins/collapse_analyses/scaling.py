"""Power laws of measurements in the size of models and in the epochs of training."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from collapse import CollapseError, Results, Table, analysis
from collapse.errors import counted
from collapse.measurement.columns import choose_rows
from collapse.measurement.model_names import ARCHITECTURE, RECIPE
from collapse.measurement.prepared import prepared
from collapse_analyses.choosing import choose, groups_of
from collapse_analyses.fits import Codes, Floats, Jackknife, explained, is_explained
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
"""Sizes, and what is held fixed in the fit for each, where the table has it."""
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

    These are measurement ∝ size^exponent, for width, depth, parameters and epochs, where they vary. An exponent is the
    slope of log|measurement| on log size by least squares, while depth (or width) and the recipe are held fixed. The
    fit for epochs takes the last checkpoint of each run. Intervals leave out an architecture at a time, where names say
    it. A curvature whose interval excludes 0 says that no single exponent describes the rows: the exponents of the
    smaller and of the larger half of the sizes then differ.

    Args:
        columns: Measurements, separated by commas: names, prefixes, arithmetic, or label=expression. The validation
            loss and every measurement by default; paper means the seven of Table 1.
        where: Keep the rows whose column matches a glob, such as 'decay=0.1'.

    Returns:
        A row a column and size: column, size, rows, exponent, low, high, R2 (of what is not held fixed); curvature,
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
    sizes = _varying_sizes(choose_rows(prepared(results), where))
    options: dict[str, Any] = {"columns": columns, "where": where, "also": ["val_loss"]}
    chosen = choose(results, against=sizes[0], needs=sizes, **options)
    frame = chosen.frame.reset_index(drop=True)
    signs = [each.label for each in chosen.tested if (each.values <= 0).any() and (each.values >= 0).any()]
    fitted = [each for each in chosen.tested if each.label not in signs]
    records = _records(frame, sizes, {each.label: np.log(np.abs(each.values)) for each in fitted})
    if not records:
        raise CollapseError(
            "no power law can be fitted: a measurement needs one sign in all rows, and a size must vary while the rest "
            "is fixed"
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
            f"no power law can be fitted: none of {', '.join(FIXED)} varies between the rows. Give a table of models "
            "of several sizes"
        )
    return there


def _rows_of(frame: "pd.DataFrame", size: str) -> "pd.DataFrame":
    """Return the rows of the fit for a size: of epochs, the last checkpoint of each run."""
    if size == "epochs" and "checkpoint" in frame:
        return frame[(frame["checkpoint"] == frame["epochs"] - 1).fillna(False)]
    return frame


def _fixed(frame: "pd.DataFrame", size: str) -> list[str]:
    """Return what is held fixed in the fit for a size: the columns that have a value in each of its rows."""
    return [name for name in FIXED[size] if name in frame and frame[name].notna().all()]


def _clusters(frame: "pd.DataFrame") -> Codes | None:
    """Return what intervals leave out at a time: architectures, if names say several; None for rows."""
    several = ARCHITECTURE in frame and frame[ARCHITECTURE].nunique() > 1
    return groups_of(frame, [ARCHITECTURE]) if several else None


def _fit(frame: "pd.DataFrame", size: str, log_kn: Floats, power: int = 1) -> Floats:
    """Fit columns, given by their logarithms, to a power of log size beside the lower ones.

    Returns:
        (4, k) slopes, the ends of their intervals, and R² of what is not held fixed; NaN where nothing is left to fit.
    """
    found = np.full((4, len(log_kn)), np.nan)
    if len(frame) < 3:
        return found
    x_n = np.log(frame[size].to_numpy(np.float64))
    x_n = x_n - x_n.mean()
    fixed = [groups_of(frame, [name]) for name in _fixed(frame, size)]
    model = explained(len(x_n), fixed, [x_n] if power > 1 else [])
    x_n = x_n**power
    left_n, left_kn = model.residuals(x_n), model.residuals(log_kn[:, frame.index])
    if model.degrees < 1 or is_explained(x_n, left_n):
        return found
    fits, square = Jackknife(model, _clusters(frame)), left_n @ left_n
    products = fits.products(np.concatenate([left_n[None], left_kn]))
    for at, y_n in enumerate(left_kn):
        slope, slope_G = float(y_n @ left_n / square), products[:, 0, at + 1] / products[:, 0, 0]
        # with a line held fixed too, the plain jackknife is cautious
        ends = fits.interval(slope, slope_G) if power == 1 else fits.interval_of_slope(slope, left_n, slope_G)
        found[:, at] = slope, *ends[:2], slope**2 * square / (y_n @ y_n or 1.0)  # an end that is None becomes NaN
    return found


def _records(frame: "pd.DataFrame", sizes: Sequence[str], logs: Mapping[str, Floats]) -> list[dict[str, Any]]:
    """Fit each column, given by its logarithms, to each size that still varies while the others are held fixed."""
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
    """How to read the numbers."""
    notes = [
        "exponent: slope of log|measurement| on log size; R²: share of what is not held fixed",
        "curvature: coefficient of log² size beside log size, 0 for a power law; small, large: exponents of the "
        "smaller and of the larger half of the sizes",
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
