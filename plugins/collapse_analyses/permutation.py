"""The permutation test: does a property of collapse go with generalization, or did these models just happen to?"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from collapse import Results, Table, analysis
from collapse.errors import UsageError, counted
from collapse.measurement.columns import Column
from collapse_analyses import shown
from collapse_analyses.checking import check_numbers
from collapse_analyses.directions import agrees, predicted
from collapse_analyses.jackknife import interval_of_r, without_each
from collapse_analyses.residuals import explained
from collapse_analyses.rows import groups_of, names_of, one_width, sizes_note, trained_note
from collapse_analyses.selecting import left_varying, select, table_of
from collapse_analyses.shuffling import _MOST, Floats, Groups, Shuffled, orders, shuffle, unit

if TYPE_CHECKING:
    import pandas as pd


@analysis("permutation")
def permutation(
    results: Results,
    *,
    against: str = "val_loss",
    columns: Sequence[str] | None = None,
    where: Sequence[str] | None = None,
    within: Sequence[str] | None = None,
    n: int = 99_999,
    seed: int = 0,
) -> Table:
    """Test whether columns of a results table go with generalization.

    For each column: Pearson's r, the sign that collapse predicts, R², the permutation p-value of |r| with its
    standard error, and a Westfall–Young max-T p-value corrected for all columns tested, from the same permutations.
    Where there are no more orders of the rows than permutations asked for, all are enumerated and p is exact.

    Args:
        results: A results table, a row a model.
        against: The column to permute: a name, expression, or label=expression.
        columns: Columns to test, separated by commas: names, or arithmetic such as norms_log_std/norms_log_mean; write
            size=log(n_params) to give one a label. All measurements by default;
            paper means the seven of the paper's Table 1, also in the published tables.
        where: Keep the rows whose column matches a glob, such as 'model=TinyStories-02x0768_01d*@0'. Rows must match
            every filter.
        within: Permute only rows with equal values of this column, or of all of these columns (with commas), such as
            dim or architecture, and correlate what differs from the group's mean: models of different sizes are not
            exchangeable. Rows without a value of it are left out.
        n: Number of random permutations.
        seed: Seed of the permutations.

    Returns:
        A row a column, sorted by p: column, r, predicted ("r > 0", "r < 0" or None), R2, p, p_error, max_t_p; agrees
        (whether r has the predicted sign; None where its interval contains 0); p_is_bound and max_t_p_is_bound (no
        permutation reached |r|); r_low and r_high (95 % jackknife interval); r_without_one_low and
        r_without_one_high (range of r without one row).

    Raises:
        UsageError: An unknown column or filter, or an expression that cannot be read.
        CollapseError: A column is constant or not finite, or fewer than 3 rows are left.

    Source: Wu & Papyan 2024, §3.8; Westfall & Young 1993 for max-T.

    >>> from collapse import Row
    >>> def model(loss, cdnv):
    ...     return Row("m", None, "text", "", 1, 9, 4, 99, {"val_loss": loss, "nc1.cdnv": cdnv})
    >>> table = permutation(Results([model(1.0, 0.1), model(2.0, 0.2), model(3.0, 0.3)]), columns="nc1.cdnv")
    >>> [(row["column"], round(row["r"], 9), row["predicted"], round(row["p"], 6)) for row in table.records()]
    [('nc1.cdnv', 1.0, 'r > 0', 0.333333)]
    """
    check_numbers(n=(n, 1), seed=(seed, 0))
    frame, notes = table_of(results, where)
    names = names_of(within, frame, "--within")
    chosen = select(frame, notes, against=against, columns=columns, whole=len(results), named=names, logarithms=True)
    frame, goal, tested, notes = chosen.frame, chosen.goal, chosen.tested, chosen.notes
    groups, equal = None, " and ".join(names)
    if not names:
        notes += sizes_note(frame)
    else:
        groups = groups_of(frame, names)
        if groups.max() + 1 == len(frame):
            raise UsageError(
                f"every row has another {equal}: there is nothing to permute within (--within)"
                + (
                    f"; collapse analyze correlation permutes whole groups of equal {names[0]}"
                    if len(names) > 1
                    else ""
                )
            )
        notes += [*sizes_note(frame, groups), *trained_note(frame, names, groups)]
        chosen = left_varying(replace(chosen, notes=notes), explained(len(frame), [groups], []), names)
        tested, notes = chosen.tested, chosen.notes
    if min(n, orders(len(frame), groups)) * len(tested) > _MOST:
        raise UsageError(
            f"--n {n:,} needs more memory than there is room for: with {counted(len(tested), 'column')} give at most "
            f"{_MOST // len(tested):,}"
        )
    x_nk = np.stack([column.values for column in tested], axis=1)
    found = shuffle(goal.values, x_nk, n=n, seed=seed, groups_n=groups)
    spans = [_spans(goal.values, x_n, groups) for x_n in x_nk.T]
    records = _records(found, goal, tested, frame, spans, groups is not None and one_width(frame, groups))
    return Table(
        title=f"Permutation test against {goal.label}, {len(frame)} rows"
        + (f", within equal {equal}" if names else ""),
        columns=list(records[0]),
        rows=[list(record.values()) for record in records],
        notes=[*notes, *_explain(found, goal, records, len(frame), seed, equal)],
        shown=_shown(records),
    )


def _spans(y_n: Floats, x_n: Floats, groups: Groups | None) -> dict[str, float | None]:
    """Return the interval of r, and its range without each row."""
    y_n, x_n = (unit(values, groups) for values in (y_n, x_n))
    model = explained(len(y_n), [] if groups is None else [groups], [])
    r_n = without_each(x_n, y_n, model)[0] if len(y_n) > 3 else np.empty(0)
    low, high, _ = interval_of_r(float(x_n @ y_n), r_n, model.degrees) or [None] * 3
    known = r_n[np.isfinite(r_n)]
    least, most = (float(known.min()), float(known.max())) if len(known) else (None, None)
    return {"r_low": low, "r_high": high, "r_without_one_low": least, "r_without_one_high": most}


def _records(
    found: Shuffled,
    goal: Column,
    tested: Sequence[Column],
    frame: "pd.DataFrame",
    spans: Sequence[Mapping[str, float | None]],
    of_one_width: bool,
) -> list[dict[str, Any]]:
    """A record a column, the smallest p first."""
    records = []
    smallest = 1 / (found.permutations + 1)
    for i, (column, span) in enumerate(zip(tested, spans, strict=True)):
        r, p, max_t_p = (float(each[i]) for each in (found.r, found.p, found.max_t_p))
        sign = predicted(column, goal, frame, of_one_width)
        records.append(
            {
                "column": column.label,
                "r": r,
                "predicted": sign,
                "R2": r**2,
                "p": p,
                "p_error": None if found.exact else float(found.p_error[i]),
                "max_t_p": max_t_p,
                "agrees": agrees(span["r_low"], span["r_high"], sign),
                "p_is_bound": not found.exact and p < 1.5 * smallest,  # no permutation reached |r|
                "max_t_p_is_bound": not found.exact and max_t_p < 1.5 * smallest,
                **span,
            }
        )
    return sorted(records, key=lambda record: (record["p"], -abs(record["r"])))


def _shown(records: Sequence[Mapping[str, Any]]) -> Table:
    """The records as people read them."""
    headings = ["column", "r", "predicted", "R²", "p", "max-T p", "95 % interval of r", "leave-one-out r", "p error"]
    rows = [
        [
            each["column"],
            shown.signed(each["r"]),
            shown.sign(each["predicted"], each["agrees"]),
            shown.fixed(each["R2"]),
            shown.p_value(each["p"], bound=each["p_is_bound"]),
            shown.p_value(each["max_t_p"], bound=each["max_t_p_is_bound"]),
            shown.interval(each["r_low"], each["r_high"]),
            shown.interval(each["r_without_one_low"], each["r_without_one_high"]),
            shown.three(each["p_error"]),
        ]
        for each in records
    ]
    return Table("", headings, rows)


def _explain(
    found: Shuffled, goal: Column, records: Sequence[Mapping[str, Any]], n_rows: int, seed: int, within: str
) -> list[str]:
    """How to read the numbers."""
    if found.exact:
        how = (
            f"p is exact, without a standard error: all {found.permutations:,} orders of {goal.label} "
            f"{f'within equal {within}' if within else f'({n_rows}!)'} were enumerated"
        )
    else:
        how = (
            f"p: share of {found.permutations:,} random permutations of {goal.label} (seed {seed}), and of the "
            "order observed, whose |r| is at least as large; p_error is its standard error"
        )
    notes = [
        how,
        f"max_t_p: p-value corrected for testing {counted(len(records), 'column')} (Westfall–Young max-T, single step)",
        f"predicted: the sign of r if better {goal.label} goes with more collapse"
        + (
            f"; {shown.DISAGREES} (agrees: no): {shown.MEANING}"
            if any(each["agrees"] is False for each in records)
            else ""
        ),
        "interval of r (r_low, r_high): jackknife of the rows, by Fisher's z and Student's t; leave-one-out r "
        "(r_without_one_low, r_without_one_high): the smallest and largest r without one row",
    ]
    if any(each["p_is_bound"] or each["max_t_p_is_bound"] for each in records):
        notes.append(
            f"≤: no permutation reached |r|; with 95 % confidence fewer than 3/{found.permutations:,} of all orders do "
            f"(rule of three); p in files counts the observed order, 1/{found.permutations + 1:,}"
        )
    if any(each["predicted"] is None for each in records):
        notes.append(
            "no sign is predicted for a measurement with neither a better direction nor a value at full collapse, or "
            "with values on both sides of it, for one in units of h where models of several widths are compared, nor "
            "for an expression other than the logarithm of a measurement; a label changes nothing"
        )
    return notes
