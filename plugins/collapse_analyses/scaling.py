"""Power laws of measurements in the size of models and in the epochs of training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from collapse import CollapseError, Results, Table, analysis
from collapse.errors import counted
from collapse.measurement.columns import choose_rows
from collapse.measurement.model_names import ARCHITECTURE, RECIPE
from collapse.measurement.prepared import prepared
from collapse_analyses.choosing import choose
from collapse_analyses.fits import Codes, Floats, Interval, Jackknife, explained, is_explained
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
            loss and every measurement by default; paper means the seven of the paper's Table 1.
        where: Keep the rows whose column matches a glob, such as 'decay=0.1'. Rows must match every filter.

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
    sizes = _varying_sizes(choose_rows(prepared(results), where))
    chosen = choose(
        results, against=sizes[0], columns=columns, where=where, named={"columns": sizes}, also=["val_loss"]
    )
    frame = chosen.frame
    fitted = [each for each in chosen.tested if (each.values > 0).all() or (each.values < 0).all()]
    log_kn = np.log(np.abs([each.values for each in fitted])).reshape(len(fitted), len(frame))
    of_size = {size: _records(_rows_of(frame, size), size, log_kn) for size in sizes} if fitted else {}
    records = [
        {"column": column.label, "size": size} | found[at]
        for at, column in enumerate(fitted)
        for size, found in of_size.items()
        if found
    ]
    if not records:
        raise CollapseError(
            "no power law can be fitted: a measurement needs one sign in all rows, and a size must vary while the rest "
            "is fixed"
        )
    notes, signs = list(chosen.notes), [each.label for each in chosen.tested if each not in fitted]
    notes += [f"not fitted: {', '.join(signs)} (zero, or of both signs)"] if signs else []
    notes += _explain(frame, records)
    return table_of(f"Power laws, {counted(len(frame), 'row')}", records, notes, _HEADINGS, keys=2)


def _varying_sizes(frame: "pd.DataFrame") -> list[str]:
    there = [name for name in FIXED if name in frame and frame[name].nunique() > 1]
    if "width" in there and "dim" in there:
        there.remove("dim")
    if not there:
        raise CollapseError(f"no size varies in the table: {', '.join(FIXED)}")
    return there


def _rows_of(frame: "pd.DataFrame", size: str) -> "pd.DataFrame":
    """Return the rows of the fit for a size, numbered as in the table: of epochs, the last checkpoint of each run."""
    frame = frame.reset_index(drop=True)
    if size == "epochs" and "checkpoint" in frame:
        return frame[(frame["checkpoint"] == frame["epochs"] - 1).fillna(False)]
    return frame


def _fixed(frame: "pd.DataFrame", size: str) -> list[str]:
    """Return what is held fixed in the fit for a size: the columns that have a value in each of its rows."""
    return [name for name in FIXED[size] if name in frame and frame[name].notna().all()]


def _clusters(frame: "pd.DataFrame") -> Codes | None:
    """Return what intervals leave out at a time: architectures, if names say several; None for rows."""
    several = ARCHITECTURE in frame and frame[ARCHITECTURE].nunique() > 1
    return _codes(frame, ARCHITECTURE) if several else None


def _codes(frame: "pd.DataFrame", name: str) -> Codes:
    return frame.groupby(name).ngroup().to_numpy(np.int64)


@dataclass(frozen=True)
class _Fit:
    """A power of log size (rows,) and columns (k, rows), without what is held fixed."""

    x_n: Floats
    y_kn: Floats
    fits: Jackknife

    def slopes(self) -> list[float]:
        """Return the slope of each column on the power of log size."""
        return [float(slope) for slope in self.y_kn @ self.x_n / (self.x_n @ self.x_n)]

    def intervals(self, *, curved: bool) -> list[Interval]:
        """Return the interval of each slope; with a line held fixed too, the plain jackknife is cautious."""
        products = self.fits.products(np.concatenate([self.x_n[None], self.y_kn]))
        found = []
        for at, slope in enumerate(self.slopes(), start=1):
            slope_G = products[:, 0, at] / products[:, 0, 0]
            of_slope = self.fits.interval_of_slope(slope, self.x_n, slope_G)
            found.append(of_slope if curved else self.fits.interval(slope, slope_G))
        return found


def _fit(frame: "pd.DataFrame", size: str, log_kn: Floats, power: int = 1) -> _Fit | None:
    """Fit columns, given by their logarithms, to a power of log size beside the lower ones; None if that is nothing."""
    if len(frame) < 3:
        return None
    x_n = np.log(frame[size].to_numpy(np.float64))
    x_n = x_n - x_n.mean()
    model = explained(len(x_n), [_codes(frame, name) for name in _fixed(frame, size)], [x_n] if power > 1 else [])
    x_n = x_n**power
    if model.degrees < 1 or is_explained(x_n, model.residuals(x_n)):
        return None
    return _Fit(model.residuals(x_n), model.residuals(log_kn[:, frame.index]), Jackknife(model, _clusters(frame)))


def _records(frame: "pd.DataFrame", size: str, log_kn: Floats) -> list[dict[str, Any]]:
    """Fit every column, given by its logarithms, for one size; [] if what is held fixed leaves nothing of it."""
    straight = _fit(frame, size, log_kn)
    if straight is None:
        return []
    shares = straight.x_n @ straight.x_n / (straight.y_kn**2).sum(axis=1)
    records = []
    ends = straight.intervals(curved=False)
    for slope, (low, high, _), share in zip(straight.slopes(), ends, shares, strict=True):
        record = {"exponent": slope, "low": low, "high": high, "R2": float(slope**2 * share), "rows": len(frame)}
        records.append(record | dict.fromkeys(_CURVED))
    sizes = np.unique(frame[size])
    bent = _fit(frame, size, log_kn, power=2) if len(sizes) > 2 else None
    if bent is None:
        return records
    for record, slope, (low, high, _) in zip(records, bent.slopes(), bent.intervals(curved=True), strict=True):
        record |= {"curvature": slope, "curvature_low": low, "curvature_high": high}
    half = (len(sizes) + 1) // 2
    halves = {"exponent_small": frame[size] <= sizes[half - 1], "exponent_large": frame[size] >= sizes[-half]}
    for name, rows in halves.items():
        part = _fit(frame[rows], size, log_kn)
        for record, slope in zip(records, part.slopes() if part else (), strict=False):
            record[name] = slope
    return records


def _explain(frame: "pd.DataFrame", records: Sequence[Mapping[str, Any]]) -> list[str]:
    """How to read the numbers."""
    notes = ["exponent: slope of log|measurement| on log size; R²: share of what is not held fixed"]
    for size in dict.fromkeys(each["size"] for each in records):
        rows = _rows_of(frame, size)
        fixed = " and ".join(_fixed(rows, size)) or "nothing"
        units = "rows" if _clusters(rows) is None else "architectures"
        last = f" ({counted(len(rows), 'last checkpoint')})" if len(rows) < len(frame) else ""
        notes.append(f"{size}{last}: {fixed} held fixed; intervals: jackknife of {units}, Student's t")
    if any(each["curvature"] is not None for each in records):
        notes.append(
            "curvature: coefficient of log² size beside log size, 0 for a power law; small, large: exponents of the "
            "smaller and of the larger half of the sizes"
        )
    sure = [each for each in records if each["curvature_low"] is not None]
    bent = [each for each in sure if not each["curvature_low"] <= 0 <= each["curvature_high"]]
    if bent:
        said = ", ".join(f"{each['column']} in {each['size']}" for each in bent)
        notes.append(f"no single exponent describes {said}: the 95 % interval of curvature excludes 0")
    return notes
