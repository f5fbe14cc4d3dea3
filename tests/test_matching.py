"""Tokens against classes of equal count: which are matched, the numbers directly, and p-values that hold."""

import numpy as np
import pytest
import torch
from golden_store import GOLDEN

import collapse
from collapse.errors import UsageError
from collapse.vocabulary.matching import matched_classes


def test_matched_are_the_nearest_counts_with_all_ties():
    counts = np.array([10, 9, 12, 11, 9, 50, 10])
    nearest = [each.tolist() for each in matched_classes(counts, np.array([0, 5]), 2)]
    assert nearest == [[1, 3, 4, 6], [2, 3]]  # 10 is nearest to 10; 9, 9 and 11 are equally near
    assert [len(each) for each in matched_classes(counts, np.array([0]), 100)] == [6]
    with pytest.raises(UsageError, match="no class is left"):
        matched_classes(counts, np.arange(7), 2)


def test_the_numbers_are_those_of_the_definition():
    store = collapse.load(GOLDEN)
    every = collapse.tokens(store).frame().set_index("id")
    chosen = every.index[[3, 30, 70]].tolist()
    table = collapse.frequency_matched(store, ids=chosen, matches=7).frame().set_index("mean of")
    others = every.drop(index=chosen)
    for name in ("count", "nc1.cdnv", "nc2.norm", "nc2.interference", "val_loss"):
        own, means, variances = [], [], []
        for token in chosen:
            apart = (others["count"] - every["count"][token]).abs()
            matched = others[apart <= apart.sort_values().iloc[6]][name].dropna()
            if not np.isnan(every[name][token]) and len(matched):
                own.append(every[name][token])
                means.append(matched.mean())
                variances.append(matched.var(ddof=0))
        assert table[name]["tokens"] == pytest.approx(np.mean(own), rel=1e-12)
        assert table[name]["matched"] == pytest.approx(np.mean(means), rel=1e-12)
        assert table[name]["difference"] == pytest.approx(np.mean(own) - np.mean(means), rel=1e-9, abs=1e-12)
        if name != "count":
            assert table[name]["standard error"] == pytest.approx(np.sqrt(np.sum(variances)) / len(own), rel=1e-9)
            assert 0 < table[name]["p"] <= 1
    again = collapse.frequency_matched(store, ids=chosen, matches=7)
    assert again.frame().set_index("mean of").equals(table)


def statistics(norms: np.ndarray, counts: np.ndarray) -> collapse.EmbeddingStatistics:
    """Classes of given counts on lines through the origin, in pairs of opposite means, so that their mean is 0."""
    means = torch.zeros(2 * len(norms), len(norms), dtype=torch.float64)
    for axis, norm in enumerate(norms):
        means[2 * axis, axis], means[2 * axis + 1, axis] = norm, -norm
    return collapse.EmbeddingStatistics(
        classes=torch.arange(len(means)),
        counts=torch.as_tensor(counts).repeat_interleave(2),
        means=means,
        variances=torch.ones(len(means)).double(),
    )


def test_ordinary_tokens_are_seldom_and_unusual_ones_are_found_to_differ():
    draw = np.random.default_rng(0)
    counts = np.repeat([1, 10, 100, 1000], 15)
    p_values = []
    for _ in range(40):
        norms = 1 + counts / 1000 + draw.normal(0, 0.1, len(counts))  # of the count, and noise
        ids = (2 * draw.choice(len(counts), 6, replace=False)).tolist()
        table = collapse.frequency_matched(statistics(norms, counts), ids=ids, draws=199)
        p_values.append(table.frame().set_index("mean of")["nc2.norm"]["p"])
    assert 0.2 < np.mean(np.array(p_values) < 0.5) < 0.8
    assert np.mean(np.array(p_values) <= 0.05) < 0.2
    norms[:4] += 1
    table = collapse.frequency_matched(statistics(norms, counts), ids=[0, 2, 4, 6], draws=199)
    assert table.frame().set_index("mean of")["nc2.norm"]["p"] == 1 / 200


def test_a_column_that_is_not_available_is_empty_and_it_is_said():
    s = statistics(np.array([1.0, 2.0, 3.0]), np.array([1, 1, 2]))
    table = collapse.frequency_matched(s, ids=[0], draws=9)
    assert table.frame()["val_loss"].isna().all()
    assert any("val_loss" in note and "no validation" in note for note in table.notes)
    assert "1 token, each matched with the classes of nearest count: 5" in table.notes


def test_no_token_is_an_error():
    with pytest.raises(UsageError, match="no token is named"):
        collapse.frequency_matched(GOLDEN)
