"""Pearson's correlations with the goal: their intervals, and the sign that collapse predicts."""

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
    """Correlate what groups and controls leave of each column with what they leave of the goal.

    Args:
        chosen: The columns.
        left_kn: (k, rows) what is left of each column, the goal last.
        fits: The model without each row or cluster.

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
        # what the effects of two groupings leave need not rise where both columns rise
        known = lower is not None and goal is not None and len(chosen.groupings) < 2
        sign = ("r > 0" if lower == goal else "r < 0") if known else None
        sure = sign is not None and low is not None and high is not None and low * high > 0
        record = {"r": r, "r_low": low, "r_high": high, "predicted": sign}
        made.append((record | {"agrees": (r > 0) == (sign == "r > 0") if sure else None, "R2": r**2}, found))
    return made


def direction(column: Column, frame: "pd.DataFrame", one_width: bool) -> int | None:
    """1 where lower values are better (nearer to full collapse), −1 where higher ones are, None where unknown.

    The expression says which measurement a column is, never its label; the logarithm of a measurement has its
    direction. A value in units of h has none where models of several widths are compared, because the unit differs.

    Args:
        column: The column.
        frame: Its table, with C and d.
        one_width: Whether only models of equal width are compared.
    """
    known, logarithm = plugins().measurements(), LOGARITHM.fullmatch(column.expression)
    name = logarithm[1] if logarithm else column.expression
    if name not in known:
        return None
    metric, measure = known[name]
    without_unit = metric.scale_of(measure) == 0 or "validation" in metric.needs  # shares of samples
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
    """Whether all rows, or those of each group, have one width, and so one unit of h; False if no column has it."""
    name = next((each for each in ("dim", "width") if each in frame), None)
    if name is None or frame[name].isna().any():
        return False
    return bool((frame[name].groupby(np.zeros(len(frame)) if groups_n is None else groups_n).nunique() == 1).all())


def _limits(towards: Limit, frame: "pd.DataFrame") -> Floats | float | None:
    """The limit, one a row where it depends on C and d; None where there is none or the table lacks C and d."""
    if not callable(towards):
        return None if towards is None else float(towards)
    if not {"classes", "dim"} <= set(frame) or frame[["classes", "dim"]].isna().any(axis=None):
        return None
    limits = [limit_at(towards, int(C), int(d)) for C, d in zip(frame["classes"], frame["dim"], strict=True)]
    return None if None in limits else np.array(limits, dtype=np.float64)
