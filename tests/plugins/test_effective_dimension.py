"""The effective dimension of class means: known dimensions are found, and both forms follow from the Gram matrix."""

import numpy as np
import pytest
import torch

import collapse
from collapse.testing import statistics_of
from collapse_metrics.effective_dimension import simplex_dimension, uniform_dimension, uniform_participation
from collapse_metrics.gnc2 import uniform_cov

D_EFF, PR, GNC2 = "nc2.effective_dimension", "nc2.participation_ratio", "gnc2.hyperspherical_uniformity"


def measured(means, *more):
    return collapse.measure(statistics_of(torch.as_tensor(means)), metrics=[D_EFF, PR, *more]).measurements


def uniform(classes, D, d, seed):
    """Points uniform on a sphere of D dimensions, which lies askew in d dimensions."""
    draw = np.random.default_rng(seed)
    points = draw.normal(size=(classes, D))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    basis = np.linalg.qr(draw.normal(size=(d, D)))[0]
    return points @ basis.T


@pytest.mark.parametrize(("classes", "D", "d"), [(1500, 2, 64), (2000, 8, 256), (2000, 40, 256), (3000, 64, 64)])
def test_uniform_points_have_the_dimension_and_gnc2_of_their_sphere_whatever_the_space(classes, D, d):
    found = measured(uniform(classes, D, d, seed=D), GNC2)
    assert found[D_EFF] == pytest.approx(D, rel=0.02)
    assert found[PR] == pytest.approx(classes * D / (classes + D - 1), rel=0.02)
    if D > 2:  # else its mean is 0
        assert found[GNC2] == pytest.approx(uniform_cov(classes, found[D_EFF]), rel=0.03)


@pytest.mark.parametrize("classes", [2, 3, 9, 30])
def test_a_simplex_has_its_limits_exactly(classes):
    found = measured(5 * np.eye(classes) + 2)
    assert found[D_EFF] == pytest.approx(simplex_dimension(classes), rel=1e-9)
    assert found[PR] == pytest.approx(classes - 1, rel=1e-9)


def test_both_are_the_direct_numbers_and_one_follows_from_the_other():
    means = np.random.default_rng(0).normal(size=(60, 9)) * np.linspace(0.1, 2, 9) + 3
    found = measured(means, "nc2.interference", "nc2.interference_std")
    units = means - means.mean(axis=0)
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    cosines = (units @ units.T)[np.triu_indices(60, 1)]
    assert found[D_EFF] == pytest.approx(1 / (cosines**2).mean(), rel=1e-9)
    assert found[D_EFF] == pytest.approx(
        1 / (found["nc2.interference"] ** 2 + found["nc2.interference_std"] ** 2), rel=1e-9
    )
    spectrum = np.linalg.eigvalsh(units.T @ units)
    assert found[PR] == pytest.approx(spectrum.sum() ** 2 / (spectrum**2).sum(), rel=1e-9)
    assert 1 / found[PR] == pytest.approx(1 / 60 + (1 - 1 / 60) / found[D_EFF], rel=1e-9)


def test_classes_without_a_direction_are_left_out():
    cross = [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]
    with_centre, without = measured([*cross, [0.0, 0.0]]), measured(cross)
    assert with_centre == pytest.approx(without)
    assert without[PR] == pytest.approx(2)
    row = collapse.measure(statistics_of(torch.ones(3, 2)), metrics=[D_EFF, PR])
    assert (row.measurements[D_EFF], row.measurements[PR]) == (None, None)
    assert {note.measurement for note in row.notes} >= {D_EFF, PR}


def test_limits_of_many_classes_are_those_of_uniform_points():
    assert uniform_dimension(1000, 64) == 64
    assert uniform_participation(1000, 64) == pytest.approx(1000 * 64 / 1063)
    assert (uniform_dimension(65, 64), uniform_participation(65, 64)) == (64.0**2, 64)
