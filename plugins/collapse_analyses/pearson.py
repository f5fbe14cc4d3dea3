"""Pearson's correlations with the goal, their intervals, and the sign that collapse predicts."""

from typing import TYPE_CHECKING, Any

import numpy as np

from collapse.measurement.columns import Column
from collapse.plugin.metrics import Limit, limit_at
from collapse.plugin.plugin_manager import plugins
from collapse_analyses.choosing import LOGARITHM, Chosen
from collapse_analyses.fits import Codes, Correlation, Floats, Jackknife

if TYPE_CHECKING:
    import pandas as pd


def correlated(chosen: Chosen, left_kn: Floats, fits: Jackknife) -> list[tuple[dict[str, Any], Correlation]]:
    """Correlate the residuals of each column, after groups and controls, with the residuals of the goal.

    Args:
        chosen: The columns.
        left_kn: Residuals of each column, the goal last, shape (k, rows).
        fits: The fits without each row or cluster.

    Returns:
        For each column its r, r_low, r_high, predicted, agrees and R2; and the correlation.
    """
    left_kn = left_kn / np.abs(left_kn).max(axis=1, keepdims=True)
    widths = one_width(chosen.frame) or any(one_width(chosen.frame, each) for each in chosen.groupings)
    goal = direction(chosen.goal, chosen.frame, widths)
    made = []
    for column, found in zip(chosen.tested, fits.correlations(left_kn), strict=True):
        r, low, high, *_ = found
        lower = direction(column, chosen.frame, widths)
        # no sign is predicted with two groupings: their residuals need not rise together even if the columns do
        known = lower is not None and goal is not None and len(chosen.groupings) < 2
        sign = ("r > 0" if lower == goal else "r < 0") if known else None
        sure = sign is not None and low is not None and high is not None and low * high > 0
        record = {"r": r, "r_low": low, "r_high": high, "predicted": sign}
        made.append((record | {"agrees": (r > 0) == (sign == "r > 0") if sure else None, "R2": r**2}, found))
    return made


def direction(column: Column, frame: "pd.DataFrame", one_width: bool) -> int | None:
    """Return 1 if lower values are better (nearer to full collapse), −1 if higher values are, None if unknown.

    The column's expression determines its measurement, not its label; a logarithm has the direction of its measurement.
    A value in units of h has no direction if models of several widths are compared, because the unit differs.

    Args:
        column: The column.
        frame: The table, with C and d.
        one_width: Whether only models of equal width are compared.
    """
    known, logarithm = plugins().measurements(), LOGARITHM.fullmatch(column.expression)
    name = logarithm[1] if logarithm else column.expression
    if name not in known:
        return None
    metric, measure = known[name]
    without_unit = metric.scale_of(measure) == 0 or "validation" in metric.needs  # such as shares of samples
    if not (without_unit or one_width):
        return None
    if metric.better is not None:
        return 1 if metric.better == "lower" else -1
    limits = _limits(measure.towards, frame)
    if limits is None:
        return None
    values = np.exp(column.values) if logarithm else column.values
    above, below = bool((values > limits).any()), bool((values < limits).any())
    return None if above == below else 1 if above else -1


def one_width(frame: "pd.DataFrame", groups_n: Codes | None = None) -> bool:
    """Whether all rows, or all rows of each group, have one known width, and so one unit of h."""
    name = next((each for each in ("dim", "width") if each in frame), None)
    if name is None or frame[name].isna().any():
        return False
    return bool((frame[name].groupby(np.zeros(len(frame)) if groups_n is None else groups_n).nunique() == 1).all())


def _limits(towards: Limit, frame: "pd.DataFrame") -> Floats | float | None:
    """Return the limit, one per row if it depends on C and d; None without a limit, or if the table lacks C and d."""
    if not callable(towards):
        return None if towards is None else float(towards)
    if not {"classes", "dim"} <= set(frame) or frame[["classes", "dim"]].isna().any(axis=None):
        return None
    limits = [limit_at(towards, int(C), int(d)) for C, d in zip(frame["classes"], frame["dim"], strict=True)]
    return None if None in limits else np.array(limits, dtype=np.float64)
