"""Correlate columns with a goal, also within groups or with controls; compute intervals and corrected p-values."""

import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from collapse import Results, Table, analysis
from collapse.errors import UsageError, counted
from collapse.measurement.columns import Column
from collapse_analyses.choosing import LOG_CDNV, Chosen, cautions, choose, correlated, groups_of, names_of, whole
from collapse_analyses.fits import FEWEST, ROUNDING, Codes, Floats, Jackknife, is_constant
from collapse_analyses.shown import SHARE, SIGNED, THREE, Cell, P, predicted_note, table_of

FEWEST_ROWS = 3
"""Fewest rows for an informative correlation; two rows always have r = ±1."""
_HEADINGS: Mapping[str, Cell] = {
    "column": "column",
    "r": ("r", SIGNED),
    "95 % interval": ("r_low", "r_high", SIGNED),
    "predicted": "predicted",
    "R²": ("R2", SHARE),
    "p": ("p", P),
    "Holm": ("holm", P),
    "BH": ("bh", P),
    "Spearman": ("spearman", SIGNED),
    "its interval": ("spearman_low", "spearman_high", SIGNED),
}
_OF_GROUPS: Mapping[str, Cell] = {
    "groups": "strata",
    "r > 0": "strata_positive",
    "r < 0": "strata_negative",
    "median r": ("strata_median_r", SIGNED),
}


@analysis("correlation")
def correlation(
    results: Results,
    *,
    against: str = "val_loss",
    columns: Sequence[str] | None = None,
    where: Sequence[str] | None = None,
    within: Sequence[str] | None = None,
    control: Sequence[str] | None = None,
    cluster: str | None = None,
    strata: bool = False,
    resamples: int = 9_999,
) -> Table:
    """Correlate columns of a results table with one column, the goal.

    For each column, the table has Pearson's r and Spearman's rank correlation, R², jackknife intervals, a p-value, and
    p-values corrected for all columns (Holm; Benjamini-Hochberg). Models of one architecture are not independent.
    --cluster architecture counts them as one observation; --within architecture compares models only inside each
    architecture. Models of one architecture may differ in training time, and this difference can cause a correlation:
    --within architecture,recipe subtracts both effects.

    Args:
        against: The goal: a column, expression, or label=expression.
        columns: Columns to correlate, separated by commas: names, prefixes, arithmetic such as log(nc1.cdnv) or
            gnc2.log_kernel/reachable(gnc2.log_kernel), or label=expression. All measurements by default. The word paper
            means the seven measurements of Table 1, and figure1 means the columns of Figure 1.
        where: Keep the rows whose column matches a glob, such as 'epochs=10'.
        within: Subtract the mean of each group of rows with equal values of this column, such as architecture. With
            several columns (separated by commas), such as architecture,recipe, subtract the effects of all columns, as
            in a two-way analysis of variance; p is then computed by permuting whole groups of the first column. The
            signs of r are counted over the groups of the first column.
        control: Columns of numbers to control for, such as log(n_params); this gives partial correlations.
        cluster: Count rows with equal values of this column as one observation, in the jackknife and for p.
        strata: Show instead the value of r in each group of the column that --within names.
        resamples: Number of permutations of groups, for p with several columns of --within.

    Returns:
        A row per column, sorted by p: column, rows, r, r_low, r_high, spearman, spearman_low, spearman_high, predicted
        ("r > 0", "r < 0" or None), agrees (whether r has this sign; None without it, or if the interval of r contains
        0), R2, p, holm, bh; strata, strata_positive, strata_negative (numbers of groups with an r, with r > 0, with
        r < 0), strata_median_r (these four are None without within). Intervals (and p, with ``cluster``) are None with
        fewer than 5 rows (or clusters), or if a column is constant when one row (or cluster) is left out.

    Raises:
        UsageError: A column or filter is unknown, or --within puts every row into its own group; or --strata is given
            with --control or --cluster, or without exactly one column of --within.
        CollapseError: There are fewer than 3 rows, no degree of freedom or no column to test, or the goal is constant.

    Source: Holm 1979; Benjamini & Hochberg 1995; MacKinnon, Nielsen & Webb 2023 for clusters.

    >>> import pandas as pd
    >>> table = Results.from_frame(pd.DataFrame({"val_loss": [1, 2, 3, 4], "nc1.cdnv": [0.1, 0.3, 0.2, 0.4]}))
    >>> (row,) = correlation(table, columns="nc1.cdnv").records()
    >>> round(row["r"], 9), round(row["p"], 9)
    (0.8, 0.2)
    """
    if strata and cluster:
        raise UsageError("--cluster changes only intervals and p, which --strata does not show: remove --cluster")
    options: dict[str, Any] = {"against": against, "columns": columns, "where": where, "within": within}
    chosen = choose(results, **options, control=control, needs=cluster, also=[LOG_CDNV])
    return _strata(chosen) if strata else _correlated(chosen, names_of(cluster, chosen.frame), resamples)


def _correlated(chosen: Chosen, clusters: list[str], resamples: int) -> Table:
    """Return the correlations over all rows."""
    names = chosen.within
    # after several effects are subtracted, residuals of a group often lie on one curve, so they are not independent
    whole_groups = len(names) > 1 and not clusters
    clusters = names[:1] if whole_groups else clusters
    fits = Jackknife(chosen.model, groups_of(chosen.frame, clusters) if clusters else None)
    left_kn, few = _left(chosen), bool(clusters) and len(fits.kept) < FEWEST
    records = _records(chosen, left_kn, fits, bool(clusters))
    how = f"t-test, clustered by {' and '.join(clusters)}" if clusters else "t-test of r"
    if whole_groups and not few and not chosen.controls and _permute(chosen, left_kn, records, resamples):
        orders = f"{resamples:,} random orders of groups of equal {names[0]} (seed 0) and the observed order"
        how = f"share of orders whose |r| is at least as large as observed, among {orders}"
    records.sort(key=lambda record: (record["p"] is None, record["p"], -abs(record["r"])))
    _correct(records)
    title = f"Correlation with {chosen.goal.label}, {len(chosen)} rows"
    title += f", within {' and '.join(names)}" if names else ""
    title += f", controlled for {', '.join(each.label for each in chosen.controls)}" if chosen.controls else ""
    too_few = [f"no intervals and p: at least {FEWEST} clusters are needed, got {len(fits.kept)}"]
    about = too_few if few else _explain(chosen, records, fits, clusters, how)
    return table_of(
        title, records, [*chosen.notes, *cautions(chosen), *about], {**_HEADINGS, **(_OF_GROUPS if names else {})}
    )


def _records(chosen: Chosen, left_kn: Floats, fits: Jackknife, clustered: bool) -> list[dict[str, Any]]:
    """Return a record per column, without its corrected p-values."""
    ranked = fits.correlations(left_kn if chosen.groupings or chosen.controls else chosen.values(), ranks=True)
    pearson, records = correlated(chosen, left_kn, fits), []
    for column, (about, found), (rho, low, high, *_) in zip(chosen.tested, pearson, ranked, strict=True):
        spearman = {"spearman": rho, "spearman_low": low, "spearman_high": high}
        p = found.p if clustered else _p_of_r(found.r, chosen.model.degrees)
        signs = signs_of(in_each(column, chosen.goal, chosen.groupings[0]) if chosen.groupings else None)
        records.append({"column": column.label, "rows": len(chosen), **about, **spearman, "p": p, **signs})
    return records


def _left(chosen: Chosen) -> Floats:
    """Return the columns' residuals after the effects of groups and controls are subtracted.

    With groups or controls, they are rounded, so that residuals that differ only by rounding errors get equal ranks.
    """
    values_kn = chosen.values()
    left_kn = chosen.model.residuals(values_kn)
    if not (chosen.groupings or chosen.controls):
        return left_kn
    step_k = 2.0 ** np.ceil(np.log2(ROUNDING * np.abs(values_kn).max(axis=1, keepdims=True)))
    return np.asarray(np.round(left_kn / step_k) * step_k)


def _permute(chosen: Chosen, left_kn: Floats, records: list[dict[str, Any]], resamples: int) -> bool:
    """Replace each p by that of ``p_of_whole_groups``.

    Return True; if that p is None for a column, change nothing and return False.
    """
    first_n, second_n = chosen.groupings[0], groups_of(chosen.frame, chosen.within[1:])
    found = [p_of_whole_groups(left_n, left_kn[-1], first_n, second_n, n=resamples) for left_n in left_kn[:-1]]
    if None in found:
        return False
    for record, p in zip(records, found, strict=True):
        record["p"] = p
    return True


def _correct(records: list[dict[str, Any]]) -> None:
    """Add corrected p-values to the records; records without a p must come last, and get None."""
    from scipy.stats import false_discovery_control  # slow to import

    p_k = np.array([record["p"] for record in records if record["p"] is not None])
    adjusted = _holm(p_k).tolist(), false_discovery_control(p_k).tolist()
    for record, holm, bh in zip_longest(records, *adjusted):
        record |= {"holm": holm, "bh": bh}


def _p_of_r(r: float, degrees: int) -> float:
    """Return the two-sided p-value of r = 0 by Student's t = r·√(degrees/(1−r²)), for independent normal rows.

    >>> round(_p_of_r(0.5, degrees=1), 9)  # t = 1/√3
    0.666666667
    """
    from scipy.stats import t as student  # slow to import

    return float(2 * student.sf(abs(r) * math.sqrt(degrees / (1 - r**2)), degrees)) if abs(r) < 1 else 0.0


def _holm(p_k: Floats) -> Floats:
    """Return Holm's step-down p-values, which bound the probability of any false discovery.

    >>> _holm(np.array([0.01, 0.04, 0.03])).tolist()
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_k, kind="stable")
    adjusted = np.empty_like(p_k)
    adjusted[order] = np.minimum(np.maximum.accumulate((len(p_k) - np.arange(len(p_k))) * p_k[order]), 1)
    return adjusted


def _explain(
    chosen: Chosen, records: Sequence[dict[str, Any]], fits: Jackknife, clusters: Sequence[str], how: str
) -> list[str]:
    """Return notes on how to read the numbers; ``how`` is the note on how p is computed."""
    values = f"of the {len(fits.kept)} values of {' and '.join(clusters)}"
    without = [record["column"] for record in records if record["p"] is None]
    student = f"Fisher's z and Student's t with {counted(fits.degrees, 'degree')} of freedom"
    notes = [
        f"intervals: jackknife that leaves out one {values if clusters else 'row'} at a time, with {student}",
        f"p: {how}; Holm, BH: corrected for {counted(len(records) - len(without), 'column')}",
        predicted_note(chosen.goal.label, len(chosen.groupings)),
    ]
    if without:
        constant = f"the column or {chosen.goal.label} is constant"
        notes.append(f"no p for {', '.join(without)}: if one {values} is left out, {constant}")
    return notes + ([f"groups: equal {chosen.within[0]}, at least {FEWEST_ROWS} rows"] if chosen.within else [])


def _strata(chosen: Chosen) -> Table:
    """Return the table of ``--strata``: for each column and group, the number of rows, the column's mean, and r."""
    if len(chosen.within) != 1 or chosen.controls:
        raise UsageError("--strata shows r in each group of one column: give one column to --within, and no --control")
    (name,), (groups_n,) = chosen.within, chosen.groupings
    values = {group: whole(chosen.frame[name][groups_n == group].iloc[0]) for group in np.unique(groups_n).tolist()}
    records: list[dict[str, Any]] = []
    for column in chosen.tested:
        correlations = in_each(column, chosen.goal, groups_n)
        for group, value in sorted(values.items(), key=lambda each: each[1]):
            held_n = column.values[groups_n == group]
            about = {"column": column.label, name: value, "rows": len(held_n), "mean": float(held_n.mean())}
            records.append(about | {"r": correlations[group]})
    headings: Mapping[str, Cell] = {
        "column": "column",
        name: name,
        "rows": "rows",
        "mean": ("mean", THREE),
        "r": ("r", SIGNED),
    }
    title = f"Correlation with {chosen.goal.label} in each {name}, {len(chosen)} rows"
    return table_of(title, records, chosen.notes, headings, keys=2)


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
    """Count all groups with a correlation, those with r > 0 and those with r < 0; return also the median correlation.

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
    """Return the p-value of |r| for the residuals x and y, from n random permutations of whole groups.

    After the effects of two groupings are subtracted, the residuals of a group often lie on one curve. Then they are
    not independent, so each group of the first grouping counts as one observation. The means of x form a table, with a
    row per group of the first grouping and a column per group of the second. Row and column means are subtracted from
    this table. The same is done for y. The p-value is the share of orders of the rows of y's table that give at least
    the observed |r| between both tables. The observed order counts too. Return None if a cell of a table is empty.
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
