"""Every built-in measurement equals its direct float64 computation; so do the values behind it, class by class."""

import numpy as np
import pytest
import reference
import torch
from safetensors.torch import save_file

import collapse
from collapse.testing import random_features

SHAPES = {"few classes": (5, 9, 60), "many classes": (40, 6, 300)}


@pytest.fixture(params=SHAPES)
def features(request):
    made = random_features(*SHAPES[request.param], spread=0.3, seed=3)
    made["classifier_bias"] = torch.linspace(-1, 1, len(made["classifier"]))
    return made


@pytest.fixture
def store(features, tmp_path):
    save_file(features, tmp_path / "features.safetensors")
    return collapse.collect(tmp_path / "features.safetensors")


def arrays(features):
    return {name: tensor.numpy() for name, tensor in features.items()}


def test_every_number_is_the_direct_one(features, store):
    row = collapse.measure(store)
    expected = reference.everything(arrays(features))
    assert row.measurements.keys() == expected.keys() | {"n_params"}
    assert row.measurements["n_params"] is None
    for name, value in expected.items():
        assert row.measurements[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name


def test_rare_classes_are_dropped_before_anything_is_computed(features, store):
    counts = torch.bincount(features["train_labels"])
    least = int(counts.sort().values[2]) + 1
    kept = counts[features["train_labels"]] >= least
    few = arrays(features) | {name: features[name][kept].numpy() for name in ("train_features", "train_labels")}
    expected = reference.geometry(
        reference.class_statistics(few["train_features"], few["train_labels"]),
        few["classifier"][np.unique(few["train_labels"])],
    )
    row = collapse.measure(store, min_count=least)
    assert row.classes == len(np.unique(few["train_labels"])) < len(counts)
    for name, value in expected.items():
        if name == "nc1.covariance_ratio":  # pooled over all classes: not available
            assert row.measurements[name] is None
        else:
            assert row.measurements[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name


def test_values_of_classes_are_the_direct_ones(features, store):
    plain = arrays(features)
    s = reference.class_statistics(plain["train_features"], plain["train_labels"])
    centred = s["means"] - s["means"].mean(axis=0)
    units = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    rows = plain["classifier"][s["classes"]].astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = units @ units.T
    apart = ((s["means"][:, None] - s["means"]) ** 2).sum(axis=2)
    np.fill_diagonal(apart, np.inf)
    cdnv = (s["variances"][:, None] + s["variances"]) / (2 * apart**2)
    others = len(units) - 1
    held = store.statistics()
    assert held.counts.tolist() == s["counts"].tolist()
    assert held.variances.numpy() == pytest.approx(s["variances"], rel=1e-9, abs=1e-12)
    expected = {
        "nc1.cdnv": cdnv.sum(axis=1) / others,
        "nc2.norm": np.linalg.norm(centred, axis=1),
        "nc2.interference": (cosines.sum(axis=1) - 1) / others,
        "nc3.self_duality": (units * rows).sum(axis=1),
    }
    for name, values in expected.items():
        ids, found = collapse.vectors(store, name)
        assert ids.tolist() == s["classes"].tolist()
        assert found.numpy() == pytest.approx(values, rel=1e-9, abs=1e-12), name


def test_values_of_labels_are_the_direct_ones(features, store):
    plain = arrays(features)
    s = reference.class_statistics(plain["train_features"], plain["train_labels"])
    h, y = plain["validation_features"], plain["validation_labels"]
    expected = {name: {} for name in ("nc4.agreement", "val_loss")}
    for label in np.unique(y):
        with np.errstate(invalid="ignore"):  # kappa of a single label
            own = reference.decisions(s, plain["classifier"], plain["classifier_bias"], h[y == label], y[y == label])
        for name, values in expected.items():
            values[label] = own[name]
    for name, values in expected.items():
        ids, found = collapse.vectors(store, name)
        assert dict(zip(ids.tolist(), found.tolist(), strict=True)) == pytest.approx(values, rel=1e-9), name
