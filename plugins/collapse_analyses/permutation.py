"""The permutation test: does a property of collapse correlate with generalization by more than chance?"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from collapse import Results, Table, analysis
from collapse.errors import at_least, counted
from collapse.measurement.row_permutations import TIE, orders, permuted, unit
from collapse_analyses.choosing import LOG_CDNV, Chosen, cautions, choose, correlated
from collapse_analyses.fits import Codes, Correlation, Floats, Jackknife
from collapse_analyses.shown import SHARE, SIGNED, THREE, Cell, P, predicted_note, table_of

_HEADINGS: Mapping[str, Cell] = {
    "column": "column",
    "r": ("r", SIGNED),
    "predicted": "predicted",
    "R²": ("R2", SHARE),
    "p": ("p", P),
    "max-T p": ("max_t_p", P),
    "95 % interval of r": ("r_low", "r_high", SIGNED),
    "leave-one-out r": ("r_without_one_low", "r_without_one_high", SIGNED),
    "p error": ("p_error", THREE),
}


@analysis("permutation")
def permutation(
    results: Results,
    *,
    against: str = "val_loss",
    columns: Sequence[str] | None = None,
    where: Sequence[str] | None = None,
    within: Sequence[str] | None = None,
    n: int = 99_999,
) -> Table:
    """Test whether columns of a results table correlate with a goal.

    For each column, the table has Pearson's r, the sign that collapse predicts, R², the permutation p-value of |r| and
    its standard error. It also has a Westfall–Young max-T p-value from the same permutations, corrected for all tested
    columns.
    If the rows have at most n orders, all orders are enumerated and p is exact.

    Args:
        results: A results table, one row per model.
        against: The column to permute: a name, expression, or label=expression.
        columns: Columns to test, separated by commas: names, prefixes, arithmetic, or label=expression. All
            measurements by default. The word paper means the seven measurements of Table 1.
        where: Keep the rows whose column matches a glob, such as 'model=02x0768_01d*@0'.
        within: Permute only among rows with equal values of this column, and subtract the mean of each such group. With
            several columns (separated by commas), the rows of a group have equal values in all these columns. Models of
            different size are not exchangeable: give architecture.
        n: Number of random permutations.

    Returns:
        A row per column, sorted by p: column, r, predicted ("r > 0", "r < 0" or None), R2, p, p_error (None if p is
        exact), max_t_p; agrees (whether r has the predicted sign; None without a prediction, or if the interval of r
        contains 0); p_is_bound and max_t_p_is_bound (whether no permutation reached |r|); r_low and r_high (95 %
        jackknife interval; None with fewer than 5 rows, or if a column is constant when one row is left out);
        r_without_one_low and r_without_one_high (range of r when one row is excluded; None with 3 rows).

    Raises:
        UsageError: A column or filter is unknown, an expression is invalid, ``n`` is below 1, or --within puts every
            row into its own group.
        CollapseError: The goal is constant or not finite, no column can be tested, or fewer than 3 rows are left.

    Source: Wu & Papyan 2024, §3.8; Westfall & Young 1993 for max-T.

    >>> import pandas as pd
    >>> table = Results.from_frame(pd.DataFrame({"val_loss": [1, 2, 3], "nc1.cdnv": [0.1, 0.2, 0.3]}))
    >>> (row,) = permutation(table, columns="nc1.cdnv").records()
    >>> round(row["r"], 9), round(row["p"], 9)
    (1.0, 0.333333333)
    """
    n = at_least(1, "--n", n)
    options: dict[str, Any] = {"against": against, "columns": columns, "where": where, "within": within}
    chosen = choose(results, **options, joint=True, also=[LOG_CDNV])
    values_kn = chosen.values()
    found = shuffle(values_kn[-1], values_kn[:-1].T, n=n, groups_n=next(iter(chosen.groupings), None))
    pearson = correlated(chosen, chosen.model.residuals(values_kn), Jackknife(chosen.model))
    records = _records(chosen, found, pearson)
    equal = f", within equal {' and '.join(chosen.within)}" if chosen.within else ""
    title = f"Permutation test against {chosen.goal.label}, {len(chosen)} rows{equal}"
    return table_of(title, records, [*chosen.notes, *cautions(chosen), *_explain(found, chosen, records)], _HEADINGS)


class Shuffled(NamedTuple):
    """Correlations of columns with the goal, and their p-values from permutations of the goal, each of shape (k,)."""

    r: Floats
    p: Floats  # p-value of |r|
    max_t_p: Floats  # Westfall–Young max-T, single step
    exact: bool  # every order was enumerated
    permutations: int


def shuffle(y_n: Floats, x_nk: Floats, *, n: int, groups_n: Codes | None = None) -> Shuffled:
    """Correlate every column of ``x_nk`` with y, and compute p-values from n random permutations of y.

    If y has at most n orders, each order is used once instead. With ``groups_n``, the group of each row, the mean of
    each group is subtracted first, and y is permuted only within each group.

    >>> found = shuffle(np.array([1.0, 2.0, 3.0, 4.0]), np.array([[1.0], [2.0], [3.0], [5.0]]), n=100)
    >>> found.exact, found.permutations, round(found.p[0] * 24)
    (True, 24, 2)
    """
    r = unit(y_n, groups_n) @ unit(x_nk, groups_n)
    reached, largest_reached, permutations = np.zeros(len(r)), np.zeros(len(r)), 0
    for null_Pk in permuted(y_n, x_nk, n=n, groups_n=groups_n):
        null_Pk = np.abs(null_Pk)
        reached += (null_Pk >= np.abs(r) - TIE).sum(axis=0)
        largest_reached += (null_Pk.max(axis=1, keepdims=True) >= np.abs(r) - TIE).sum(axis=0)
        permutations += len(null_Pk)
    exact = orders(len(y_n), groups_n) <= n
    observed = 0 if exact else 1  # all orders include the observed order, random permutations do not
    p, max_t_p = ((each + observed) / (permutations + observed) for each in (reached, largest_reached))
    return Shuffled(np.clip(r, -1, 1), p, max_t_p, exact, permutations)


def _records(
    chosen: Chosen, found: Shuffled, pearson: Sequence[tuple[dict[str, Any], Correlation]]
) -> list[dict[str, Any]]:
    """Return a record per column, sorted by p."""
    least = 0.0 if found.exact else 1.5 / (found.permutations + 1)  # a lower p is a bound: no permutation reached |r|
    records: list[dict[str, Any]] = []
    for column, p, max_t_p, (about, of_r) in zip(chosen.tested, found.p, found.max_t_p, pearson, strict=True):
        known = of_r.without[np.isfinite(of_r.without)].tolist() if len(chosen) > 3 else []
        records.append(
            {
                "column": column.label,
                **about,
                "p": float(p),
                "p_error": None if found.exact else float(np.sqrt(p * (1 - p) / found.permutations)),
                "max_t_p": float(max_t_p),
                "p_is_bound": bool(p < least),
                "max_t_p_is_bound": bool(max_t_p < least),
                "r_without_one_low": min(known, default=None),
                "r_without_one_high": max(known, default=None),
            }
        )
    return sorted(records, key=lambda record: (record["p"], -abs(record["r"])))


def _explain(found: Shuffled, chosen: Chosen, records: Sequence[dict[str, Any]]) -> list[str]:
    """Return notes on how to read the numbers."""
    goal, many = chosen.goal.label, f"{found.permutations:,}"
    orders = f"{many} random permutations of {goal} (seed 0) and the observed order"
    how = f"p: share of orders whose |r| is at least as large as observed, among {orders}"
    notes = [
        f"p is exact: all {many} orders of {goal} were used" if found.exact else how,
        f"max_t_p: p-value corrected for testing {counted(len(records), 'column')} (Westfall–Young max-T, single step)",
        predicted_note(goal, len(chosen.groupings)),
        "interval of r: jackknife over rows, with Fisher's z and Student's t; leave-one-out r: range of r when "
        "one row is excluded",
    ]
    if any(each["p_is_bound"] or each["max_t_p_is_bound"] for each in records):
        notes.append(
            f"≤: no permutation reached |r|: with 95 % confidence, fewer than 3/{many} of all orders do (rule of three)"
        )
    return notes
