"""The measurements of collapse_geometry: direct computations, values at known frames, and when they are measured."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from reference_geometry import geometry, summaries, twonn
from safetensors.torch import save_file

import collapse
from collapse.plugin.plugin_manager import plugins
from collapse.testing import random_features, statistics_of

NAMES = plugins().select("geometry")
SHAPES = {"few classes": (5, 9, 60), "many classes": (40, 6, 300), "large": (150, 120, 2000)}
VARIANCE = 0.01  # of the noise, in every direction


def measured(features, tmp_path, **options):
    save_file(features, tmp_path / "f.safetensors")
    return collapse.measure(collapse.collect(tmp_path / "f.safetensors"), metrics="geometry", **options)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_number_is_the_direct_one(shape, tmp_path):
    features = random_features(*SHAPES[shape], spread=0.3, seed=3)
    features["train_features"][:, 1] += 2  # a rogue coordinate
    features["classifier_bias"] = torch.linspace(-1, 1, len(features["classifier"]))
    found = measured(features, tmp_path).measurements
    expected = geometry({name: tensor.numpy() for name, tensor in features.items()})
    assert found.keys() == expected.keys() == set(NAMES)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name


def around(means, variance=VARIANCE):
    """Features around means, with exactly the same variance in every direction and class; W = M and b = 0."""
    C, d = means.shape
    noise = math.sqrt(variance * d) * torch.cat([torch.eye(d), -torch.eye(d)]).double()
    h = (means[:, None] + noise).flatten(0, 1)
    y = torch.arange(C).repeat_interleave(2 * d)
    return {"train_features": h, "train_labels": y, "classifier": means, "classifier_bias": torch.zeros(C).double()}


C, D = 6, 8
SIMPLEX = torch.nn.functional.pad(torch.eye(C).double() - 1 / C, (0, D - C))
SETS = {
    "simplex": around(SIMPLEX),
    "orthonormal": around(torch.eye(C).double()),
    "collapsed": around(SIMPLEX, variance=0),
}
RANKS = ("effective_rank", "rankme", "participation_ratio", "stable_rank")
BETWEEN = 1 / C  # each eigenvalue of Σ_B
EMBEDDINGS = summaries(np.sqrt([BETWEEN + VARIANCE] * (C - 1) + [VARIANCE] * (D - C + 1)))
ETA = [(C - 1) / C / ((C - 1) / C + d * VARIANCE) for d in (D, C)]
EXPECTED = {  # None: no number, with a note
    **{f"within.{name}": (D, C, None) for name in RANKS},
    **{f"between.{name}": (C - 1, C - 1, C - 1) for name in RANKS},
    **{f"{of}.{name}": (C - 1, C, C - 1) for name in RANKS for of in ("means", "classifier")},
    **{f"embeddings.{name}": (value, C, C - 1) for name, value in EMBEDDINGS.items()},
    **{f"{of}.alpha": (0, 0, 0) for of in ("between", "means", "classifier")},
    "within.alpha": (0, 0, None),
    "embeddings.alpha": (EMBEDDINGS["alpha"], 0, 0),
    "eta_squared": (*ETA, 1),
    "snr": ((C - 1) * BETWEEN / VARIANCE, (C - 1) * BETWEEN / VARIANCE, None),
    "vci": (VARIANCE / (VARIANCE + BETWEEN), VARIANCE / (VARIANCE + BETWEEN), 0),
    "directional_cdnv": (VARIANCE / 2, VARIANCE / 2, 0),
    "classifier.etf_error": (0, math.sqrt(2 - 2 * math.sqrt((C - 1) / C)), 0),
    "classifier.norm_cov": (0, 0, 0),
    "classifier.cosine": (-1 / (C - 1), 0, -1 / (C - 1)),
    "classifier.cosine_std": (0, 0, 0),
    "margin": (C / (C - 1), math.sqrt(C / (C - 1)), C / (C - 1)),
    "margin_min": (C / (C - 1), math.sqrt(C / (C - 1)), C / (C - 1)),
    "bias_collapse": (0, 0, 0),
    "span_overlap": (1, 1, 1),
    "span_angle": (0, 0, 0),
    "anisotropy": (-1 / (C - 1), 0, -1 / (C - 1)),
    "rogue_share": (1 / C, None, 1 / C),
    "means.intrinsic_dimension": (None, None, None),
    **{f"slope.{name}": (None, None, None) for name in ("mean", "row", "bias", "variance")},
}


@pytest.mark.parametrize("column", range(3), ids=SETS)
def test_values_at_exact_frames(column, tmp_path):
    row = measured(list(SETS.values())[column], tmp_path)
    expected = {f"geometry.{name}": values[column] for name, values in EXPECTED.items()}
    assert row.measurements == {name: value and pytest.approx(value, abs=1e-9) for name, value in expected.items()} | {
        name: pytest.approx(0, abs=1e-9) for name, value in expected.items() if value == 0
    }
    assert {each.measurement for each in row.notes} >= {name for name, value in expected.items() if value is None}
    assert not [each for each in row.notes if each.kind in ("error", "not_finite")]


def test_slopes_of_a_simplex_of_unequal_classes():
    counts = torch.tensor([1, 2, 4, 8, 16, 32])
    s = replace(
        statistics_of(SIMPLEX, SIMPLEX),
        counts=counts,
        bias=counts.double().log() + 5,
        variances=counts.double() ** -0.5,
    )
    found = collapse.measure(s, metrics="geometry.slope").measurements
    expected = {"mean": 0, "row": 0, "bias": 1, "variance": -0.5}
    assert found == {f"geometry.slope.{name}": pytest.approx(value, abs=1e-12) for name, value in expected.items()}


def test_near_and_equal_means():
    draw = torch.Generator().manual_seed(1)
    means = torch.randn(60, 5, generator=draw, dtype=torch.float64)
    means[1], means[3] = means[0] + 1e-9, means[2] + torch.tensor([1e-7, 0, 0, 0, 0])
    within = torch.diag(torch.tensor([1e-3, 1.0, 2.0, 3.0, 4.0]).double())
    held = {"scatter": within * 60, "samples": torch.tensor([60])}
    s = replace(statistics_of(means), extra={"covariance": held}, dtype="float64")
    found = collapse.measure(s, metrics="geometry").measurements
    i, j = torch.triu_indices(60, 60, 1)
    gap = means[i] - means[j]
    direct = torch.einsum("nd,de,ne->n", gap, within, gap) / gap.square().sum(dim=1) ** 2
    assert found["geometry.directional_cdnv"] == pytest.approx(float(direct.mean()), rel=1e-9)
    assert found["geometry.means.intrinsic_dimension"] == pytest.approx(twonn(means.numpy()), rel=1e-9)
    row = collapse.measure(statistics_of(torch.cat([means, means[5:7]])), metrics="geometry.means")
    assert "4 classes whose mean equals another mean are excluded" in [each.text for each in row.notes]


def test_remarks_on_numbers():
    def said(means):
        row = collapse.measure(statistics_of(means, means), metrics="geometry.rogue_share,geometry.span_angle")
        return {each.measurement.partition(".")[2]: each.text for each in row.notes}

    assert said(torch.eye(3)) == {"rogue_share": "the mean cosine of the class means is 0"}
    rogue = torch.tensor([[1.0, 9.0], [-1.0, 9.0], [0.5, 9.0], [0.2, 8.0]])
    full = "classifier rows and centred means span all d = 2 dimensions, so that every angle is 0"
    assert said(rogue) == {"rogue_share": "coordinate 1 of h (the first is 0)", "span_angle": full}


def test_many_classes_are_computed_in_blocks():
    points = torch.rand(3000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sheet = torch.cat([points, points.square(), points.sin()], dim=1)
    row = collapse.measure(statistics_of(sheet, sheet), metrics="geometry.means.intrinsic_dimension,geometry.margin")
    assert row["geometry.means.intrinsic_dimension"] == pytest.approx(2, abs=0.1)
    cosines = torch.nn.functional.normalize(sheet - sheet.mean(dim=0)) @ torch.nn.functional.normalize(sheet).T
    own = cosines.diag().clone()
    direct = own - cosines.fill_diagonal_(-torch.inf).amax(dim=1)
    assert row["geometry.margin"] == pytest.approx(float(direct.mean()), rel=1e-9)


def test_geometry_is_measured_only_if_named(tmp_path):
    save_file(random_features(9, 5, 80), tmp_path / "f.safetensors")
    store = collapse.collect(tmp_path / "f.safetensors")
    assert not set(NAMES) & collapse.measure(store).measurements.keys()
    assert not set(NAMES) & set(plugins().headlines())
    found = collapse.measure(store, metrics="geometry.between,nc2.norm").measurements
    assert found.keys() == {*(f"geometry.between.{name}" for name in (*RANKS, "alpha")), "nc2.norm"}
    assert set(NAMES) < {*collapse.metrics().frame()["name"]}
    ids, margins = collapse.vectors(store, "geometry.margin")
    assert len(ids) == len(margins) == 9


def test_without_a_covariance_for_these_classes_the_rest_is_measured(tmp_path):
    row = measured(random_features(9, 5, 200), tmp_path, min_count=2)
    assert {name for name, value in row.measurements.items() if value is not None}
    row = measured(random_features(9, 5, 100), tmp_path, min_count=12)
    pooled = {"snr", "vci", "directional_cdnv"} | {
        name for name in EXPECTED if name.split(".")[0] in ("within", "embeddings")
    }
    missing = {name for name, value in row.measurements.items() if value is None}
    assert missing == {f"geometry.{name}" for name in pooled} | {"geometry.slope.bias"}
