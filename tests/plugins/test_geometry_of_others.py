"""NC5, minority collapse, soft labels and change between checkpoints: NumPy in float64, and three known geometries."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from reference import directions
from reference_geometry import cosine, orthogonality, similarity
from safetensors.torch import load_file

import collapse
from collapse.testing import statistics_of

NC5, SIMILARITY = "nc5.ood_orthogonality", "transient.similarity"
MEANS, ROWS, SOFT = "minority.mean_cosine", "minority.row_cosine", "soft_labels.duality"
C, D = 5, 8


def made(means, rows, counts, within, ood, before):
    """Statistics of a store, with those of another text and of another checkpoint."""
    given = map(torch.as_tensor, (means, rows, counts, within, *ood, before))
    means, rows, counts, within, other, each, before = given
    n = int(counts.sum())
    return replace(
        statistics_of(means, rows),
        counts=counts,
        extra={"covariance": {"scatter": within * n, "samples": torch.tensor([n])}},
        ood=replace(statistics_of(other), counts=each),
        previous=statistics_of(before),
    )


def direct(means, rows, counts, within, ood, before):
    """The same values in NumPy, directly from the definitions, with C×C matrices."""
    centred, shifted = means - means.mean(axis=0), rows - rows.mean(axis=0)
    rare = counts <= np.sort(counts)[max(2, math.ceil(len(counts) / 4)) - 1]
    pairs = np.triu_indices(rare.sum(), 1)
    embeddings = within + sum(n * np.outer(m, m) for n, m in zip(counts, means, strict=True)) / counts.sum()
    return {
        NC5: orthogonality(means, *ood),
        MEANS: float((directions(centred[rare]) @ directions(centred[rare]).T)[pairs].mean()),
        ROWS: float((directions(shifted[rare]) @ directions(shifted[rare]).T)[pairs].mean()),
        SOFT: cosine(shifted.T @ shifted, embeddings),
        SIMILARITY: similarity(means, before),
    }


def random(seed, counts):
    draw = np.random.default_rng(seed)
    factor = draw.normal(size=(D, D))
    means, rows, before = (draw.normal(size=(len(counts), D)) + 1 for _ in range(3))
    ood = draw.normal(size=(3, D)) + 1, np.array([1, 4, 9])
    return means, rows, np.array(counts), factor @ factor.T, ood, before


def numbers(s):
    return collapse.measure(s, metrics=["nc5", "minority", SOFT, SIMILARITY]).measurements


@pytest.mark.parametrize("counts", [[1, 1, 2, 5, 9], [7] * 5, list(range(1, 41)), [1] * 30 + [3] * 30])
def test_they_equal_numpy(counts):
    given = random(len(counts), counts)
    found = numbers(made(*given))
    for name, value in direct(*given).items():
        assert found[name] == pytest.approx(value, rel=1e-12, abs=1e-15), name


SIMPLEX = np.pad(np.eye(C) - 1 / C, ((0, 0), (0, D - C)))
FRAME = np.eye(C, D)
EQUAL = np.zeros((D, D))
AWAY = np.eye(D)[-1:]
KNOWN = {
    "a simplex": (SIMPLEX, [0, -1 / (C - 1), -1 / (C - 1), 1, 1]),
    "an orthonormal frame": (FRAME, [0, -1 / (C - 1), -1 / (C - 1), math.sqrt((C - 1) / C), 1]),  # its mean is not 0
    "one point": (np.ones((C, D)), [1 / math.sqrt(D), None, None, None, None]),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_geometries(name):
    """At full collapse W and M are equal, and the checkpoint before had the same geometry, rotated and scaled."""
    points, values = KNOWN[name]
    expected = dict(zip((NC5, MEANS, ROWS, SOFT, SIMILARITY), values, strict=True))
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(D, D)))[0]
    s = made(points, points, np.full(C, 4), EQUAL, (AWAY, np.ones(1, int)), 3 * points @ turn + 5)
    row = collapse.measure(s, metrics=list(expected))
    for each, value in expected.items():
        assert row[each] == (None if value is None else pytest.approx(value, abs=1e-9)), each
    assert all(any(note.measurement == each for note in row.notes) for each in expected if expected[each] is None)


def test_minority_collapse_is_seen():
    points = np.vstack([FRAME, FRAME[:1] + FRAME[1:2]])
    points[-3:] = points[-1]  # the three rarest classes share a direction
    s = made(points, points, np.array([9, 9, 9, 1, 1, 1]), EQUAL, (AWAY, np.ones(1, int)), points)
    found = numbers(s)
    assert found[MEANS] == pytest.approx(1) == found[ROWS]


def test_soft_labels_without_a_model():
    """W and h of eleven contexts, optimized freely with weight decay: their next tokens are soft labels."""
    draw = torch.Generator().manual_seed(0)
    shares = torch.rand(11, C, generator=draw, dtype=torch.float64).pow(4)
    soft = (shares / shares.sum(dim=1, keepdim=True)).repeat_interleave(C, dim=0)  # each context with each next token
    weight = torch.randn(C, D, generator=draw, dtype=torch.float64, requires_grad=True)
    contexts = torch.randn(11, D, generator=draw, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, contexts], max_iter=500, tolerance_grad=1e-11, line_search_fn="strong_wolfe")

    def loss():
        optimizer.zero_grad()
        logits = contexts.repeat_interleave(C, dim=0) @ weight.T
        of_labels = torch.nn.functional.cross_entropy(logits, soft)
        total = of_labels + 1e-3 * (weight.square().sum() + 2 * contexts.square().sum())
        total.backward()
        return total

    optimizer.step(loss)
    h, labels = contexts.detach().repeat_interleave(C, dim=0), torch.arange(C).repeat(11)
    row = collapse.measure(features=h, labels=labels, classifier=weight.detach(), metrics=SOFT)
    assert row[SOFT] == pytest.approx(1, abs=1e-6)
    assert collapse.measure(features=h, labels=labels, classifier=torch.eye(C, D), metrics=SOFT)[SOFT] < 0.99


def test_classes_that_only_one_row_has_do_not_count():
    given = random(3, [2] * 6)
    s = made(*given)
    fewer = replace(s.previous, classes=torch.tensor([0, 1, 3, 4, 7, 9]))
    found = numbers(replace(s, previous=fewer))[SIMILARITY]
    kept = [0, 1, 3, 4]
    means, before = given[0][kept], given[5][:4]
    assert found == pytest.approx(direct(means, means, np.ones(4), EQUAL, given[4], before)[SIMILARITY], rel=1e-9)
    none = replace(s.previous, classes=torch.arange(10, 16))
    row = collapse.measure(replace(s, previous=none), metrics=SIMILARITY)
    assert row[SIMILARITY] is None
    assert row.notes[0].text == "fewer than two classes are also in the previous row"


@pytest.mark.parametrize(
    ("name", "cka", "deviation"),
    [
        ("few", 0.9451470794934033, 0.553066080051214),
        ("many", 0.6895479894109251, 0.39895797112482134),
        ("float32", 0.7714328986014579, 0.38660614012108435),
    ],
)
def test_other_packages(name, cka, deviation):
    """cka_base of ckatorch 1.0.3, of class means and W; orthogonality_deviation of neural-collapse, of class means."""
    features = load_file(Path(__file__).parents[1] / "frozen" / f"{name}.safetensors")
    arrays = [features[f"train_{kind}"] for kind in ("features", "labels")]
    s = collapse.collect_arrays(*arrays, features["classifier"], bias=features.get("classifier_bias")).statistics()
    of_rows = replace(s, means=s.classifier)
    other = statistics_of(features["validation_features"].double().mean(dim=0, keepdim=True))
    found = collapse.measure(replace(s, previous=of_rows, ood=other), metrics=[SIMILARITY, NC5])
    assert found[SIMILARITY] == pytest.approx(cka, rel=1e-9)
    assert found[NC5] == pytest.approx(deviation, rel=1e-9)
