"""The sign that collapse predicts: whether lower or higher values of a column are better."""

import re
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from collapse.measurement.columns import Column
from collapse.plugin.metrics import Limit, limit_at
from collapse.plugin.plugin_manager import plugins
from collapse_analyses.paper_columns import MEASUREMENT_OF
from collapse_analyses.rows import one_width as _of_one_width

if TYPE_CHECKING:
    import pandas as pd

_LOG = re.compile(r"log\((.*)\)")


def direction(column: Column, frame: "pd.DataFrame", one_width: bool = False) -> int | None:
    """1 where lower values are better (nearer to full collapse), −1 where higher ones are, None where unknown.

    The expression says which measurement a column is, never its label; the paper's formulas, and the logarithm of a
    measurement, have the direction of the measurement. A value in units of h has none where models of several widths
    are compared, because the unit differs between them.
    ``one_width`` says that only models of equal width are compared.
    """
    known = plugins().measurements()
    logarithm = _LOG.fullmatch(column.expression)
    name = logarithm[1].strip() if logarithm else column.expression
    name = MEASUREMENT_OF.get("".join(name.split()), name)
    if name not in known:
        return None
    metric, measure = known[name]
    without_unit = metric.scale_of(measure) == 0 or "validation" in metric.needs  # shares of samples
    if not (without_unit or one_width or _of_one_width(frame)):
        return None
    if metric.better is not None:
        return 1 if metric.better == "lower" else -1
    limits = _limits(measure.towards, frame)
    if limits is None:
        return None
    values = np.exp(column.values) if logarithm else column.values
    above, below = bool((values > limits).any()), bool((values < limits).any())
    return None if above == below else 1 if above else -1


def predicted(column: Column, goal: Column, frame: "pd.DataFrame", one_width: bool = False) -> str | None:
    """Return "r > 0" or "r < 0" if better values of one column go with better ones of the other; None if unknown."""
    one, other = (direction(each, frame, one_width) for each in (column, goal))
    if one is None or other is None:
        return None
    return "r > 0" if one == other else "r < 0"


def agrees(low: float | None, high: float | None, sign: str | None) -> bool | None:
    """Whether r has the predicted sign; None without a prediction, or where the interval of r contains 0 or is unknown.

    >>> agrees(-0.7, -0.2, "r > 0"), agrees(-0.7, 0.1, "r > 0"), agrees(-0.7, -0.2, None)
    (False, None, None)
    """
    if sign is None or low is None or high is None or low * high <= 0:
        return None
    return (low > 0) == (sign == "r > 0")


def _limits(towards: Limit, frame: "pd.DataFrame") -> NDArray[np.float64] | float | None:
    """The limit, one a row where it depends on C and d; None where there is none or the table lacks C and d."""
    if not callable(towards):
        return None if towards is None else float(towards)
    try:
        pairs = zip(frame["classes"], frame["dim"], strict=True)
        limits = [limit_at(towards, int(classes), int(dim)) for classes, dim in pairs]
    except Exception:  # the table lacks a column, or a plugin's function fails: then there is no prediction
        return None
    return None if None in limits else np.array(limits, dtype=np.float64)
