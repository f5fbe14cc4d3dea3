"""Correlation of columns with a goal: with intervals, corrected for what is tested, and within groups or controlled."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collapse import CollapseError, Results, Table, analysis, hookimpl
from collapse.errors import UsageError, counted
from collapse.measurement.columns import Column
from collapse.measurement.sheets import Sheet
from collapse_analyses import shown
from collapse_analyses.adjusting import benjamini_hochberg, holm
from collapse_analyses.bootstrap import FEW_CLUSTERS, intervals
from collapse_analyses.checking import check_numbers
from collapse_analyses.directions import agrees, predicted
from collapse_analyses.residuals import Codes, Explained, Floats, explained, is_explained
from collapse_analyses.rows import groups_of, names_of, sizes_note
from collapse_analyses.selecting import Selected, keep, select, table_of
from collapse_analyses.strata import in_each, signs_of, strata_table
from collapse_analyses.testing_r import p_of_r

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
    resamples: int = 1_999,
    level: float = 0.95,
    seed: int = 0,
) -> Table:
    """Correlate columns of a results table with a goal.

    For each column: Pearson's r, Spearman's, R², bootstrap intervals, a p-value, and p-values corrected for all columns
    (Holm; Benjamini-Hochberg). Models of one architecture are not independent: --cluster takes them together, --within
    compares models inside groups only.

    Args:
        against: The goal: a column, expression, or label=expression.
        columns: Columns to correlate, separated by commas: names, prefixes, arithmetic such as log(nc1.cdnv) or
            gnc2.log_kernel/reachable(gnc2.log_kernel), or label=expression. All measurements by default; paper means
            the seven of Table 1, figure1 those of Figure 1.
        where: Keep the rows whose column matches a glob, such as 'epochs=10'. Rows must match every filter.
        within: Subtract the mean of each group of rows with equal values of this column, such as architecture. Of
            several columns (with commas), such as architecture,recipe, the effects of all are subtracted, as in a
            two-way analysis of variance. Signs are counted in the groups of the first.
        control: Columns of numbers to control for, such as log(n_params): gives partial correlations.
        cluster: Resample, and count as independent, whole groups of rows with equal values of this column.
        strata: Show r in every group of one column of --within instead; not with --control or --cluster.
        resamples: Number of bootstrap resamples.
        level: Of the intervals.
        seed: Seed of the resamples.

    Returns:
        A row a column, sorted by p: column, rows, r, r_low, r_high, spearman, spearman_low, spearman_high, predicted,
        agrees, R2, p, holm, bh; strata, strata_positive, strata_negative and strata_median_r (None without within).

    Raises:
        UsageError: An unknown column or filter, or an option that makes no sense.
        CollapseError: Fewer than 3 rows or degrees of freedom, fewer than 3 clusters, or a column that does not vary.

    Source: Holm 1979; Benjamini & Hochberg 1995; Liang & Zeger 1986 for p with clusters.

    >>> from collapse import Row
    >>> def model(loss, cdnv):
    ...     return Row("m", None, "text", "", 1, 9, 4, 99, {"val_loss": loss, "nc1.cdnv": cdnv})
    >>> rows = [model(1.0, 0.1), model(2.0, 0.3), model(3.0, 0.2), model(4.0, 0.4)]
    >>> [(row["column"], round(row["r"], 9), round(row["p"], 6)) for row in correlation(Results(rows)).records()]
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
    )
    groupings = [groups_of(found.frame, [name]) for name in names]
    _check_groups(names, groupings, len(found.frame))
    if strata:
        return strata_table(found, names[0], groupings[0])
    clusters = _clusters(found, cluster_names)
    model = explained(len(found.frame), groupings, [each.values for each in found.controls])
    found = _varying(found, model, names)
    if not names and not found.controls:
        advice = {option: what for option, what in _SIZES.items() if clusters is None or option != "--cluster"}
        remark = sizes_note(found.frame, advice=advice, exchangeable=clusters is None)
        found = keep(found, found.tested, *remark)
    bootstrap = {"clusters_n": clusters, "resamples": resamples, "seed": seed, "level": level}
    records = [_record(found, each, model, groupings, bootstrap) for each in found.tested]
    _adjust(records)
    records.sort(key=lambda record: (record["p"], -abs(record["r"])))
    of = f", within {' and '.join(names)}" if names else ""
    of += f", controlled for {', '.join(each.label for each in found.controls)}" if found.controls else ""
    return Table(
        title=f"Correlation with {found.goal.label}, {len(found.frame)} rows{of}",
        columns=list(records[0]),
        rows=[list(record.values()) for record in records],
        notes=[*found.notes, *_explain(found, records, names, cluster_names, clusters, bootstrap)],
        shown=_shown(records, level, bool(names)),
    )


def _split(control: str | Sequence[str] | None) -> list[str]:
    given = [control] if isinstance(control, str) else list(control or ())
    return [piece.strip() for text in given for piece in text.split(",") if piece.strip()]


def _check_groups(names: Sequence[str], groupings: Sequence[Codes], rows: int) -> None:
    for name, codes in zip(names, groupings, strict=True):
        if codes.max() + 1 == rows:
            raise UsageError(f"every row has another {name}: no group has two rows to compare (--within)")


def _clusters(found: Selected, names: Sequence[str]) -> Codes | None:
    if not names:
        return None
    codes = groups_of(found.frame, names)
    if codes.max() + 1 < 3:
        raise CollapseError(
            f"{' and '.join(names)} {'has' if len(names) == 1 else 'have'} {counted(int(codes.max()) + 1, 'value')}: "
            "--cluster needs at least 3 clusters"
        )
    return codes


def _varying(found: Selected, model: Explained, names: Sequence[str]) -> Selected:
    """Leave out columns of which groups and controls leave nothing; the goal must vary, and degrees be left."""
    of = " and ".join([*names, *(each.label for each in found.controls)])
    if model.degrees < 1:
        raise CollapseError(f"{counted(len(found.frame), 'row')} are too few for {of}: no degree of freedom is left")
    if is_explained(found.goal.values, model.residuals(found.goal.values)):
        raise CollapseError(f"{found.goal.label} is constant within equal {of}: nothing can correlate with it")
    gone = [each.label for each in found.tested if is_explained(each.values, model.residuals(each.values))]
    if len(gone) == len(found.tested):
        raise CollapseError(f"every column is constant within equal {of}: {', '.join(gone)}")
    kept = [each for each in found.tested if each.label not in gone]
    return keep(found, kept, *([f"not tested: {', '.join(gone)} (constant within equal {of})"] if gone else []))


def _record(
    found: Selected, column: Column, model: Explained, groupings: Sequence[Codes], bootstrap: Mapping[str, Any]
) -> dict[str, Any]:
    adjusted = bool(groupings or found.controls)
    left_n, goal_n = (_residuals(model, each.values, adjusted) for each in (column, found.goal))
    x_n, y_n = _scaled(left_n), _scaled(goal_n)
    r = float(np.clip(x_n @ y_n, -1, 1))
    ranked = (left_n, goal_n) if adjusted else (column.values, found.goal.values)
    spans = intervals(x_n, y_n, ranked=ranked, **bootstrap)
    sign = predicted(column, found.goal, found.frame)
    return {
        "column": column.label,
        "rows": len(x_n),
        "r": r,
        **_pair("r", spans.r),
        "spearman": _spearman(*ranked),
        **_pair("spearman", spans.spearman),
        "predicted": sign,
        "agrees": agrees(r, sign),
        "R2": r**2,
        "p": p_of_r(x_n, y_n, model.degrees, bootstrap["clusters_n"]),
        "holm": None,
        "bh": None,
        **signs_of(in_each(column, found.goal, groupings[0]) if groupings else None),
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


def _pair(name: str, span: tuple[float, float] | None) -> dict[str, float | None]:
    low, high = span or (None, None)
    return {f"{name}_low": low, f"{name}_high": high}


def _spearman(x_n: Floats, y_n: Floats) -> float:
    from scipy.stats import spearmanr  # takes half a second

    return float(spearmanr(x_n, y_n).statistic)


def _adjust(records: Sequence[dict[str, Any]]) -> None:
    p_k = np.array([record["p"] for record in records])
    for name, adjust in (("holm", holm), ("bh", benjamini_hochberg)):
        for record, p in zip(records, adjust(p_k), strict=True):
            record[name] = float(p)


def _explain(
    found: Selected,
    records: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    cluster_names: Sequence[str],
    clusters: Codes | None,
    bootstrap: Mapping[str, Any],
) -> list[str]:
    """How to read the numbers."""
    units = "rows"
    notes = []
    test = "t-test of r"
    if clusters is not None:
        many, of = int(clusters.max()) + 1, " and ".join(cluster_names)
        units = f"the {many} values of {of}"
        test = f"t-test of r with errors clustered by {of}, {many - 1} degrees of freedom"
        if many < FEW_CLUSTERS:
            notes.append(f"{many} clusters are few: intervals and p are too optimistic")
    drawn = f"{bootstrap['resamples']:,} bootstrap resamples of {units} (seed {bootstrap['seed']})"
    notes.append(f"intervals: percentiles of {drawn}")
    notes.append(f"p: {test}; Holm, BH: corrected for {counted(len(records), 'column')}")
    if any(each["predicted"] for each in records):
        marked = any(each["agrees"] is False for each in records)
        notes.append(
            f"predicted: the sign of r if better {found.goal.label} goes with more collapse"
            + (f"; {shown.DISAGREES} (agrees: no): r has the other sign" if marked else "")
        )
    if names:
        raw = "; r in them is of the values themselves" if len(names) > 1 or found.controls else ""
        notes.append(f"groups: of equal {names[0]}, with 3 rows or more, in which both columns vary{raw}")
    return notes


def _shown(records: Sequence[Mapping[str, Any]], level: float, strata: bool) -> Sheet:
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
    return Sheet(headings, rows)


@hookimpl
def collapse_analyses() -> list[object]:
    """The analyses of this file."""
    return [correlation]
