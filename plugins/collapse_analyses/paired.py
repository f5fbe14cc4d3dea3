"""Compare pairs of models that are equal in everything except one column."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from collapse import CollapseError, Results, Table, analysis
from collapse.errors import UsageError, counted
from collapse.measurement.columns import Column, direction, one_width
from collapse.measurement.comparable import COMPARED
from collapse.measurement.model_names import ARCHITECTURE, RECIPE, parts_of
from collapse_analyses.choosing import Chosen, choose, names_of, whole
from collapse_analyses.fits import Codes, Floats, Jackknife, is_constant, linear_model
from collapse_analyses.shown import SIGNED, THREE, Cell, P, table_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class _Pairs:
    """Pairs of rows that differ in one column and are equal in others."""

    values: tuple[Any, Any]
    equal: list[str]
    first: Codes  # (pairs,) positions of the rows with the first value
    second: Codes
    units_n: Codes  # (pairs,) unit: the pair's two architectures; if unknown or equal for all pairs, the pair itself


@analysis("paired")
def paired(
    results: Results,
    *,
    by: str,
    against: str = "val_loss",
    columns: Sequence[str] | None = None,
    where: Sequence[str] | None = None,
    values: str | None = None,
    equal: Sequence[str] | None = None,
) -> Table:
    """Compare pairs of models that differ in one column only.

    Two rows are a pair if they have the two given values of a column, such as weight decay, and equal values of
    everything else that the models' names contain. For each column, the table has the mean difference, how often the
    column rises and falls, a sign test, and the correlation of the column's differences with the goal's differences.
    Several pairs of one architecture, such as checkpoints, are not independent. So intervals and the sign test then
    count architectures instead of pairs.

    Args:
        by: The column in which the rows of a pair differ: decay, width, depth, checkpoint, or another.
        against: The goal: a column, expression, or label=expression.
        columns: Columns to compare, separated by commas: names, prefixes, arithmetic, or label=expression. All
            measurements by default. The word paper means the seven measurements of Table 1.
        where: Keep the rows whose column matches a glob, such as 'epochs=10'.
        values: The two values of the column, such as 64,1024; differences are second minus first. By default the
            column's two values, in ascending order.
        equal: Columns in which the rows of a pair are equal, such as depth,recipe. By default all values in the models'
            names (depth, width, epochs, decay, checkpoint, seeds), and the texts and settings of the measurement.

    Returns:
        A row for the goal and for each column: column, pairs, mean, mean_low, mean_high, rises, falls, better (number
        of pairs in which the row with the second value is better; None if unknown), p (sign test), r, r_low, r_high
        (correlation of the differences with the goal's; None for the goal). Intervals are None with fewer than 5
        independent pairs.

    Raises:
        UsageError: A column or filter is unknown, or the column does not have two values.
        CollapseError: There are fewer than 3 pairs, or it is unclear which of several equal rows to pair.

    Source: Dixon & Mood 1946 for the sign test.
    """
    if "," in by:
        raise UsageError(f"--by must name one column, got {by!r}: use --equal for columns that are equal in a pair")
    chosen = choose(results, against=against, columns=columns, where=where, needs=[by])
    pairs = _pairs_of(chosen.frame, by, values, equal)
    records = _records(chosen.frame, [chosen.goal, *chosen.tested], pairs)
    one, two = pairs.values
    title = f"{by} {two} − {by} {one}, {counted(len(pairs.first), 'pair')}"
    headings: Mapping[str, Cell] = {
        "column": "column",
        "mean Δ": ("mean", THREE),
        "95 % of mean Δ": ("mean_low", "mean_high", THREE),
        "rises": "rises",
        "falls": "falls",
        "better": "better",
        "p": ("p", P),
        f"r with Δ{chosen.goal.label}": ("r", SIGNED),
        "95 % of r": ("r_low", "r_high", SIGNED),
    }
    return table_of(title, records, [*chosen.notes, *_explain(chosen, pairs)], headings)


def _explain(chosen: Chosen, pairs: _Pairs) -> list[str]:
    """Return notes on how to read the numbers."""
    units, left = int(pairs.units_n.max()) + 1, len(chosen.frame) - 2 * len(pairs.first)
    of = f" of the {units} architectures" if units < len(pairs.units_n) else ""
    return [
        f"pairs are equal in {', '.join(pairs.equal) or 'no known column'}",
        *([f"{counted(left, 'row')} without a counterpart excluded"] if left else []),
        f"better: pairs in which {pairs.values[1]} is better; p: sign test of rises against falls{of}, two-sided, not "
        "corrected",
        f"r: correlation of the differences with those of {chosen.goal.label}; intervals: jackknife of the pairs{of}, "
        "Student's t",
    ]


def _records(frame: Any, columns: Sequence[Column], pairs: _Pairs) -> list[dict[str, Any]]:
    """Return a record for each column; the first column is the goal."""
    both, codes = np.concatenate([pairs.first, pairs.second]), np.tile(np.arange(len(pairs.first)), 2)
    widths = one_width(frame.iloc[both].reset_index(drop=True), codes) or one_width(frame)
    fits = Jackknife(linear_model(len(pairs.first)), pairs.units_n, degrees=int(pairs.units_n.max()) - 1)
    changes_kn = [column.values[pairs.second] - column.values[pairs.first] for column in columns]
    records = []
    for at, (column, change_n) in enumerate(zip(columns, changes_kn, strict=True)):
        found = _changes(change_n, direction(column, frame, widths), pairs, fits)
        with_goal = _with_goal(change_n, changes_kn[0], fits) if at else dict.fromkeys(("r", "r_low", "r_high"))
        records.append({"column": column.label, "pairs": len(change_n), **found, **with_goal})
    return records


def _changes(change_n: Floats, lower: int | None, pairs: _Pairs, fits: Jackknife) -> dict[str, Any]:
    """Return a column's mean difference, rises, falls, number of better pairs, and sign test.

    ``lower`` is 1 if lower values of the column are better, −1 if higher values are, None if unknown.
    """
    from scipy.stats import binomtest  # slow to import

    rises, falls = int((change_n > 0).sum()), int((change_n < 0).sum())
    sum_G, size_G = np.bincount(pairs.units_n, weights=change_n), np.bincount(pairs.units_n)
    without_G = (change_n.sum() - sum_G) / (len(change_n) - size_G)
    mean = float(change_n.mean())
    low, high, _ = fits.interval(mean, without_G, degrees=len(size_G) - 1)
    up, down = int((sum_G > 0).sum()), int((sum_G < 0).sum())
    return {
        "mean": mean,
        "mean_low": low,
        "mean_high": high,
        "rises": rises,
        "falls": falls,
        "better": None if lower is None else falls if lower == 1 else rises,
        "p": float(binomtest(up, up + down).pvalue) if up + down else None,
    }


def _with_goal(change_n: Floats, goal_n: Floats, fits: Jackknife) -> dict[str, float | None]:
    """Return the correlation of a column's differences with the goal's differences."""
    if is_constant(change_n) or is_constant(goal_n):
        return dict.fromkeys(("r", "r_low", "r_high"))
    (found,) = fits.correlations(np.stack([change_n, goal_n]))
    return {"r": found.r, "r_low": found.low, "r_high": found.high}


def _pairs_of(frame: "pd.DataFrame", by: str, values: str | None, equal: str | Sequence[str] | None) -> _Pairs:
    """Pair the rows that differ in the column ``by`` and are equal in the columns ``equal``.

    If ``equal`` is None, these columns are all values in the models' names, and the texts and settings of the
    measurement. If ``values`` is None, the column ``by`` must have exactly two values.
    """
    one, two = _values(frame, by, values)
    names = names_of(equal, frame)
    if equal is None:
        parts = [name for model in frame.get("model", ()) for name in parts_of(str(model))]
        known = dict.fromkeys([*parts, "corpus", *COMPARED])
        names = [each for each in known if each in frame and each not in (by, ARCHITECTURE, RECIPE)]
    rows = frame[[by, *names]].assign(place=np.arange(len(frame)), of="one")[frame[by].isin([one, two])]
    if (again := rows.duplicated([by, *names])).any():
        row = frame.iloc[rows["place"][again].iloc[0]]
        equally = f" and are equal in {', '.join(names)}" if names else ""
        raise CollapseError(
            f"several rows (such as {row.get('model', row.name)}) have {by} = {row[by]}{equally}, so it is "
            "unclear which one to pair: choose rows with --where, or name more columns with --equal"
        )
    alike = rows.groupby(["of", *names], dropna=False, sort=False).ngroup()
    pairs = rows.assign(alike=alike).pivot(index="alike", columns=by, values="place").dropna().astype(np.int64)
    used = [name for name in names if frame[name].nunique() > 0]
    if len(pairs) < 3:
        raise CollapseError(
            f"only {counted(len(pairs), 'pair')} of rows differ in {by} and are equal in {', '.join(used)}: give a "
            "table with at least 3 pairs, or name fewer columns with --equal"
        )
    first, second = pairs[one].to_numpy(), pairs[two].to_numpy()
    return _Pairs((one, two), used, first, second, _units(frame, first, second))


def _units(frame: "pd.DataFrame", first: Codes, second: Codes) -> Codes:
    if ARCHITECTURE not in frame or frame[ARCHITECTURE].iloc[[*first, *second]].isna().any():
        return np.arange(len(first))
    one, two = (frame[ARCHITECTURE].iloc[places].reset_index(drop=True) for places in (first, second))
    codes = one.to_frame("one").assign(two=two).groupby(["one", "two"]).ngroup().to_numpy(np.int64)
    return codes if codes.max() else np.arange(len(first))


def _values(frame: "pd.DataFrame", by: str, wanted: str | None) -> tuple[Any, Any]:
    """Return the two values that ``--values`` names; without this option, the column must have exactly two values."""
    known = {str(value): value for value in map(whole, sorted(frame[by].dropna().unique()))}
    names = list(known) if wanted is None else [text.strip() for text in wanted.split(",")]
    if len(known) < 2:
        only = f"only the value {', '.join(known)}" if known else "no value"
        raise UsageError(f"column {by} has {only}: give a table with two values, or another column with --by")
    listed = ", ".join([*known][:8]) + (", …" if len(known) > 8 else "")
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"--values {wanted}: column {by} has no value {unknown[0]}; choose two of {listed}")
    if len(names) != 2 or len(set(names)) != 2:
        raise UsageError(f"column {by} has {len(known)} values ({listed}): choose two with --values")
    return known[names[0]], known[names[1]]
