"""Correlations with a column, and with its permutations."""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Groups = NDArray[np.int64]


_MOST = 1 << 28  # number of permuted |r| in memory at a time (2 GB)


_BATCH = 1 << 21  # numbers of permuted rows in memory at a time (16 MiB)


# Permutations reproduce an equal |r| only up to rounding, which is far smaller for centred unit vectors.
_TIE = 1e-12


@dataclass(frozen=True)
class Shuffled:
    """Correlations of k columns with one, and what permuting that one gives.

    Attributes:
        r: (k,) Pearson correlations.
        p: (k,) permutation p-values of |r|.
        p_error: (k,) standard errors √(p(1−p)/n) of p; 0 if every order was enumerated.
        max_t_p: (k,) Westfall–Young single-step max-T p-values.
        exact: Whether every order was enumerated.
        permutations: Number of permutations evaluated.
    """

    r: Floats
    p: Floats
    p_error: Floats
    max_t_p: Floats
    exact: bool
    permutations: int


def shuffle(y_n: Floats, x_nk: Floats, *, n: int, seed: int, groups_n: Groups | None = None) -> Shuffled:
    """Correlate every column of x with y, and with permutations of y shared by all columns.

    With groups, the means of each group are subtracted first, and y is permuted only within each group.

    Args:
        y_n: (rows,) finite, not constant.
        x_nk: (rows, k) finite, no column constant.
        n: Number of random permutations; if there are at most n orders, all are enumerated instead.
        seed: Seed of the permutations.
        groups_n: (rows,) the group of each row; None for one group.

    >>> found = shuffle(np.array([1.0, 2.0, 3.0, 4.0]), np.array([[1.0], [2.0], [3.0], [5.0]]), n=100, seed=0)
    >>> found.exact, found.permutations, round(found.p[0] * 24)
    (True, 24, 2)
    """
    unit_n, unit_nk = unit(y_n, groups_n), unit(x_nk, groups_n)
    rng = np.random.default_rng(seed)
    null_Pk = _null(unit_n, unit_nk, n, rng) if groups_n is None else _null_within(unit_n, unit_nk, groups_n, n, rng)
    permutations = len(null_Pk)
    exact = orders(len(y_n), groups_n) <= n
    r = unit_n @ unit_nk
    observed = 0 if exact else 1  # all orders include the observed one, random orders do not

    def tail(null: Floats) -> Floats:
        # scipy's p uses a tolerance relative to |r|, which misses ties near r = 0; this one also serves max-T
        counts = [np.count_nonzero(null_P >= abs(each) - _TIE) for each, null_P in zip(r, null.T, strict=True)]
        return (np.array(counts) + observed) / (permutations + observed)

    p = tail(null_Pk)
    p_error = np.zeros_like(p) if exact else np.sqrt(p * (1 - p) / permutations)
    max_t_p = tail(np.broadcast_to(null_Pk.max(axis=1, keepdims=True), null_Pk.shape))
    return Shuffled(np.clip(r, -1, 1), p, p_error, max_t_p, exact, permutations)


def orders(rows: int, groups_n: Groups | None = None) -> int:
    """Return the number of orders of some rows: n!, or the product of the groups' n!.

    >>> orders(4), orders(4, np.array([0, 0, 1, 1]))
    (24, 4)
    """
    sizes = [rows] if groups_n is None else np.unique(groups_n, return_counts=True)[1].tolist()
    return math.prod(math.factorial(size) for size in sizes)


def _null(unit_n: Floats, unit_nk: Floats, n: int, rng: np.random.Generator) -> Floats:
    """Return |r| of each column with each permutation of y, shape (permutations, k)."""
    from scipy.stats import permutation_test  # takes half a second; not needed by `collapse --help` and `measure`

    def statistic(y_Bn: Floats, axis: int) -> Floats:
        return np.abs(y_Bn @ unit_nk)  # the rows are the last axis (axis=-1 below)

    # With one sample, "pairings" permutes only y, once for all columns: a joint null distribution (permutations, k).
    test = permutation_test(
        (unit_n,),
        statistic,
        permutation_type="pairings",
        alternative="greater",
        vectorized=True,
        n_resamples=n,
        batch=-(-_BATCH // len(unit_n)),
        axis=-1,
        rng=rng,
    )
    return np.asarray(test.null_distribution)


def _null_within(unit_n: Floats, unit_nk: Floats, groups_n: Groups, n: int, rng: np.random.Generator) -> Floats:
    """Do the same with permutations within groups, which scipy does not have."""
    places = [np.flatnonzero(groups_n == group) for group in np.unique(groups_n)]
    null = []
    if orders(len(unit_n), groups_n) <= n:
        order_n = np.arange(len(unit_n))
        for permuted in itertools.product(*(itertools.permutations(place) for place in places)):
            for place, order in zip(places, permuted, strict=True):
                order_n[place] = order
            null.append(np.abs(unit_n[order_n] @ unit_nk)[None])
        return np.concatenate(null)
    batch = -(-_BATCH // len(unit_n))
    for start in range(0, n, batch):
        order_Bn = np.tile(np.arange(len(unit_n)), (min(batch, n - start), 1))
        for place in places:
            order_Bn[:, place] = rng.permuted(order_Bn[:, place], axis=1)
        null.append(np.abs(unit_n[order_Bn] @ unit_nk))
    return np.concatenate(null)


def unit(values: Floats, groups_n: Groups | None) -> Floats:
    """Return values centred in each group, of unit norm; scaled first, so that no square over- or underflows."""
    values = values / np.abs(values).max(axis=0)
    for _ in range(2):  # again, to remove the rounding error of the first means
        values = centred(values, groups_n)
    return values / np.linalg.norm(values, axis=0)


def centred(values: Floats, groups_n: Groups | None) -> Floats:
    """Subtract the mean of each group's rows."""
    if groups_n is None:
        return values - values.mean(axis=0)
    values = values.copy()
    for group in np.unique(groups_n):
        values[groups_n == group] -= values[groups_n == group].mean(axis=0)
    return values
