"""Tables of two effects that cross, such as architecture × recipe: a test that permutes whole rows, and additivity."""

from dataclasses import dataclass

import numpy as np

from collapse_analyses.residuals import Codes, Floats


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

    def p(self, x_n: Floats, y_n: Floats, *, n: int, seed: int) -> float:
        """Return p of |r| from n random permutations of whole rows of y's table, and from the order observed.

        The residuals of one row are often one curve: all of them are one observation.
        """
        products = self._interaction(x_n) @ self._interaction(y_n).T  # (A, A), of each row of x with each of y
        rows = np.arange(self.shape[0])
        orders = np.random.default_rng(seed).permuted(np.tile(rows, (n, 1)), axis=1)
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
