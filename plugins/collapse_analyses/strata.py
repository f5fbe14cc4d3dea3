"""Correlations in each group of rows, and tables of two groupings that cross, such as architecture × recipe."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from collapse import CollapseError, Table
from collapse.measurement.columns import Column
from collapse_analyses import shown
from collapse_analyses.fits import Codes, Floats, is_explained

if TYPE_CHECKING:
    from collapse_analyses.choosing import Chosen

_FEWEST = 3  # rows in which a correlation says something: two rows always have r = ±1


def in_each(column: Column, goal: Column, groups_n: Codes) -> list[float | None]:
    """Return Pearson's r in each stratum; None where it has fewer than 3 rows or a column does not vary.

    >>> numbers = [Column("", "", (), np.array(each)) for each in ([1.0, 2.0, 3.0, 9.0], [2.0, 4.0, 6.0, 0.0])]
    >>> [r and round(r, 9) for r in in_each(*numbers, np.array([0, 0, 0, 1]))]
    [1.0, None]
    """
    found: list[float | None] = []
    for group in range(int(groups_n.max()) + 1):
        x_n, y_n = (each.values[groups_n == group] for each in (column, goal))
        varies = len(x_n) >= _FEWEST and not is_explained(x_n) and not is_explained(y_n)
        found.append(float(np.corrcoef(x_n, y_n)[0, 1]) if varies else None)
    return found


def signs_of(correlations: Sequence[float | None] | None) -> dict[str, float | int | None]:
    """Return the number of strata with a correlation, those of each sign, and the median.

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


def strata_table(chosen: "Chosen", groups_n: Codes) -> Table:
    """Return r of every column in every stratum, a row each: column, the stratum, rows, mean, r.

    Raises:
        CollapseError: No stratum has 3 rows that vary.
    """
    (name,) = chosen.within
    groups = sorted(range(int(groups_n.max()) + 1), key=lambda group: chosen.frame[name][groups_n == group].iloc[0])
    records: list[dict[str, Any]] = []
    for column in chosen.tested:
        correlations = in_each(column, chosen.goal, groups_n)
        for group in groups:
            rows_n = groups_n == group
            value, mean = plain(chosen.frame[name][rows_n].iloc[0]), float(column.values[rows_n].mean())
            records.append({"column": column.label, name: value, "rows": int(rows_n.sum()), "mean": mean})
            records[-1]["r"] = correlations[group]
    if all(record["r"] is None for record in records):
        raise CollapseError(
            f"no group of equal {name} has {_FEWEST} rows in which {chosen.goal.label} and a column vary (--within)"
        )
    lacking = any(each["r"] is None for each in records)
    note = [f"–: fewer than {_FEWEST} rows, or a column that does not vary"] if lacking else []
    headings = {"column": shown.of("column"), name: shown.of(name), "rows": shown.of("rows")}
    headings |= {"mean": shown.of("mean", shown.three), "r": shown.of("r", shown.signed)}
    title = f"Correlation with {chosen.goal.label} in each {name}, {len(chosen)} rows"
    return shown.table_of(title, records, [*chosen.notes, *note], headings, keys=2)


def plain(value: Any) -> Any:
    """Return a value of a column as Python's; whole numbers, floats where others are missing, are integers.

    >>> plain(2.0), plain(0.1), plain("2x16")
    (2, 0.1, '2x16')
    """
    value = value.item() if hasattr(value, "item") else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


@dataclass(frozen=True)
class Crossed:
    """A complete table of A × B cells, each with a row or several.

    Attributes:
        cells_n: (rows,) the cell of each row, a·B + b.
        shape: (A, B).
    """

    cells_n: Codes
    shape: tuple[int, int]

    def _means(self, values_n: Floats) -> Floats:
        return (np.bincount(self.cells_n, weights=values_n) / np.bincount(self.cells_n)).reshape(self.shape)

    def _interaction(self, values_n: Floats) -> Floats:
        """Return (A, B) means of the cells without the means of rows and of columns."""
        table = self._means(values_n)
        for _ in range(2):  # again, for the rounding error of the first means
            table = table - table.mean(axis=0)
            table = table - table.mean(axis=1, keepdims=True)
        return table

    def p(self, x_n: Floats, y_n: Floats, *, n: int) -> float:
        """Return p of |r| from n random permutations of whole rows of y's table, and from the order observed.

        The residuals of one row are often one curve: all of them are one observation.
        """
        products = self._interaction(x_n) @ self._interaction(y_n).T  # (A, A), of each row of x with each of y
        rows = np.arange(self.shape[0])
        orders = np.random.default_rng(0).permuted(np.tile(rows, (n, 1)), axis=1)
        null = np.abs(products[rows, orders].sum(axis=1))
        return float((1 + (null >= abs(products.trace()) * (1 - 1e-12)).sum()) / (n + 1))

    def additivity(self, values_n: Floats) -> tuple[float, float, float | None]:
        """Return the shares of the interaction that the best product u_a·v_b explains, and the product of the effects.

        The second is the sum of squares of Tukey's one degree of freedom, and the third its p (None in a 2 × 2 table):
        if the share is large, another scale (a logarithm) may make the effects additive.

        Source: Mandel 1971; Tukey 1949.

        >>> table = Crossed(np.arange(6), (2, 3))
        >>> [round(each, 9) for each in table.additivity(np.array([1.0, 2.0, 3.0, 2.0, 4.0, 6.0]))]
        [1.0, 1.0, 0.0]
        """
        from scipy.stats import f  # takes half a second

        table, left = self._means(values_n), self._interaction(values_n)
        a, b = (table.mean(axis=axis) - table.mean() for axis in (1, 0))
        whole, scale = float((left**2).sum()), float((a @ a) * (b @ b))
        first = float(np.linalg.norm(left, ord=2) ** 2) / whole if whole else 0.0
        product = min(float(a @ left @ b) ** 2 / (scale * whole), 1.0) if whole and scale else 0.0
        degrees = left.size - sum(left.shape)  # (A − 1)(B − 1) − 1
        ratio = degrees * product / (1 - product) if product < 1 else np.inf
        return first, product, float(f.sf(ratio, 1, degrees)) if degrees else None


def crossed(first_n: Codes, second_n: Codes) -> Crossed | None:
    """Return the table of two groupings, or None if a cell has no row."""
    shape = (int(first_n.max()) + 1, int(second_n.max()) + 1)
    cells_n = first_n * shape[1] + second_n
    return Crossed(cells_n, shape) if len(np.unique(cells_n)) == shape[0] * shape[1] else None
