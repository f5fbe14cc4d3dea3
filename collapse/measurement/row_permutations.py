"""Compute correlations with permuted rows, which are the null distribution of the permutation test."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Groups = NDArray[np.int64]

TIE = 1e-12
"""Two |r| that differ by less than this count as equal; rounding errors are far smaller."""
_BLOCK = 1 << 21  # at most this many permuted numbers are in memory at a time (16 MiB)


def unit(values: Floats, groups_n: Groups | None = None) -> Floats:
    """Centre values in each group, and scale whole columns to unit norm, without over- or underflow of squares."""
    values = values / np.abs(values).max(axis=0)
    groups_n = np.zeros(len(values), dtype=np.int64) if groups_n is None else groups_n
    for _ in range(2):  # again, to remove the rounding error of the first means
        for group in np.unique(groups_n):
            values[groups_n == group] -= values[groups_n == group].mean(axis=0)
    return np.asarray(values / np.linalg.norm(values, axis=0))


def orders(rows: int, groups_n: Groups | None = None) -> int:
    """Return the number of permutations of n rows, n!. With groups, return the product of n! over groups of n rows.

    >>> orders(4), orders(4, np.array([0, 0, 1, 1]))
    (24, 4)
    """
    sizes = [rows] if groups_n is None else np.unique(groups_n, return_counts=True)[1].tolist()
    return math.prod(math.factorial(size) for size in sizes)


def permuted(y_n: Floats, x_nk: Floats, *, n: int, groups_n: Groups | None = None) -> Iterator[Floats]:
    """Yield Pearson's r of each column of x with permutations of y; all columns share the permutations.

    With groups, the mean of each group is subtracted first, and y is permuted only within each group. SciPy's
    permutation test cannot do this.

    Args:
        y_n: (rows,) finite, not constant.
        x_nk: (rows, k) finite, no column constant.
        n: Number of random permutations (seed 0); if there are at most n orders, each order is used once instead.
        groups_n: (rows,) the group of each row; None for one group.

    Yields:
        r, shape (permutations of a block, k). The permutations are divided into blocks to limit the memory.
    """
    codes = np.zeros(len(y_n), dtype=np.int64) if groups_n is None else groups_n
    places = [np.flatnonzero(codes == group) for group in np.unique(codes)]
    unit_n, unit_nk = unit(y_n, groups_n), unit(x_nk, groups_n)[np.concatenate(places)]
    block = -(-_BLOCK // len(y_n))
    if orders(len(y_n), groups_n) <= n:
        every = itertools.product(*(itertools.permutations(place.tolist()) for place in places))
        while some := list(itertools.islice(every, block)):
            yield unit_n[[list(itertools.chain(*each)) for each in some]] @ unit_nk
        return
    rng = np.random.default_rng(0)
    for start in range(0, n, block):
        size = min(block, n - start)
        orders_Bn = [rng.permuted(np.tile(place, (size, 1)), axis=1) for place in places]
        yield unit_n[np.concatenate(orders_Bn, axis=1)] @ unit_nk
