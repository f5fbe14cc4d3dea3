"""Correlations in each group of rows, and permutations of whole groups."""

from collections.abc import Sequence

import numpy as np

from collapse.measurement.columns import Column
from collapse_analyses.fits import Codes, Floats, is_constant

FEWEST_ROWS = 3
"""Fewest rows for an informative correlation; two rows always have r = ±1."""


def in_each(column: Column, goal: Column, groups_n: Codes) -> list[float | None]:
    """Return Pearson's r in each group; None for a group with fewer than 3 rows or a constant column.

    >>> numbers = [Column("", "", (), np.array(each)) for each in ([1.0, 2.0, 3.0, 9.0], [2.0, 4.0, 6.0, 0.0])]
    >>> [r and round(r, 9) for r in in_each(*numbers, np.array([0, 0, 0, 1]))]
    [1.0, None]
    """
    found: list[float | None] = []
    for group in range(int(groups_n.max()) + 1):
        x_n, y_n = (each.values[groups_n == group] for each in (column, goal))
        varies = len(x_n) >= FEWEST_ROWS and not is_constant(x_n) and not is_constant(y_n)
        found.append(float(np.corrcoef(x_n, y_n)[0, 1]) if varies else None)
    return found


def signs_of(correlations: Sequence[float | None] | None) -> dict[str, float | int | None]:
    """Return the number of groups with a correlation, the numbers of each sign, and the median correlation.

    >>> signs_of([0.5, -0.25, None, 1.0])
    {'strata': 3, 'strata_positive': 2, 'strata_negative': 1, 'strata_median_r': 0.5}
    """
    if correlations is None:
        return dict.fromkeys(("strata", "strata_positive", "strata_negative", "strata_median_r"))
    given = [r for r in correlations if r is not None]
    return {
        "strata": len(given),
        "strata_positive": sum(r > 0 for r in given),
        "strata_negative": sum(r < 0 for r in given),
        "strata_median_r": float(np.median(given)) if given else None,
    }


def p_of_whole_groups(x_n: Floats, y_n: Floats, first_n: Codes, second_n: Codes, *, n: int) -> float | None:
    """Return the p-value of |r|, from the observed and n random orders of the whole groups of the first grouping.

    After the effects of two groupings are subtracted, the residuals of a group often lie on one curve. Then they are
    not independent, so a group counts as one observation. A cell holds the rows that share both groups. The cell means
    form a table, whose row and column means are subtracted. Return None if a cell is empty.
    """
    shape = (int(first_n.max()) + 1, int(second_n.max()) + 1)
    cells_n = first_n * shape[1] + second_n
    if len(np.unique(cells_n)) < shape[0] * shape[1]:
        return None

    def interaction(values_n: Floats) -> Floats:
        table = (np.bincount(cells_n, weights=values_n) / np.bincount(cells_n)).reshape(shape)
        for _ in range(2):  # the second time removes rounding errors of the first means
            table = table - table.mean(axis=0)
            table = table - table.mean(axis=1, keepdims=True)
        return table

    products = interaction(x_n) @ interaction(y_n).T  # each group of x times each group of y
    rows = np.arange(shape[0])
    orders = np.random.default_rng(0).permuted(np.tile(rows, (n, 1)), axis=1)
    null = np.abs(products[rows, orders].sum(axis=1))
    return float((1 + (null >= abs(products.trace()) * (1 - 1e-12)).sum()) / (n + 1))
