"""p-values of a correlation of residuals, with or without clusters of rows."""

import math

import numpy as np

from collapse_analyses.residuals import Codes, Floats


def p_of_r(x_n: Floats, y_n: Floats, degrees: int, clusters_n: Codes | None = None) -> float:
    """Return the two-sided p of r = 0.

    Without clusters t = r·√(degrees/(1−r²)). With G clusters t is the slope over its cluster-robust standard error,
    √(G/(G−1)·Σ_g(Σ_{i∈g} x_i e_i)²)/Σx², with G−1 degrees of freedom.

    Args:
        x_n, y_n: (rows,) residuals of unit norm.
        degrees: Degrees of freedom of their correlation.
        clusters_n: (rows,) the cluster of each row, 0 to G−1.

    Source: Liang & Zeger 1986.

    >>> x, y = (np.array(each) / np.linalg.norm(each) for each in ([-1.0, 0.0, 1.0], [-1.0, 1.0, 0.0]))
    >>> round(p_of_r(x, y, degrees=1), 9)  # r = ½: t = 1/√3
    0.666666667
    """
    from scipy.stats import t as student  # takes half a second

    r = float(np.clip(x_n @ y_n, -1, 1))
    if clusters_n is None:
        error = math.sqrt(max(1 - r**2, 0) / degrees)
    else:
        scores = np.bincount(clusters_n, weights=x_n * (y_n - r * x_n))
        degrees = len(scores) - 1
        error = math.sqrt(len(scores) / degrees * float(scores @ scores))
    return float(2 * student.sf(abs(r) / error, degrees)) if error > 0 else 0.0
