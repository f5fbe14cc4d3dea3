"""Stores that somebody sealed to mislead, exhaust or crash: each is refused in one line, quickly, and not measured."""

import shutil
import time
from pathlib import Path

import pytest
import torch
from golden_store import GOLDEN, seal
from safetensors.torch import load_file, save_file

import collapse
from collapse.errors import CollapseError, StoreError
from collapse.stores.manifest import MANIFEST
from collapse.stores.tensor_files import described


@pytest.fixture
def copy(tmp_path):
    return Path(shutil.copytree(GOLDEN, tmp_path / "store"))


def forge(store, name, change):
    """Change the tensors of a file and seal them."""
    file = store / "top" / f"{name}.safetensors"
    tensors = {key: each.clone() for key, each in load_file(file).items()}
    change(tensors)
    save_file(tensors, file)
    seal(store, lambda manifest: manifest["files"].update({f"top/{name}.safetensors": described(file.read_bytes())}))


def put(tensor, value, at=3):
    return lambda tensors: tensors[tensor].__setitem__(at, value)


def times(tensor, factor):
    return lambda tensors: tensors.__setitem__(tensor, tensors[tensor] * factor)


def move_agreements(tensors):
    """One chunk's agreements to another: every total stays."""
    tensors["block_totals"][0, 1] += 100
    tensors["block_totals"][1, 1] -= 100


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        ("train", put("classes", 0), "do not ascend"),
        ("train", put("classes", 1 << 40, at=-1), "outside the vocabulary"),
        ("train", put("counts", 0), "too few samples"),
        ("train", put("counts", 1 << 60), "too large"),
        ("train", put("variances", -1.0), "a variance is negative"),
        ("train", put("variances", float("nan")), "variances are not all finite"),
        ("train", put("means", float("nan")), "means are not all finite"),
        ("train", put("means", float("inf")), "means are not all finite"),
        ("classifier", put("weight", float("nan")), "weight are not all finite"),
        ("validation", times("agreements", 10), "agreements lie outside"),
        ("validation", times("vocabulary_hits", -1), "vocabulary_hits lie outside"),
        ("validation", times("ncc_hits", 1000), "ncc_hits lie outside"),
        ("validation", times("loss_sum", -1), "a loss is negative"),
        ("validation", times("loss_sum", 0.5), "do not add up to the loss"),
        ("validation", times("counts", 2), "do not add up"),
        ("validation", times("linear_predictions", 3), "linear_predictions"),
        ("validation", times("block_totals", 2), "do not add up"),
        ("validation", times("argmax_without_mean", -1 << 40), "argmax_without_mean lie outside"),
        ("validation", put("classes", 1 << 40, at=-1), "outside the vocabulary"),
        ("validation", move_agreements, "block_totals of agreements"),
    ],
)
def test_forged_tensors_are_refused(copy, file, change, said):
    before = load_file(copy / "top" / f"{file}.safetensors")
    forge(copy, file, change)
    after = load_file(copy / "top" / f"{file}.safetensors")
    assert any(not torch.equal(before[name], after[name]) for name in before)
    with pytest.raises(StoreError, match=said) as caught:
        collapse.measure(collapse.load(copy))
    assert str(copy) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_forged_prediction_of_a_class_without_a_mean_is_refused(copy):
    classes = set(load_file(copy / "top" / "train.safetensors")["classes"].tolist())
    forge(copy, "validation", lambda tensors: _predict_elsewhere(tensors, classes))
    with pytest.raises(StoreError, match="classes without a mean"):
        collapse.measure(collapse.load(copy))


def _predict_elsewhere(tensors, classes):
    new = next(each for each in range(512) if each > int(tensors["classes"][-1]) and each not in classes)
    for name, value in tensors.items():
        if name not in ("block_totals", "argmax_without_mean"):
            tensors[name] = torch.cat([value, value.new_zeros(1)])
    tensors["classes"][-1] = new
    most = int(tensors["linear_predictions"].argmax())
    moved = int(tensors["linear_predictions"][most] - tensors["linear_hits"][most])
    tensors["linear_predictions"][most] -= moved
    tensors["linear_predictions"][-1] += moved


@pytest.mark.parametrize(
    "change",
    [times("scatter", -1.0), times("scatter", 2.0), times("samples", 2), put("scatter", float("nan"), at=(0, 1))],
)
def test_a_forged_covariance_costs_its_own_measurement(copy, change):
    honest = collapse.measure(collapse.load(copy)).measurements
    forge(copy, "covariance", change)
    row = collapse.measure(collapse.load(copy))
    assert row.measurements == honest | {"nc1.covariance_ratio": None}
    assert [note.kind for note in row.notes if note.measurement == "nc1.covariance_ratio"] == ["error"]


def nested(levels):
    inner = {}
    for _ in range(levels):
        inner = {"parts": [inner]}
    return inner


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.update(provenance=nested(20)), "nested more than"),
        (lambda m: m.update(provenance=nested(400)), "was altered"),
        (lambda m: m["provenance"].update(parts=[{"seconds": 1}] * 300_000), "more than 200,000 values"),
        (lambda m: m["identity"]["model_args"].update(x=10**30), "more than 64 bits"),
        (lambda m: m["identity"]["model_args"].update(x=10**4000), "was altered"),
        (lambda m: m["identity"].update(chunk_length=1 << 60), "maximum"),
        (lambda m: m["model"].update(vocabulary=1 << 50), "outside the vocabulary|ok"),
    ],
)
def test_an_absurd_manifest_is_refused_quickly(copy, change, said):
    seal(copy, change)
    clock = time.monotonic()
    if said.endswith("|ok"):  # a size that is only said allocates nothing
        assert collapse.measure(collapse.load(copy)).measurements
    else:
        with pytest.raises(StoreError, match=said) as caught:
            collapse.load(copy)
        assert len(str(caught.value)) < 1000
    assert time.monotonic() - clock < 10


def test_parts_with_forged_tensors_are_not_merged(tiny, tmp_path):
    parts = [tmp_path / str(k) for k in (1, 2)]
    for k, part in enumerate(parts, 1):
        collapse.collect(tiny.model, store=part, part=(k, 2), text=str(tiny.text), chunk_length=32, max_chunks=40)
    forge(parts[1], "train", put("variances", -1.0))
    with pytest.raises(CollapseError, match="a variance is negative"):
        collapse.merge(parts, store=tmp_path / "merged")
    assert not (tmp_path / "merged" / MANIFEST).exists()
