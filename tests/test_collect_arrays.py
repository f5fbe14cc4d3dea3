"""A store of arrays has the numbers of a features file with the same tensors; errors name the array."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import collapse
from collapse.errors import CollapseError, StoreError, UsageError
from collapse.stores.store import Store
from collapse.testing import random_features

NAMES = {
    "train_features": "features",
    "train_labels": "labels",
    "classifier": "classifier",
    "classifier_bias": "bias",
    "validation_features": "validation_features",
    "validation_labels": "validation_labels",
}


def given(tensors):
    return {NAMES[name]: tensor for name, tensor in tensors.items()}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_arrays_and_a_features_file_give_the_same_tensors_and_numbers(tmp_path, dtype):
    tensors = {
        name: tensor.to(dtype) if tensor.is_floating_point() else tensor
        for name, tensor in random_features(12, 5, 300).items()
    }
    save_file(tensors, tmp_path / "f.safetensors")
    of_file, of_arrays = collapse.collect(tmp_path / "f.safetensors"), collapse.collect_arrays(**given(tensors))
    for name in ("train", "classifier", "validation", "covariance"):
        a, b = of_file.tensors(name), of_arrays.tensors(name)
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a)
    assert collapse.measure(of_file).measurements == collapse.measure(of_arrays).measurements
    assert of_file.manifest["coverage"] == of_arrays.manifest["coverage"]
    assert of_arrays.save(tmp_path / "s").check().digest == of_arrays.digest


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.tolist(),
        lambda x: torch.from_numpy(x),
        lambda x: torch.from_numpy(x).requires_grad_() if x.dtype == np.float64 else x,
    ],
)
def test_any_array_of_the_same_numbers_gives_the_same_store(change):
    arrays = {name: tensor.numpy() for name, tensor in random_features(6, 4, 90).items()}
    arrays = {name: x.astype(np.float64) if x.dtype == np.float32 else x for name, x in arrays.items()}
    expected = collapse.collect_arrays(**given(arrays))
    assert collapse.collect_arrays(**given({name: change(x) for name, x in arrays.items()})).digest == expected.digest


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("labels", ["a", "b"], "train_labels cannot be read as an array of numbers"),
        ("features", [[1.0, 2.0], [3.0]], "train_features cannot be read as an array of numbers"),
        ("features", np.ones((90, 4), np.complex128), "train_features is complex128"),
    ],
)
def test_what_is_wrong_is_said_by_name(name, value, said):
    arrays = given(random_features(6, 4, 90)) | {name: value}
    with pytest.raises(CollapseError, match=said):
        collapse.collect_arrays(**arrays, name="mine")


def test_arrays_are_measured_without_a_store():
    arrays = given(random_features(12, 5, 300))
    expected = collapse.measure(collapse.collect_arrays(**arrays), metrics="nc3", min_count=2)
    measured = collapse.measure(**arrays, metrics="nc3", min_count=2, name="mine", step=7)
    assert measured.measurements == expected.measurements
    assert (measured.model, measured.step) == ("mine", 7)
    for wrong in ({}, {"features": arrays["features"]}, {"store": "s", **arrays}):
        with pytest.raises(UsageError, match="needs one of these: a model, a store, or features with labels"):
            collapse.measure(**wrong)


def test_embeddings_alone_are_measured_without_a_classifier():
    arrays = given(random_features(12, 5, 300))
    alone = {"features": arrays["features"], "labels": arrays["labels"].numpy() * 1_000_003}
    row, whole = collapse.measure(**alone, name="mine"), collapse.measure(**arrays)
    assert (row.model, row.classes, row.dim, row.samples) == ("mine", 12, 5, 300)
    known = {name: value for name, value in row.measurements.items() if value is not None}
    assert {"nc1.cdnv", "nc1.covariance_ratio", "nc2.norm", "gnc2.log_kernel"} <= known.keys()
    assert known == pytest.approx({name: whole.measurements[name] for name in known})
    assert {name.split(".")[0] for name in row.measurements.keys() - known.keys()} >= {"nc3", "unc3", "nc4"}
    assert any("no classifier" in note.text for note in row.notes)
    with pytest.raises(UsageError, match="give classifier="):
        collapse.measure(**alone, validation_features=arrays["validation_features"])
    with pytest.raises(CollapseError, match="train_labels"):
        collapse.measure(features=arrays["features"], labels=["a"] * 300)


@pytest.mark.parametrize("whole", [True, False], ids=["with a classifier", "alone"])
def test_samples_with_the_ignored_label_are_skipped(whole):
    arrays = given(random_features(12, 5, 300))
    arrays = arrays if whole else {name: arrays[name] for name in ("features", "labels")}
    more, expected = dict(arrays), collapse.measure(**arrays)
    for prefix in ("", "validation_") if whole else ("",):
        h, y = arrays[f"{prefix}features"], arrays[f"{prefix}labels"]
        more[f"{prefix}features"] = torch.cat([h[:50], 9 + h[:20], h[50:]])
        more[f"{prefix}labels"] = torch.cat([y[:50], torch.full((20,), -100), y[50:]])
    row = collapse.measure(**more)
    assert (row.classes, row.samples) == (12, 300)
    assert row.measurements == pytest.approx(expected.measurements)
    for labels, said in ((more["labels"] - 1, "-101"), (torch.full_like(more["labels"], -100), "every label is -100")):
        with pytest.raises(CollapseError, match=said):
            collapse.measure(**more | {"labels": labels})


def test_a_store_is_saved_as_any_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    store = collapse.collect_arrays(np.eye(4), np.arange(4), np.eye(4))
    assert store.save("~/home").path == tmp_path / "home"
    assert Store.load(tmp_path / "home").verify() == []
    save_file(
        {"train_features": torch.eye(4), "train_labels": torch.arange(4), "classifier": torch.eye(4)},
        tmp_path / "f.safetensors",
    )
    assert collapse.collect(tmp_path / "f.safetensors", store="~/collected").path == tmp_path / "collected"
    assert store.save(tmp_path / "home").digest == store.digest
    with pytest.raises(StoreError, match="holds another store, which differs in"):
        store.save(tmp_path / "collected")
