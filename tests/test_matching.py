"""Tokens compared with classes of equal count: the matched classes, direct numbers, and valid p-values."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from golden_store import GOLDEN

import collapse
from collapse.errors import UsageError
from collapse.testing import statistics_of
from collapse.vocabulary import matching
from collapse.vocabulary.matching import matched_classes


def test_matched_are_the_nearest_counts_with_all_ties():
    counts = np.array([10, 9, 12, 11, 9, 50, 10])
    nearest = [each.tolist() for each in matched_classes(counts, np.array([0, 5]), 2)]
    assert nearest == [[1, 3, 4, 6], [2, 3]]  # 10 is nearest to 10; 9, 9 and 11 are equally near
    assert [len(each) for each in matched_classes(counts, np.array([0]), 100)] == [6]
    with pytest.raises(UsageError, match="no other class is left to compare"):
        matched_classes(counts, np.arange(7), 2)


def line(x, y, at):
    """Value of a least-squares line at a point, or the mean if no line can be fitted."""
    return np.polyval(np.polyfit(x - at, y, 1), 0) if len(x) >= 5 and np.ptp(x) else np.mean(y)


def test_the_numbers_are_those_of_the_definition():
    store = collapse.load(GOLDEN)
    every = collapse.tokens(store).frame().set_index("id")
    chosen = every.index[[3, 30, 70]].tolist()
    table = collapse.frequency_matched(store, ids=chosen, matches=7).frame().set_index("mean of")
    others = every.drop(index=chosen)
    for name in ("nc1.cdnv", "nc2.norm", "nc2.interference", "val_loss"):
        own, means = [], []
        for token in chosen:
            apart = (others["count"] - every["count"][token]).abs()
            matched = others[apart <= apart.sort_values().iloc[6]].dropna(subset=[name])
            if not np.isnan(every[name][token]) and len(matched):
                own.append(every[name][token])
                means.append(line(np.log(matched["count"]), matched[name], np.log(every["count"][token])))
        assert table[name]["tokens"] == pytest.approx(np.mean(own), rel=1e-12)
        assert table[name]["matched"] == pytest.approx(np.mean(means), rel=1e-9)
        assert table[name]["difference"] == pytest.approx(np.mean(own) - np.mean(means), rel=1e-9, abs=1e-12)
        assert 0 < table[name]["p"] <= 1
    again = collapse.frequency_matched(store, ids=chosen, matches=7)
    assert again.frame().set_index("mean of").equals(table)


def test_the_error_of_tokens_that_share_their_matches_has_both_variances():
    """Tokens of one count: s²(1/n + 1/m), where the variance is of the tokens and their matches, with n + m − 1."""
    draw = np.random.default_rng(3)
    norms = draw.uniform(1, 2, 20)
    table = collapse.frequency_matched(statistics(norms, np.full(20, 7)), ids=[0, 2, 4, 6]).frame().set_index("mean of")
    expected = np.repeat(norms, 2).std(ddof=1) * np.sqrt(1 / 4 + 1 / 36)
    assert table["nc2.norm"]["standard error"] == pytest.approx(expected, rel=1e-9)


def statistics(norms: np.ndarray, counts: np.ndarray) -> collapse.EmbeddingStatistics:
    """Classes of given counts on lines through the origin, in pairs of opposite means, so that their mean is 0."""
    means = torch.zeros(2 * len(norms), len(norms), dtype=torch.float64)
    for axis, norm in enumerate(norms):
        means[2 * axis, axis], means[2 * axis + 1, axis] = norm, -norm
    s = statistics_of(means)
    return replace(s, counts=torch.as_tensor(counts).repeat_interleave(2), variances=s.variances + 1)


def test_unusual_tokens_are_found_to_differ():
    counts = np.repeat([1, 10, 100, 1000], 15)
    norms = 1 + counts / 1000 + np.random.default_rng(0).normal(0, 0.1, len(counts))  # of the count, and noise
    norms[:4] += 1
    table = collapse.frequency_matched(statistics(norms, counts), ids=[0, 2, 4, 6], draws=199)
    assert table.frame().set_index("mean of")["nc2.norm"]["p"] == 1 / 200
    with pytest.raises(UsageError, match="matches must be at least 1, got 0"):
        collapse.frequency_matched(statistics(norms, counts), ids=[0], matches=0)


@pytest.mark.parametrize("counts", [[31] + [30] * 29, [30] * 29 + [31], [30] * 15 + [29] + [30] * 14])
def test_a_class_that_alone_decides_the_slope_has_no_residual(counts):
    values, at = np.random.default_rng(4).uniform(1, 2, 30), np.array([0])
    compared = matching._compare(values, np.array(counts), at, matched_classes(np.array(counts), at, 29))
    assert 0.02 < compared.p(999) <= 1
    assert 0 < compared.error < 100


NOISE = {
    "normal": lambda draw, n: draw.normal(size=n),
    "t, 5 degrees of freedom": lambda draw, n: draw.standard_t(5, n),
    "log-normal": lambda draw, n: np.exp(draw.normal(size=n)),
}
COUNTS = np.maximum(1, 20_000 // np.arange(1, 1_001))  # Zipf's law
CHOSEN = {  # where ten tokens stand, and their matches
    "scattered": (np.arange(1_000), 20),
    "similar count": (np.arange(100, 140), 20),
    "equal count": (np.flatnonzero(COUNTS == 30), 20),
    "most frequent": (np.arange(10), 20),
    "one match": (np.arange(1_000), 1),
}


@pytest.mark.parametrize(
    ("noise", "draws", "most"),
    # one standard error of 0.05 is 0.016 of 180 draws, and 0.004 of 3,000
    [("log-normal", 60, 0.1), *(pytest.param(noise, 1_000, 0.065, marks=pytest.mark.slow) for noise in NOISE)],
)
@pytest.mark.parametrize("where", CHOSEN)
def test_ordinary_tokens_seldom_have_a_small_p(where, noise, draws, most):
    """Values of the log count, with noise that also depends on it."""
    draw, (among, matches), found = np.random.default_rng(0), CHOSEN[where], []
    for spread in (0.0, -0.25, 0.15):
        for _ in range(draws):
            values = 2 - 0.5 * np.log(COUNTS) + 0.7 * COUNTS**spread * NOISE[noise](draw, len(COUNTS))
            at = np.sort(draw.choice(among, 10, replace=False))
            found.append(matching._compare(values, COUNTS, at, matched_classes(COUNTS, at, matches)).p(199) <= 0.05)
    assert np.mean(found) < most
