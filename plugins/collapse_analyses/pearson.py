"""Pearson's correlations with the goal, their intervals, and the sign that collapse predicts."""

from typing import Any

import numpy as np

from collapse.measurement.columns import direction, one_width
from collapse_analyses.choosing import Chosen
from collapse_analyses.fits import Correlation, Floats, Jackknife


def correlated(chosen: Chosen, left_kn: Floats, fits: Jackknife) -> list[tuple[dict[str, Any], Correlation]]:
    """Correlate the residuals of each column with those of the goal, the last row of ``left_kn``.

    Returns:
        For each column, a record with r, r_low, r_high, predicted, agrees and R2, and its :class:`Correlation`.
    """
    left_kn = left_kn / np.abs(left_kn).max(axis=1, keepdims=True)
    widths = one_width(chosen.frame) or any(one_width(chosen.frame, each) for each in chosen.groupings)
    goal = direction(chosen.goal, chosen.frame, widths)
    made = []
    for column, found in zip(chosen.tested, fits.correlations(left_kn), strict=True):
        r, low, high, *_ = found
        lower = direction(column, chosen.frame, widths)
        # no sign is predicted with two groupings: residuals need not rise together, even if their columns do
        known = lower is not None and goal is not None and len(chosen.groupings) < 2
        sign = ("r > 0" if lower == goal else "r < 0") if known else None
        sure = sign is not None and low is not None and high is not None and low * high > 0
        record = {"r": r, "r_low": low, "r_high": high, "predicted": sign}
        made.append((record | {"agrees": (r > 0) == (sign == "r > 0") if sure else None, "R2": r**2}, found))
    return made
