"""Power laws of measurements in the size of models and in the epochs of training."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collapse import CollapseError, Results, Table, analysis
from collapse.errors import counted
from collapse.measurement.columns import choose_rows, read_column
from collapse.measurement.model_names import ARCHITECTURE, RECIPE
from collapse.measurement.prepared import prepared
from collapse_analyses import shown
from collapse_analyses.choosing import Chosen, choose
from collapse_analyses.fits import (
    FEWEST,
    Codes,
    Floats,
    explained,
    interval,
    interval_of_slope,
    is_explained,
    products_without_each,
    refits,
)

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
    chosen = choose(results, columns=columns, where=where, named={"": sizes})
    frame, tested = chosen.frame, list(chosen.tested)
    if columns is None and "val_loss" in frame:
        loss = read_column(frame, "val_loss")
        if not np.isnan(loss.values).any() and not is_explained(loss.values):
            tested.insert(0, loss)
    fitted = [each for each in tested if (each.values > 0).all() or (each.values < 0).all()]
    log_kn = np.log(np.abs([each.values for each in fitted])).reshape(len(fitted), len(frame))
    of_size = {size: _records(frame, size, log_kn) for size in sizes} if fitted else {}
    records: list[dict[str, Any]] = []
    for at, column in enumerate(fitted):
        records += [{"column": column.label, "size": size} | found[at] for size, found in of_size.items() if found]
    if not records:
        raise CollapseError(
            "no power law can be fitted: a measurement needs one sign in all rows, and a size must vary while the rest "
            "is fixed"
        )
    if len(fitted) < len(tested):
        gone = [each.label for each in tested if each not in fitted]
        chosen.notes.append(f"not fitted: {', '.join(gone)} (zero, or of both signs)")
    return shown.table_of(
        f"Power laws, {counted(len(frame), 'row')}",
        records,
        [*chosen.notes, *_explain(chosen, records)],
        {
            "column": shown.of("column"),
            "size": shown.of("size"),
            "exponent": shown.of("exponent", shown.signed),
            "95 % interval": lambda record: shown.span("r")({"r_low": record["low"], "r_high": record["high"]}),
            "R²": shown.of("R2", shown.fixed),
            "rows": shown.of("rows"),
            "curvature": shown.of("curvature", shown.signed),
            "its interval": shown.span("curvature"),
            "small": shown.of("exponent_small", shown.signed),
            "large": shown.of("exponent_large", shown.signed),
        },
        keys=2,
    )


def _varying_sizes(frame: "pd.DataFrame") -> list[str]:
    there = [name for name in FIXED if name in frame and frame[name].nunique() > 1]
    if "width" in there and "dim" in there:
        there.remove("dim")
    if not there:
        raise CollapseError(f"no size varies in the table: {', '.join(FIXED)}")
    return there


def _records(frame: "pd.DataFrame", size: str, log_kn: Floats) -> list[dict[str, Any]]:
    """Fit every column, given by its logarithms, for one size; [] if what is held fixed leaves nothing of it."""
    kept = _kept(frame, size)
    frame, log_kn = frame.loc[kept], log_kn[:, kept]
    straight = _slopes(frame, size, log_kn)
    if straight is None:
        return []
    x = np.log(frame[size].to_numpy(np.float64))
    sizes = np.unique(x)
    empty = [dict.fromkeys(("exponent", "low", "high"))] * len(log_kn)
    bent = (_slopes(frame, size, log_kn, curved=True) if len(sizes) > 2 else None) or empty
    small, large = empty, empty
    if bent is not empty:
        half = (len(sizes) + 1) // 2
        halves = (x <= sizes[half - 1], x >= sizes[-half])
        small, large = (_slopes(frame.loc[rows], size, log_kn[:, rows], intervals=False) or empty for rows in halves)
    records = []
    for line, curve, below, above in zip(straight, bent, small, large, strict=True):
        curvature = {
            f"curvature{end}": curve[name] for end, name in (("", "exponent"), ("_low", "low"), ("_high", "high"))
        }
        exponents = {"exponent_small": below["exponent"], "exponent_large": above["exponent"]}
        records.append(line | {"rows": int(kept.sum())} | curvature | exponents)
    return records


def _slopes(
    frame: "pd.DataFrame", size: str, log_kn: Floats, *, curved: bool = False, intervals: bool = True
) -> list[dict[str, Any]] | None:
    """The slope of each column on log size, or curved on its square beside it: exponent, low, high, R2."""
    if len(frame) < 3:
        return None
    x = np.log(frame[size].to_numpy(np.float64))
    x = x - x.mean()
    model = explained(len(x), [_codes(frame, name) for name in _fixed(frame, size)], [x] if curved else [])
    x = x**2 if curved else x
    if model.degrees < 1 or is_explained(x, model.residuals(x)):
        return None
    x_n, y_kn = model.residuals(x), model.residuals(log_kn)
    xx, slope_k = float(x_n @ x_n), y_kn @ x_n / float(x_n @ x_n)
    if not intervals:
        return [{"exponent": float(slope)} for slope in slope_k]
    clusters_n = _codes(frame, ARCHITECTURE) if _by_architecture(frame) else None
    fits = list(refits(model, clusters_n))
    products = products_without_each(np.concatenate([x_n[None], y_kn]), fits)
    degrees = model.degrees if clusters_n is None else int(clusters_n.max())
    found = []
    for at, (slope, y_n) in enumerate(zip(slope_k, y_kn, strict=True), start=1):
        slope_G = products[:, 0, at] / products[:, 0, 0]
        # with a line held fixed too, the plain jackknife is cautious
        span = interval_of_slope(slope, x_n, slope_G, fits) if curved else interval(slope, slope_G, degrees)
        low, high, _ = span or [None] * 3
        r2 = float(slope**2 * xx / (y_n @ y_n)) if y_n.any() else None
        found.append({"exponent": float(slope), "low": low, "high": high} | ({} if curved else {"R2": r2}))
    return found


def _kept(frame: "pd.DataFrame", size: str) -> NDArray[np.bool_]:
    """The rows of the fit for a size: of epochs, those of the last checkpoint of each run."""
    if size == "epochs" and "checkpoint" in frame:
        return (frame["checkpoint"] == frame["epochs"] - 1).to_numpy(dtype=np.bool_, na_value=False)
    return np.ones(len(frame), dtype=np.bool_)


def _fixed(frame: "pd.DataFrame", size: str) -> list[str]:
    """What is held fixed in the fit for a size: the columns that have a value in each of its rows."""
    return [name for name in FIXED[size] if name in frame and frame[name].notna().all()]


def _by_architecture(frame: "pd.DataFrame") -> bool:
    """Whether intervals leave out an architecture at a time, because names say several; else a row."""
    return ARCHITECTURE in frame and frame[ARCHITECTURE].nunique() > 1


def _codes(frame: "pd.DataFrame", name: str) -> Codes:
    return frame.groupby(name).ngroup().to_numpy(np.int64)


def _explain(chosen: Chosen, records: Sequence[Mapping[str, Any]]) -> list[str]:
    """How to read the numbers."""
    notes = ["exponent: slope of log|measurement| on log size; R²: share of what is not held fixed"]
    units: dict[str, list[str]] = {}
    for size in dict.fromkeys(each["size"] for each in records):
        frame = chosen.frame.loc[_kept(chosen.frame, size)]
        fixed = _fixed(frame, size)
        last = ", at the last checkpoint" if size == "epochs" and "checkpoint" in frame else ""
        if fixed or last:
            additive = ", their effects on log|measurement| taken as additive" if len(fixed) > 1 else ""
            notes.append(f"{size}: {' and '.join(fixed) or 'nothing'} held fixed{additive}{last}")
        units.setdefault("groups of equal architecture" if _by_architecture(frame) else "rows", []).append(size)
    drawn = [what + (f" ({', '.join(of)})" if len(units) > 1 else "") for what, of in units.items()]
    few = f"; –: fewer than {FEWEST}" if any(each["low"] is None for each in records) else ""
    notes.append(f"intervals: jackknife of {' and of '.join(drawn)}, Student's t{few}")
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
