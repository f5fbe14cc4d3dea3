"""Compare tokens with classes of similar count, because almost every measurement of a class depends on its count.

Shapes: C classes, n tokens, m matched classes of one token.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collapse.core.progress import Report, shows_progress
from collapse.errors import UsageError, at_least, counted
from collapse.measurement.measuring import Measurable, row_and_results, values_by_class
from collapse.measurement.row_tables import titles_of
from collapse.measurement.table import Table
from collapse.vocabulary.chosen_classes import choose
from collapse.vocabulary.token_table import COLUMNS, positions, remarks

Values = NDArray[np.float64]

_LABELS = ("tokens", "matched", "difference", "standard error", "p")
_FEWEST = 5  # with fewer matched classes, their mean replaces a line in the log count
_TOGETHER = 100  # permutations at a time
_MOST = 40_000_000  # at most this many residuals are permuted per column, in about a second


@shows_progress
def frequency_matched(
    store: Measurable,
    tokens: str | Iterable[str] | None = None,
    *,
    ids: Iterable[int] | None = None,
    matches: int = 20,
    draws: int = 9_999,
    tokenizer: Any = None,
    min_count: int = 1,
    progress: Report | None = None,
) -> Table:
    """Compare measurements of some tokens, such as names or homonyms, with those of classes of similar count.

    Each token is matched with the ``matches`` classes of nearest count, and with all classes that tie with the last of
    these. The given tokens are never among the matched classes.

    For each token, a least-squares line in the log count is fitted to the values of the matched classes. If there are
    fewer than five classes, or if all counts are equal, the line is a constant. The difference is the mean over tokens
    of y − ŷ, where y is the token's value, and ŷ is the line's value at the token's count. The standard error comes
    from the variance about the line. p (two-sided) is the share of permutations of residuals with at least the observed
    absolute difference. p assumes that ordinary classes of similar count differ from the line by exchangeable noise.
    Each column has its own test, without a correction for several columns.

    Args:
        store: A store, its folder or name on the Hub, or an :class:`collapse.EmbeddingStatistics`.
        tokens: Texts, verbatim; variants with or without a leading space are not added.
        ids: Token ids.
        matches: Number of matched classes per token.
        draws: Number of permutations; fewer are made for more than 4,000 tokens and matched classes together.
        tokenizer: As in :func:`collapse.tokens`.
        min_count: As in :func:`collapse.measure`.
        progress: Called as progress(what, done, total[, note]).

    Returns:
        Five rows: tokens, matched, difference, standard error, p. The columns are those of :func:`collapse.tokens`.

    Raises:
        UsageError: A token or id is unknown, none is given, no class is left to match, or a number is not positive.
        CollapseError: The store or the tokenizer cannot be read.

    >>> from collapse.testing import statistics_of
    >>> table = frequency_matched(statistics_of([[9.0], [-1.0], [1.0]]), ids=[0])
    >>> table.frame()[["mean of", "nc2.norm"]].round(3).values.tolist()[:3]
    [['tokens', 6.0], ['matched', 3.0], ['difference', 3.0]]
    """
    matches, draws = at_least(1, "matches", matches), at_least(1, "draws", draws)
    chosen = choose(store, tokens, ids, tokenizer=tokenizer, min_count=min_count)
    row, found = row_and_results(chosen.store, metrics=COLUMNS, min_count=min_count, progress=progress, by_class=True)
    at, counts_C = np.array(positions(found.s, chosen.ids or [])), found.s.counts.cpu().numpy()
    matched = matched_classes(counts_C, at, matches)
    values = values_by_class(found)
    compared = {name: _compare(each.numpy(), counts_C, at, matched) for name, each in values.items()}
    sizes = sorted({min(map(len, matched)), max(map(len, matched))})
    to = " to ".join(f"{size:,}" for size in sizes) + (" (all of equal count are matched)" if len(sizes) > 1 else "")
    notes = [*chosen.notes, *remarks(row), *_said_of_absent(compared, len(at))]
    notes.append(f"{counted(len(at), 'token')}, each matched with the classes of nearest count: {to}")
    notes.append(f"p: two-sided, one column at a time, from up to {draws:,} permutations of residuals")
    own, others = float(counts_C[at].mean()), float(np.mean([counts_C[each].mean() for each in matched]))
    columns: list[Sequence[float | None]] = [[own, others, own - others, None, None]]  # counts are matched, not tested
    columns += [each.column(draws) if (each := compared.get(name)) else [None] * 5 for name in COLUMNS]
    rows = list(zip(_LABELS, *columns, strict=True))
    return Table(titles_of([row])[0], ["mean of", "count", *COLUMNS], rows, notes)


def _said_of_absent(compared: "Mapping[str, _Compared | None]", tokens: int) -> list[str]:
    """Return a note for each measurement in which only some of the tokens can be compared.

    A token can be compared if it and at least one of its matched classes have a value.
    """
    found = {name: each.tokens for name, each in compared.items() if each}
    return [
        f"{name}: only {n:,} of {counted(tokens, 'token')} can be compared" for name, n in found.items() if n < tokens
    ]


def matched_classes(counts_C: NDArray[np.int64], at: NDArray[np.int64], matches: int) -> list[NDArray[np.int64]]:
    """Return the matched classes of each token: the ``matches`` classes of nearest count, and ties with the last.

    Tokens (``at``) and classes are given by their positions; the result is ascending. The given tokens are never
    matched.

    Raises:
        UsageError: There is no other class.

    >>> [each.tolist() for each in matched_classes(np.array([5, 1, 9, 6, 4]), np.array([0]), 1)]  # 4 and 6 are tied
    [[3, 4]]
    """
    others = np.setdiff1d(np.arange(len(counts_C)), at)
    if not len(others):
        raise UsageError(
            "the given tokens include every class of the store, so no other class is left to compare them with: give "
            "fewer tokens"
        )
    matched: dict[int, NDArray[np.int64]] = {}
    for count in np.unique(counts_C[at]):
        apart = np.abs(counts_C[others] - count)
        last = min(matches, len(others)) - 1
        matched[int(count)] = others[apart <= np.partition(apart, last)[last]]
    return [matched[int(count)] for count in counts_C[at]]


def _compare(
    values_C: Values, counts_C: NDArray[np.int64], at: NDArray[np.int64], matched: Sequence[NDArray[np.int64]]
) -> "_Compared | None":
    """Compare tokens with their matched classes; return None if no token can be compared.

    Tokens and classes without a value are excluded.
    """
    having = [each[~np.isnan(values_C[each])] for each in matched]
    kept = [(i, each) for i, each in zip(at, having, strict=True) if len(each) and not math.isnan(values_C[i])]
    if not kept:
        return None
    logs_C, weights_C = np.log(counts_C), np.zeros(len(values_C))
    residuals_C, scales_C = np.zeros(len(values_C)), np.full(len(values_C), np.nan)
    tokens = np.array([i for i, _ in kept])
    for i, others in kept:
        mean, centred, spread = _centred(logs_C[others], _FEWEST)
        weights_C[i] += 1 / len(kept)
        line = 1 / len(others) + (logs_C[i] - mean) * centred / spread
        np.subtract.at(weights_C, others, line / len(kept))
        inside = counts_C[[*others, i]]
        near = tokens[(counts_C[tokens] >= inside.min()) & (counts_C[tokens] <= inside.max())]
        window = np.concatenate([near, others])
        residuals, scale = _residuals(logs_C[window], values_C[window])
        first = np.isnan(scales_C[window]) | (window == i)
        residuals_C[window[first]], scales_C[window[first]] = residuals[first], scale
    used = ~np.isnan(scales_C)
    return _Compared(
        tokens=len(kept),
        mean=float(values_C[tokens].mean()),
        difference=float(weights_C[used] @ values_C[used]),
        parts=weights_C[used] * scales_C[used],
        residuals=residuals_C[used],
    )


@dataclass(frozen=True)
class _Compared:
    """The result of comparing some tokens with their matched classes.

    Attributes:
        tokens: Number of tokens.
        mean: Mean of the tokens' values.
        difference: Difference from the matched classes, a weighted sum of the values of tokens and matched classes.
        parts: For each token or class in this sum, its weight times the standard deviation about the line.
        residuals: Standardized residuals of these tokens and classes.
    """

    tokens: int
    mean: float
    difference: float
    parts: Values
    residuals: Values

    def column(self, draws: int) -> list[float | None]:
        """Return the table's column: tokens, matched, difference, standard error, p."""
        mean, difference = self.mean, self.difference
        return [mean, mean - difference, difference, self.error, self.p(draws)]

    @property
    def error(self) -> float:
        """Standard error of the difference."""
        return float(np.linalg.norm(self.parts))

    def p(self, draws: int) -> float:
        """Return the share of permutations of the residuals with at least the observed absolute difference."""
        draws = min(draws, max(_MOST // len(self.parts), 1))
        draw, extreme = np.random.default_rng(0), 1
        for start in range(0, draws, _TOGETHER):
            drawn = draw.permuted(np.tile(self.residuals, (min(_TOGETHER, draws - start), 1)), axis=1) @ self.parts
            extreme += int((np.abs(drawn) >= abs(self.difference) * (1 - 1e-12)).sum())
        return extreme / (1 + draws)


def _centred(x: Values, fewest: int) -> tuple[float, Values, float]:
    """Return x̄, x − x̄ and Σ(x − x̄)².

    If x has fewer than ``fewest`` values, or only equal values, return x̄, zeros and 1.
    """
    mean = float(x.mean())
    if len(x) < fewest or not np.ptp(x):
        return mean, np.zeros(len(x)), 1.0
    return mean, x - mean, float((x - mean) @ (x - mean))


def _residuals(x: Values, y: Values) -> tuple[Values, float]:
    """Fit a least-squares line in x to y; return the standardized residuals and the standard deviation about the line.

    If y is exactly on the line, the residuals are not standardized, and the standard deviation is 0.
    """
    _, centred, spread = _centred(x, _FEWEST + 1)
    leverage = 1 / len(x) + centred**2 / spread
    left = y - y.mean() - centred * (centred @ y) / spread
    scale = math.sqrt(left @ left / (len(x) - 1 - centred.any()))
    free = np.sqrt(np.maximum(1 - leverage, 1e-9))  # a class that alone determines the slope has residual 0
    return (left / free / scale if scale else left), scale
