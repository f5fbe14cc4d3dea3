"""The most confusable pairs and the neighbours of tokens, compared with all pairs computed at once."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from golden_store import GOLDEN
from hypothesis import given, settings
from hypothesis import strategies as st

import collapse
from collapse.errors import UsageError
from collapse.testing import random_features, statistics_of


def pairs_of(s: collapse.EmbeddingStatistics) -> dict[tuple[int, int], tuple[float, float, float]]:
    """Distance, cosine and CDNV of each pair of classes, by their ids."""
    means, variances, classes = s.means.numpy(), s.variances.numpy(), s.classes.tolist()
    centred = means - means.mean(axis=0)
    units = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    found = {}
    for i, j in combinations(range(len(classes)), 2):
        apart = float(np.linalg.norm(means[i] - means[j]))
        cdnv = float(variances[i] + variances[j]) / (2 * apart**4)
        found[classes[i], classes[j]] = (apart, float(units[i] @ units[j]), cdnv)
    return found


def check_pairs(store, most: int) -> None:
    s = store if isinstance(store, collapse.EmbeddingStatistics) else store.statistics()
    expected = sorted(pairs_of(s).items(), key=lambda each: -each[1][2])[:most]
    table = collapse.confusable_pairs(store, most)
    frame = table.frame()
    assert list(zip(frame["id"], frame["id 2"], strict=True)) == [ids for ids, _ in expected]
    numbers = frame[["distance", "cosine", "nc1.cdnv"]].to_numpy(float)
    np.testing.assert_allclose(numbers, [values for _, values in expected], rtol=1e-9, atol=1e-12)
    counts = dict(zip(s.classes.tolist(), s.counts.tolist(), strict=True))
    assert frame["count 2"].tolist() == [counts[each] for each in frame["id 2"]]


def test_the_golden_stores_most_confusable_pairs():
    check_pairs(collapse.load(GOLDEN), 100)


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 10_000), classes=st.integers(2, 30), dim=st.integers(2, 8), most=st.integers(1, 500))
def test_any_stores_most_confusable_pairs(seed, classes, dim, most):
    features = random_features(classes, dim, 6 * classes, seed=seed)
    embeddings, labels = features["train_features"].double(), features["train_labels"]
    check_pairs(collapse.collect_arrays(embeddings, labels, features["classifier"]), most)


def test_pairs_are_ranked_by_any_pair_measurement():
    s = collapse.load(GOLDEN).statistics()
    frame = collapse.confusable_pairs(s, 3, by="nc2.interference").frame()
    expected = sorted(pairs_of(s).items(), key=lambda each: -each[1][1])[:3]
    assert list(zip(frame["id"], frame["id 2"], strict=True)) == [ids for ids, _ in expected]
    assert frame["nc2.interference"].tolist() == pytest.approx(frame["cosine"].tolist(), rel=1e-9)


def test_pairs_of_equal_means_are_left_out():
    s = statistics_of([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    s = replace(s, classes=torch.tensor([4, 5, 9]), variances=s.variances + 1)
    assert collapse.confusable_pairs(s, 5).frame()[["id", "id 2"]].values.tolist() == [[4, 9], [5, 9]]
    (nearest, *_) = collapse.neighbours(s, ids=[5]).frame().to_dict("records")
    assert (nearest["id 2"], nearest["distance"]) == (4, 0.0)
    assert np.isnan(nearest["nc1.cdnv"])


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 10_000), classes=st.integers(2, 20), dim=st.integers(2, 8), most=st.integers(1, 25))
def test_neighbours_are_the_nearest_and_the_most_interfering(seed, classes, dim, most):
    features = random_features(classes, dim, 6 * classes, seed=seed)
    embeddings, labels = features["train_features"].double(), features["train_labels"]
    store = collapse.collect_arrays(embeddings, labels, features["classifier"])
    found = pairs_of(store.statistics())
    asked = list(dict.fromkeys([0, classes - 1]))
    frame = collapse.neighbours(store, ids=asked, most=most).frame()
    for token in asked:
        others = {i + j - token: values for (i, j), values in found.items() if token in (i, j)}
        for kind, at, sign in (("nearest", 0, 1), ("interfering", 1, -1)):
            expected = sorted(others.items(), key=lambda each, at=at, sign=sign: sign * each[1][at])[:most]
            some = frame[(frame["id"] == token) & (frame["kind"] == kind)]
            assert some["id 2"].tolist() == [other for other, _ in expected]
            assert some["rank"].tolist() == list(range(1, len(expected) + 1))
            numbers = some[["distance", "cosine", "nc1.cdnv"]].to_numpy(float)
            np.testing.assert_allclose(numbers, [values for _, values in expected], rtol=1e-9, atol=1e-12)


def test_what_is_wrong_is_said():
    with pytest.raises(UsageError, match="is not a measurement of pairs"):
        collapse.confusable_pairs(GOLDEN, 5, by="nc2.norm")
    with pytest.raises(UsageError, match="no token is given"):
        collapse.neighbours(GOLDEN)
