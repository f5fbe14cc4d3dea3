"""Correlation of columns with a goal: with intervals, corrected for what is tested, and within groups or controlled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from collapse import Results, Table, analysis
from collapse.errors import UsageError, counted
from collapse_analyses import fits, shown
from collapse_analyses.choosing import Chosen, check_groups, choose, left_varying, names_of, sizes_note, trained_note
from collapse_analyses.fits import Codes, Explained, Floats
from collapse_analyses.signs import correlated, degrees_of
from collapse_analyses.strata import Crossed, crossed, in_each, signs_of, strata_table


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
    """Correlate columns of a results table with a goal.

    For each column: Pearson's r, Spearman's, R², jackknife intervals, a p-value, and p-values corrected for all columns
    (Holm; Benjamini-Hochberg). Models of one architecture are not independent: --cluster takes them together, --within
    compares models inside groups only. Models of equal architecture may differ in training time, which can drive both
    columns: --within architecture,recipe compares architectures by what neither effect explains.

    Args:
        against: The goal: a column, expression, or label=expression.
        columns: Columns to correlate, separated by commas: names, prefixes, arithmetic such as log(nc1.cdnv) or
            gnc2.log_kernel/reachable(gnc2.log_kernel), or label=expression. All measurements by default; paper means
            the seven of Table 1, figure1 those of Figure 1.
        where: Keep the rows whose column matches a glob, such as 'epochs=10'. Rows must match every filter.
        within: Subtract the mean of each group of rows with equal values of this column, such as architecture. Of
            several columns (with commas), such as architecture,recipe, the effects of all are subtracted, as in a
            two-way analysis of variance; p then permutes whole groups of the first. Signs are counted in those too.
        control: Columns of numbers to control for, such as log(n_params): gives partial correlations.
        cluster: Leave out, and count as independent, whole groups of rows with equal values of this column.
        strata: Show r in every group of one column of --within instead; not with --control or --cluster.
        resamples: Number of permutations of groups, for p with several columns of --within.

    Returns:
        A row a column, sorted by p: column, rows, r, r_low, r_high, spearman, spearman_low, spearman_high, predicted,
        agrees, R2, p (None with fewer than 5 clusters, as intervals), holm, bh; strata, strata_positive,
        strata_negative and strata_median_r (None without within).

    Raises:
        UsageError: An unknown column or filter, or an option that makes no sense.
        CollapseError: Fewer than 3 rows or no degree of freedom, or a column that does not vary.

    Source: Holm 1979; Benjamini & Hochberg 1995; MacKinnon, Nielsen & Webb 2023 for clusters.

    >>> from collapse import Row
    >>> def model(loss, cdnv):
    ...     return Row("m", None, "text", "", 1, 9, 4, 99, {"val_loss": loss, "nc1.cdnv": cdnv})
    >>> rows = [model(1.0, 0.1), model(2.0, 0.3), model(3.0, 0.2), model(4.0, 0.4)]
    >>> table = correlation(Results(rows), columns="nc1.cdnv")
    >>> [(row["column"], round(row["r"], 9), round(row["p"], 6)) for row in table.records()]
    [('nc1.cdnv', 0.8, 0.2)]
    """
    if resamples < 1:
        raise UsageError(f"--resamples must be at least 1, not {resamples}")
    chosen = choose(
        results,
        against=against,
        columns=columns,
        where=where,
        within=within,
        named={"--cluster": cluster},
        controls=control,
        logarithms=True,
    )
    names, of = chosen.within, names_of(cluster, chosen.frame, "--cluster")
    if strata and (len(names) != 1 or control or of):
        raise UsageError("--strata shows r in each group of one column of --within, without --control and --cluster")
    for name in names:
        check_groups(chosen, [name])
    groupings = [chosen.groups(name) for name in names]
    if strata:
        return strata_table(chosen, groupings[0])
    model = fits.explained(len(chosen), groupings, [each.values for each in chosen.controls])
    if names or chosen.controls:
        chosen = left_varying(chosen, model)
    test = _Test(model, groupings, chosen.groups(*of) if of else None, " and ".join(of), None, resamples)
    if len(names) > 1 and not of:  # what several effects leave of a group is often one curve
        table = None if chosen.controls else crossed(groupings[0], chosen.groups(*names[1:]))
        test = replace(test, clusters_n=groupings[0], of=names[0], table=table)
    notes = [*chosen.notes, *_remarks(chosen, test)]
    records = _records(chosen, test)
    title = f", within {' and '.join(names)}" if names else ""
    title += f", controlled for {', '.join(each.label for each in chosen.controls)}" if chosen.controls else ""
    return shown.table_of(
        f"Correlation with {chosen.goal.label}, {len(chosen)} rows{title}",
        records,
        [*notes, *_explain(chosen, records, test)],
        _headings(bool(names)),
    )


@dataclass(frozen=True)
class _Test:
    """What is subtracted, which rows count as one and by which columns, and the complete table of two groupings."""

    model: Explained
    groupings: Sequence[Codes]
    clusters_n: Codes | None
    of: str
    table: Crossed | None
    permutations: int


def _remarks(chosen: Chosen, test: _Test) -> list[str]:
    if len(chosen.within) == 1:
        return trained_note(chosen, test.groupings[0])
    if chosen.within or chosen.controls:
        return []
    advice = ["--within {size} compares models of equal {size} only"]
    advice += ["--cluster {size} takes models of equal {size} together"] if test.clusters_n is None else []
    return sizes_note(chosen.frame, advice, exchangeable=test.clusters_n is None)


def _records(chosen: Chosen, test: _Test) -> list[dict[str, Any]]:
    """A record a column, the smallest p first."""
    from scipy.stats import false_discovery_control  # takes half a second

    records = []
    degrees, rows = degrees_of(test.model, test.clusters_n), {"rows": len(chosen)}
    left_kn = _left(chosen, test)
    pearson = correlated(chosen, left_kn, test.model, test.groupings, test.clusters_n)
    spearman = _spearman(left_kn if test.groupings or chosen.controls else chosen.values(), test)
    for column, left_n, (about, p, _), ranked in zip(chosen.tested, left_kn[:-1], pearson, spearman, strict=True):
        if test.clusters_n is None:
            p = fits.p_of_r(about["r"], degrees)
        elif test.table is not None and p is not None:
            p = test.table.p(left_n, left_kn[-1], n=test.permutations)
        signs = signs_of(in_each(column, chosen.goal, test.groupings[0]) if test.groupings else None)
        records.append({"column": column.label, **rows, **about, **ranked, "p": p, "holm": None, "bh": None, **signs})
    if all(each["p"] is not None for each in records):
        p_k = np.array([each["p"] for each in records])
        for each, by_holm, by_bh in zip(records, fits.holm(p_k), false_discovery_control(p_k), strict=True):
            each |= {"holm": float(by_holm), "bh": float(by_bh)}
    return sorted(records, key=lambda record: (record["p"] or 0.0, -abs(record["r"])))


def _left(chosen: Chosen, test: _Test) -> Floats:
    """What groups and controls leave of the columns, without the digits that are rounding: equal residuals tie."""
    values_kn = chosen.values()
    left_kn = test.model.residuals(values_kn)
    if not (test.groupings or chosen.controls):
        return left_kn
    step_k = 2.0 ** np.ceil(np.log2(64 * np.finfo(np.float64).eps * np.abs(values_kn).max(axis=1, keepdims=True)))
    return np.asarray(np.round(left_kn / step_k) * step_k)


def _spearman(values_kn: Floats, test: _Test) -> list[dict[str, float | None]]:
    """Spearman's correlation of each row of values with the last one, and its interval."""
    from scipy.stats import rankdata  # takes half a second

    each_left_out = fits.refits(fits.explained(values_kn.shape[1]), test.clusters_n)
    products = fits.products_without_each(values_kn, each_left_out, ranks=True)
    degrees = degrees_of(test.model, test.clusters_n)
    found = []
    for i, rho in enumerate(np.corrcoef(rankdata(values_kn, axis=1))[-1, :-1]):
        ends = fits.interval_of_r(float(rho), fits.r_of(products, i), degrees) or [None] * 3
        found.append({"spearman": float(rho), "spearman_low": ends[0], "spearman_high": ends[1]})
    return found


def _explain(chosen: Chosen, records: Sequence[Mapping[str, Any]], test: _Test) -> list[str]:
    """How to read the numbers."""
    how, units, one, notes, names = "t-test of r", "rows", "one row", [], chosen.within
    if test.clusters_n is not None:
        many = int(test.clusters_n.max()) + 1
        how, units = f"t-test, clustered by {test.of}", f"the {many} values of {test.of}"
        one = f"one of {units}"
        if many < fits.FEWEST:
            few = f"{counted(many, 'value')} of {test.of} are too few for an interval or a p-value"
            return [f"{few}: at least {fits.FEWEST} are needed"]
    if test.table is not None:
        how = (
            f"share of {test.permutations:,} random permutations of {units} (seed 0), each with all its cells, "
            "and of the order observed, whose |r| of the cells' means is at least as large"
        )
        notes.append(_additive(chosen, test.table))
    degrees = counted(degrees_of(test.model, test.clusters_n), "degree")
    student = f"Fisher's z and Student's t with {degrees} of freedom"
    notes.append(f"intervals: jackknife, without {one} at a time, by {student}")
    notes.append(f"p: {how}; Holm, BH: corrected for {counted(len(records), 'column')}")
    if any(each["predicted"] for each in records):
        marked = any(each["agrees"] is False for each in records)
        said = f"predicted: the sign of r if better {chosen.goal.label} goes with more collapse"
        notes.append(said + (f"; {shown.DISAGREES}" if marked else ""))
    if names:
        raw = "; r in them is of the values themselves" if len(names) > 1 or chosen.controls else ""
        raw += "; no sign is predicted for what several effects leave" if len(names) > 1 else ""
        notes.append(f"groups: of equal {names[0]}, with 3 rows or more, in which both columns vary{raw}")
    return notes


def _additive(chosen: Chosen, table: Crossed) -> str:
    first, product, p = table.additivity(chosen.goal.values)
    not_additive = p is not None and p <= 1 - fits.LEVEL
    return (
        f"of what the two effects leave of the cells' means of {chosen.goal.label}, {first:.0%} is one singular "
        f"component, and {product:.0%} the product of the effects (p of Tukey's test of additivity: "
        f"{shown.p_value(p)}){': the effects are not additive on this scale' if not_additive else ''}"
    )


def _headings(strata: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "column": shown.of("column"),
        "r": shown.of("r", shown.signed),
        "95 % interval": shown.span("r"),
        "predicted": shown.predicted,
        "R²": shown.of("R2", shown.fixed),
        "p": shown.of("p", shown.p_value),
        "Holm": shown.of("holm", shown.p_value),
        "BH": shown.of("bh", shown.p_value),
        "Spearman": shown.of("spearman", shown.signed),
        "its interval": shown.span("spearman"),
    }
    if strata:
        found |= {"groups": shown.of("strata"), "r > 0": shown.of("strata_positive")}
        found |= {"r < 0": shown.of("strata_negative"), "median r": shown.of("strata_median_r", shown.signed)}
    return found
