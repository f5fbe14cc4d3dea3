"""Correlation of columns with a goal: with intervals, corrected for what is tested, and within groups or controlled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from collapse import CollapseError, Results, Table, analysis
from collapse.errors import UsageError, counted
from collapse.measurement.columns import Column
from collapse_analyses import shown
from collapse_analyses.adjusting import adjust
from collapse_analyses.checking import check_numbers
from collapse_analyses.crossed import Crossed, crossed
from collapse_analyses.directions import agrees, predicted
from collapse_analyses.jackknife import FEWEST, interval_of_r, p_of_r, spearman_without_each, without_each
from collapse_analyses.residuals import Codes, Explained, Floats, explained
from collapse_analyses.rows import groups_of, names_of, one_width, sizes_note, trained_note
from collapse_analyses.selecting import Selected, keep, left_varying, select, table_of
from collapse_analyses.strata import in_each, signs_of, strata_table

_SIZES = {
    "--within": "compares models of equal {name} only",
    "--cluster": "takes models of equal {name} together",
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
    level: float = 0.95,
    seed: int = 0,
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
        level: Of the intervals.
        seed: Seed of the permutations.

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
    check_numbers(resamples=(resamples, 1), seed=(seed, 0), level=level)
    if strata and not within:
        raise UsageError("--strata needs groups: name their column with --within")
    if strata and (control or cluster):
        option = "--control" if control else "--cluster"
        raise UsageError(f"--strata shows r of the values themselves in each group: leave {option} out")
    frame, notes = table_of(results, where)
    names = names_of(within, frame, "--within")
    if strata and len(names) > 1:
        raise UsageError(f"--strata shows the groups of one column: name one of {', '.join(names)} with --within")
    cluster_names = names_of(cluster, frame, "--cluster")
    found = select(
        frame,
        notes,
        against=against,
        columns=columns,
        whole=len(results),
        named=[*names, *cluster_names],
        controls=list(_split(control)),
        logarithms=True,
    )
    groupings = [groups_of(found.frame, [name]) for name in names]
    _check_groups(names, groupings, len(found.frame))
    if strata:
        return strata_table(found, names[0], groupings[0])
    model = explained(len(found.frame), groupings, [each.values for each in found.controls])
    found = _varying(found, model, [*names, *(each.label for each in found.controls)])
    clusters = groups_of(found.frame, cluster_names) if cluster_names else None
    how = _How(model, groupings, clusters, " and ".join(cluster_names), None, resamples, level, seed)
    if len(names) > 1 and clusters is None:  # what several effects leave of a group is often one curve
        table = None if found.controls else crossed(groupings[0], groups_of(found.frame, names[1:]))
        how = replace(how, clusters=groupings[0], of=names[0], table=table)
    found = keep(found, found.tested, *_remarks(found, names, how))
    records = [_record(found, each, how) for each in found.tested]
    adjust(records)
    records.sort(key=lambda record: (record["p"] or 0.0, -abs(record["r"])))
    title = f", within {' and '.join(names)}" if names else ""
    title += f", controlled for {', '.join(each.label for each in found.controls)}" if found.controls else ""
    return Table(
        title=f"Correlation with {found.goal.label}, {len(found.frame)} rows{title}",
        columns=list(records[0]),
        rows=[list(record.values()) for record in records],
        notes=[*found.notes, *_explain(found, records, names, how)],
        shown=_shown(records, level, bool(names)),
    )


def _split(control: str | Sequence[str] | None) -> list[str]:
    given = [control] if isinstance(control, str) else list(control or ())
    return [piece.strip() for text in given for piece in text.split(",") if piece.strip()]


def _check_groups(names: Sequence[str], groupings: Sequence[Codes], rows: int) -> None:
    for name, codes in zip(names, groupings, strict=True):
        if codes.max() + 1 == rows:
            raise UsageError(f"every row has another {name}: no group has two rows to compare (--within)")


def _varying(found: Selected, model: Explained, of: Sequence[str]) -> Selected:
    if model.degrees < 1:
        rows = counted(len(found.frame), "row")
        raise CollapseError(f"{rows} are too few for {' and '.join(of)}: no degree of freedom is left")
    return left_varying(found, model, of)


@dataclass(frozen=True)
class _How:
    """What is subtracted, which rows count as one and by which columns, and the complete table of two groupings."""

    model: Explained
    groupings: Sequence[Codes]
    clusters: Codes | None
    of: str
    table: Crossed | None
    permutations: int
    level: float
    seed: int


def _remarks(found: Selected, names: Sequence[str], how: _How) -> list[str]:
    if len(names) == 1:
        return trained_note(found.frame, names, how.groupings[0])
    if names or found.controls:
        return []
    advice = {option: what for option, what in _SIZES.items() if how.clusters is None or option != "--cluster"}
    return sizes_note(found.frame, advice=advice, exchangeable=how.clusters is None)


def _record(found: Selected, column: Column, how: _How) -> dict[str, Any]:
    from scipy.stats import spearmanr  # takes half a second

    adjusted = bool(how.groupings or found.controls)
    left_n, goal_n = (_residuals(how.model, each.values, adjusted) for each in (column, found.goal))
    x_n, y_n = _scaled(left_n), _scaled(goal_n)
    r = float(np.clip(x_n @ y_n, -1, 1))
    ranked = (left_n, goal_n) if adjusted else (column.values, found.goal.values)
    rho = float(spearmanr(*ranked).statistic)
    degrees = how.model.degrees if how.clusters is None else int(how.clusters.max())
    low, high, p = (
        interval_of_r(r, without_each(x_n, y_n, how.model, how.clusters)[0], degrees, how.level) or [None] * 3
    )
    span = interval_of_r(rho, spearman_without_each(*ranked, how.clusters), degrees, how.level) or [None] * 2
    if how.clusters is None:
        p = p_of_r(r, degrees)
    elif how.table is not None and p is not None:
        p = how.table.p(left_n, goal_n, n=how.permutations, seed=how.seed)
    sign = None  # what the effects of two groupings leave need not rise where both columns rise
    if len(how.groupings) < 2:
        sign = predicted(column, found.goal, found.frame, any(one_width(found.frame, each) for each in how.groupings))
    return {
        "column": column.label,
        "rows": len(x_n),
        "r": r,
        "r_low": low,
        "r_high": high,
        "spearman": rho,
        "spearman_low": span[0],
        "spearman_high": span[1],
        "predicted": sign,
        "agrees": agrees(low, high, sign),
        "R2": r**2,
        "p": p,
        "holm": None,
        "bh": None,
        **signs_of(in_each(column, found.goal, how.groupings[0]) if how.groupings else None),
    }


def _residuals(model: Explained, values_n: Floats, adjusted: bool) -> Floats:
    """Return residuals; with groups or controls, without the digits that are rounding errors of what was subtracted.

    Equal residuals are then equal numbers, which ties of ranks need.
    """
    left_n = model.residuals(values_n)
    if not adjusted:
        return left_n
    step = 2.0 ** np.ceil(np.log2(64 * np.finfo(np.float64).eps * np.abs(values_n).max()))
    return np.asarray(np.round(left_n / step) * step)


def _scaled(values_n: Floats) -> Floats:
    values_n = values_n / np.abs(values_n).max()
    return values_n / np.linalg.norm(values_n)


def _explain(found: Selected, records: Sequence[Mapping[str, Any]], names: Sequence[str], how: _How) -> list[str]:
    """How to read the numbers."""
    test, units, one, of, notes = "t-test of r", "rows", "one row", how.of, []
    if how.clusters is not None:
        many = int(how.clusters.max()) + 1
        test, units = f"t-test, clustered by {of}", f"the {many} values of {of}"
        one = f"one of {units}"
        if many < FEWEST:
            few = f"{counted(many, 'value')} of {of} are too few for an interval or a p-value"
            return [f"{few}: at least {FEWEST} are needed"]
    if how.table is not None:
        test = (
            f"share of {how.permutations:,} random permutations of {units} (seed {how.seed}), each with all its cells, "
            "and of the order observed, whose |r| of the cells' means is at least as large"
        )
        first, product, p = how.table.additivity(found.goal.values)
        notes.append(
            f"of what the two effects leave of the cells' means of {found.goal.label}, {first:.0%} is one singular "
            f"component, and {product:.0%} the product of the effects (p of Tukey's test of additivity: "
            f"{shown.p_value(p)})"
            + (": the effects are not additive on this scale" if p is not None and p <= 1 - how.level else "")
        )
    degrees = how.model.degrees if how.clusters is None else int(how.clusters.max())
    student = f"Fisher's z and Student's t with {counted(degrees, 'degree')} of freedom"
    notes.append(f"intervals: jackknife, without {one} at a time, by {student}")
    notes.append(f"p: {test}; Holm, BH: corrected for {counted(len(records), 'column')}")
    if any(each["predicted"] for each in records):
        marked = any(each["agrees"] is False for each in records)
        notes.append(
            f"predicted: the sign of r if better {found.goal.label} goes with more collapse"
            + (f"; {shown.DISAGREES} (agrees: no): {shown.MEANING}" if marked else "")
        )
    if names:
        raw = "; r in them is of the values themselves" if len(names) > 1 or found.controls else ""
        raw += "; no sign is predicted for what several effects leave" if len(names) > 1 else ""
        notes.append(f"groups: of equal {names[0]}, with 3 rows or more, in which both columns vary{raw}")
    return notes


def _shown(records: Sequence[Mapping[str, Any]], level: float, strata: bool) -> Table:
    headings = ["column", "r", f"{100 * level:g} % interval", "predicted", "R²", "p", "Holm", "BH"]
    headings += ["Spearman", "its interval"]
    headings += ["groups", "r > 0", "r < 0", "median r"] if strata else []
    rows = []
    for each in records:
        row = [
            each["column"],
            shown.signed(each["r"]),
            shown.interval(each["r_low"], each["r_high"]),
            shown.sign(each["predicted"], each["agrees"]),
            shown.fixed(each["R2"]),
            *(shown.p_value(each[name]) for name in ("p", "holm", "bh")),
            shown.signed(each["spearman"]),
            shown.interval(each["spearman_low"], each["spearman_high"]),
        ]
        if strata:
            counts = ("strata", "strata_positive", "strata_negative")
            row += [*(each[name] for name in counts), shown.signed(each["strata_median_r"])]
        rows.append(row)
    return Table("", headings, rows)
