"""Compare some tokens with classes of equal count, because nearly everything measured of a class depends on its count.

Shapes: C classes, n tokens, m matched classes of one token.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collapse.errors import UsageError, counted
from collapse.measurement.class_values import measure_classes
from collapse.measurement.table import Table
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.progress import Report
from collapse.progress_bar import shows_progress
from collapse.stores.store import Store
from collapse.vocabulary.choosing import check_number, choose
from collapse.vocabulary.token_table import heading, measured_columns, positions, remarks

Values = NDArray[np.float64]


@shows_progress
def frequency_matched(
    store: Store | EmbeddingStatistics | str | Path,
    tokens: str | Iterable[str] | None = None,
    *,
    ids: Iterable[int] | None = None,
    matches: int = 20,
    draws: int = 9_999,
    seed: int = 0,
    tokenizer: Any = None,
    min_count: int = 1,
    progress: Report | None = None,
) -> Table:
    """Compare the mean of some tokens, such as names or homonyms, with that of classes of equal count.

    To each token are matched the ``matches`` other classes of nearest count, and all classes that are as near as the
    last of them, so that no order decides among equal counts; none of the tokens asked for is matched. The difference
    is the mean over tokens of the token's value minus its matched classes' mean. Its standard error and p-value say how
    far the mean of as many ordinary classes would be from 0: sets of one matched class per token, drawn independently.
    The standard error is their standard deviation, √(Σ_i var_i)/n; p is the share of ``draws`` sets, the tokens
    themselves included as one, whose absolute difference is at least as large (two-sided). Each column has a test of
    its own, without correction for their number.

    Args:
        store: A store, its folder or name on the Hub, or bare statistics.
        tokens: Texts, verbatim; without their variants with or without a leading space.
        ids: Token ids.
        matches: Number of matched classes per token.
        draws: Number of random sets.
        seed: Seed of the sets.
        tokenizer: As in :func:`collapse.tokens`.
        min_count: As in :func:`collapse.measure`.
        progress: Called as progress(what, done, total).

    Returns:
        Five rows: tokens, matched, difference, standard error, p. The columns are those of :func:`collapse.tokens`.

    Raises:
        UsageError: An unknown token or id, or no class is left to match.
        CollapseError: The store or the tokenizer cannot be read.

    >>> from collapse.testing import statistics_of
    >>> table = frequency_matched(statistics_of([[9.0], [-1.0], [1.0]]), ids=[0])
    >>> table.frame()[["mean of", "nc2.norm"]].round(3).values.tolist()[:3]
    [['tokens', 6.0], ['matched', 3.0], ['difference', 3.0]]
    """
    check_number(matches, "matches")
    check_number(draws, "draws")
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise UsageError(f"seed is {seed!r:.40}: give a whole number of 0 or more")
    ids = [] if tokens is None and ids is None else ids  # choosing none is all
    chosen = choose(store, tokens, ids, tokenizer=tokenizer, min_count=min_count)
    found = measure_classes(chosen.store, measured_columns(), min_count=min_count, progress=progress)
    at = np.array(positions(found, chosen.ids or []))
    counts_C = found.statistics.counts.cpu().numpy()
    matched = matched_classes(counts_C, at, matches)
    names = ["count", *measured_columns()]
    columns: list[list[float | None]] = []
    notes = [*chosen.notes, *remarks(found.row)]
    for name in names:
        if name != "count" and name not in found.values:
            columns.append([None] * 5)
            continue
        values_C = counts_C.astype(float) if name == "count" else found.values[name].cpu().numpy()
        compared = _compare(values_C, at, matched, draws=draws, seed=seed)
        columns.append([None] * 5 if compared is None else list(compared.column(name == "count")))
        if compared is not None and compared.tokens < len(at):
            notes.append(f"{name}: of {counted(compared.tokens, 'token')} that have it, of {len(at):,}")
    least, most = min(map(len, matched)), max(map(len, matched))
    sizes = f"{least:,}" if least == most else f"{least:,} to {most:,} (equal counts are all matched)"
    notes.append(f"{counted(len(at), 'token')}, each matched with the classes of nearest count: {sizes}")
    notes.append(f"p: two-sided, one column at a time, from {draws:,} sets of one matched class per token")
    labels = ("tokens", "matched", "difference", "standard error", "p")
    rows = [[label, *(column[row] for column in columns)] for row, label in enumerate(labels)]
    return Table(heading(found.row), ["mean of", *names], rows, notes)


def matched_classes(counts_C: NDArray[np.int64], at: NDArray[np.int64], matches: int) -> list[NDArray[np.int64]]:
    """Return for each token the positions of the classes of nearest count, ascending; more than ``matches`` if tied.

    Args:
        counts_C: N_c.
        at: Positions of the tokens, which are not matched.
        matches: Number of classes per token.

    Raises:
        UsageError: There is no other class.

    >>> [each.tolist() for each in matched_classes(np.array([5, 1, 9, 6, 4]), np.array([0]), 1)]  # 4 and 6 are tied
    [[3, 4]]
    """
    others = np.setdiff1d(np.arange(len(counts_C)), at)
    if not len(others):
        raise UsageError("every class is among the tokens: no class is left to match them with")
    matched: dict[int, NDArray[np.int64]] = {}
    for count in np.unique(counts_C[at]):
        apart = np.abs(counts_C[others] - count)
        last = min(matches, len(others)) - 1
        matched[int(count)] = others[apart <= np.partition(apart, last)[last]]
    return [matched[int(count)] for count in counts_C[at]]


@dataclass(frozen=True)
class _Compared:
    """Some tokens compared with their matched classes: means, standard error and p-value of the difference."""

    tokens: int
    mean: float
    matched: float
    error: float
    p: float

    def column(self, of_counts: bool) -> tuple[float | None, ...]:
        """Return the rows of the table; of the counts, which are matched, nothing is tested."""
        tested = (None, None) if of_counts else (self.error, self.p)
        return self.mean, self.matched, self.mean - self.matched, *tested


def _compare(
    values_C: Values, at: NDArray[np.int64], matched: Sequence[NDArray[np.int64]], *, draws: int, seed: int
) -> _Compared | None:
    """Compare the tokens that have a value with the matched classes that have one; None if there are none."""
    having = [values_C[each][~np.isnan(values_C[each])] for each in matched]
    kept = [i for i, each in enumerate(having) if len(each) and not math.isnan(values_C[at[i]])]
    if not kept:
        return None
    own_n = values_C[at[kept]]
    others = [having[i] for i in kept]
    mean_n = np.array([each.mean() for each in others])
    variance = sum(float(each.var()) for each in others)
    difference = float((own_n - mean_n).mean())
    drawn = _drawn([each - mean for each, mean in zip(others, mean_n, strict=True)], draws, seed)
    extreme = int((np.abs(drawn) >= abs(difference) * (1 - 1e-12)).sum())
    return _Compared(
        tokens=len(kept),
        mean=float(own_n.mean()),
        matched=float(mean_n.mean()),
        error=math.sqrt(variance) / len(kept),
        p=(1 + extreme) / (1 + draws),
    )


def _drawn(others: Sequence[Values], draws: int, seed: int) -> Values:
    """Return the means of random sets of one value from each list, shape (draws,)."""
    draw = np.random.default_rng(seed)
    sums = np.zeros(draws)
    for each in others:
        sums += each[draw.integers(len(each), size=draws)]
    return sums / len(others)
