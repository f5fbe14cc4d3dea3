"""The invariants of a store at their very edges: the last value that holds, and the first that does not."""

from dataclasses import replace

import pytest
import torch

from collapse.errors import StoreError
from collapse.numerics.statistics import EmbeddingStatistics, ValidationStatistics
from collapse.stores.tensor_checks import MOST_IDS, check_tensors, check_together

MANIFEST = {"model": {"vocabulary": 8}, "coverage": {}, "identity": {}}


def train():
    return {
        "classes": torch.tensor([0, 3, 7]),
        "counts": torch.tensor([1, 5, 2]),
        "means": torch.ones(3, 2).double(),
        "variances": torch.tensor([0.0, 1.0, 2.0]).double(),
    }


def validation():
    """Ten samples of classes 0, 3 and 7 in two chunks; 5 is predicted only."""
    return {
        "classes": torch.tensor([0, 3, 5, 7]),
        "counts": torch.tensor([4, 4, 0, 2]),
        "agreements": torch.tensor([4, 2, 0, 0]),
        "linear_hits": torch.tensor([4, 1, 0, 0]),
        "ncc_hits": torch.tensor([2, 4, 0, 1]),
        "vocabulary_hits": torch.tensor([3, 0, 0, 0]),
        "linear_predictions": torch.tensor([4, 5, 1, 0]),
        "ncc_predictions": torch.tensor([2, 5, 1, 2]),
        "loss_sum": torch.tensor([4.0, 8.0, 0.0, 3.0]).double(),
        "block_totals": torch.tensor([[5.0, 5.0, 0.0, 5.0, 0.0], [5.0, 1.0, 3.0, 10.0, 2.0]]).double(),
        "argmax_without_mean": torch.tensor([2]),
    }


MADE = {
    "train": train,
    "validation": validation,
    "classifier": lambda: {"weight": torch.ones(3, 2), "bias": torch.ones(3)},
}


def refusal(file, changes, manifest=MANIFEST):
    tensors = MADE[file]()
    for (name, at), value in changes.items():
        tensors[name][at] = value
    try:
        check_tensors(f"top/{file}.safetensors", tensors, manifest)
    except StoreError as error:
        return str(error)
    return None


def test_what_a_collection_writes_holds():
    for file in MADE:
        assert refusal(file, {}) is None
    check_tensors("top/covariance.safetensors", {"scatter": torch.tensor([float("nan")])}, MANIFEST)  # a plugin's


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("train", {("counts", 1): (1 << 53) - 1}),
        ("train", {("classes", 0): 2}),
        ("train", {("means", (0, 0)): 1.7e308, ("means", (1, 0)): 1.7e308}),  # their sum is infinite, they are not
        ("train", {("variances", 2): 1e300}),
        ("validation", {("loss_sum", 0): 4 - 9e-6}),
        ("validation", {("loss_sum", 0): 4 + 1.4e-5}),
        ("validation", {("agreements", 1): 4, ("block_totals", (1, 1)): 3.0}),
        ("validation", {("argmax_without_mean", 0): 10}),
        ("validation", {("argmax_without_mean", 0): 0}),
        (
            "validation",  # the two sums of the loss as far apart as they may be
            {("loss_sum", 0): 0.0, ("loss_sum", 1): 0.0, ("loss_sum", 3): 0.0}
            | {("block_totals", (0, 3)): 0.0, ("block_totals", (1, 3)): 1e-6 * 10},
        ),
        (
            "validation",  # a loss of 0 but for rounding, of either sign
            {("loss_sum", 0): -3e-6, ("loss_sum", 1): 0.0, ("loss_sum", 3): 0.0}
            | {("block_totals", (0, 3)): 0.0, ("block_totals", (1, 3)): 6e-6},
        ),
    ],
)
def test_the_last_value_that_holds(file, changes):
    assert refusal(file, changes) is None


@pytest.mark.parametrize(
    ("file", "changes", "said"),
    [
        ("train", {("counts", 1): 1 << 53}, "counts are too large"),
        ("train", {("counts", 0): 0}, "too few samples"),
        ("train", {("classes", 0): -1}, "do not ascend"),
        ("train", {("classes", 1): 7}, "do not ascend"),
        ("train", {("classes", 1): 0}, "do not ascend"),
        ("train", {("classes", 2): 8}, "class 8 lies outside the vocabulary of 8"),
        ("train", {("means", (0, 0)): 1.7e308, ("means", (1, 0)): float("inf")}, "means are not all finite"),
        ("train", {("variances", 0): -1e-300}, "a variance is negative"),
        ("train", {("variances", 0): float("inf")}, "variances are not all finite"),
        ("classifier", {("bias", 0): float("nan")}, "bias are not all finite"),
        ("classifier", {("weight", (2, 1)): float("-inf")}, "weight are not all finite"),
        ("validation", {("counts", 0): 5}, "counts|add up|totals"),
        ("validation", {("counts", 2): -1, ("counts", 0): 5}, "counts lie outside"),
        ("validation", {("counts", 0): (1 << 53) + 2}, "counts lie outside"),
        ("validation", {("agreements", 2): 1}, "agreements lie outside"),
        ("validation", {("linear_hits", 3): -1}, "linear_hits lie outside"),
        ("validation", {("ncc_hits", 3): 3}, "ncc_hits lie outside"),
        ("validation", {("vocabulary_hits", 0): 5}, "vocabulary_hits lie outside"),
        ("validation", {("linear_hits", 0): 3, ("linear_hits", 3): 1}, "more linear_hits than linear_predictions"),
        ("validation", {("ncc_hits", 0): 3}, "more ncc_hits than ncc_predictions"),
        (
            "validation",
            {("agreements", 1): 4, ("agreements", 3): 1, ("block_totals", (1, 1)): 4.0},
            "more agreements than both rules predict",
        ),
        ("validation", {("linear_predictions", 3): 1}, "linear_predictions do not add up to the 10 samples"),
        ("validation", {("ncc_predictions", 3): 1}, "ncc_predictions do not add up to the 10 samples"),
        ("validation", {("ncc_predictions", 3): -1, ("ncc_predictions", 2): 4}, "ncc_predictions lie outside"),
        ("validation", {("argmax_without_mean", 0): 11}, "argmax_without_mean lie outside"),
        ("validation", {("argmax_without_mean", 0): -1}, "argmax_without_mean lie outside"),
        ("validation", {("loss_sum", 0): float("nan")}, "loss_sum are not all finite"),
        ("validation", {("block_totals", (0, 0)): float("nan")}, "block_totals are not all finite"),
        ("validation", {("loss_sum", 0): -5e-6}, "a loss is negative"),
        ("validation", {("loss_sum", 2): 1e-9}, "a loss without samples"),
        ("validation", {("loss_sum", 0): 4 - 1.7e-5}, "do not add up to the loss"),
        ("validation", {("loss_sum", 0): 4 + 1.7e-5}, "do not add up to the loss"),
        (
            "validation",
            {("block_totals", (0, 1)): 6.0, ("block_totals", (1, 1)): 0.0},
            "block_totals of agreements lie",
        ),
        ("validation", {("block_totals", (0, 1)): 4.0}, "do not add up to the 6 agreements"),
        ("validation", {("block_totals", (1, 1)): 2.0}, "do not add up to the 6 agreements"),
        ("validation", {("block_totals", (1, 2)): 2.0}, "do not add up to the 3 vocabulary_hits"),
        ("validation", {("block_totals", (0, 2)): -1.0, ("block_totals", (1, 2)): 4.0}, "of vocabulary_hits lie"),
        ("validation", {("block_totals", (0, 0)): 6.0}, "do not add up to the 10 samples"),
        ("validation", {("block_totals", (1, 3)): 10.1}, "do not add up to the loss"),
        ("validation", {("block_totals", (1, 4)): 0.0}, "the blocks of block_totals do not ascend"),
    ],
)
def test_the_first_value_that_does_not(file, changes, said):
    refused = refusal(file, changes)
    assert refused is not None
    assert refused.startswith(f"top/{file}.safetensors: ")
    assert any(each in refused for each in said.split("|"))
    assert refused.endswith("no collection wrote this; fetch or collect the store again")


@pytest.mark.parametrize("vocabulary", [None, 0, 1 << 50])
def test_ids_are_bounded_whatever_the_manifest_says(vocabulary):
    manifest = MANIFEST | {"model": {"vocabulary": vocabulary}}
    assert MOST_IDS == 1 << 24
    assert refusal("train", {("classes", 2): MOST_IDS - 1}, manifest) is None
    assert "outside the vocabulary of 16,777,216" in refusal("train", {("classes", 2): MOST_IDS}, manifest)
    assert refusal("train", {}, MANIFEST | {"model": {}}) is None


def test_a_validation_without_samples_is_refused():
    for name in ("classes", "block_totals"):
        tensors = validation()
        for key, value in tensors.items():
            if (key == "block_totals") == (name == "block_totals") and key != "argmax_without_mean":
                tensors[key] = value[:0]
        with pytest.raises(StoreError, match="no validation sample was counted"):
            check_tensors("top/validation.safetensors", tensors, MANIFEST)


@pytest.mark.parametrize(
    ("done", "chunks", "covered"),
    [([[0, 4]], 10, 10), ([[0, 1]], 10, 3), ([[1, 3]], 10, 6), ([[0, 1], [2, 4]], 10, 7), ([[0, 4]], 12, 12)],
)
def test_each_sample_of_the_chunks_is_counted_once(done, chunks, covered):
    about = {"slice_chunks": 3, "chunks": chunks, "done": done}
    manifest = MANIFEST | {"coverage": {"train": about, "validation": None}, "identity": {"chunk_length": 33}}
    right = covered * 32
    assert refusal("train", {("counts", 1): right - 3}, manifest) is None
    for wrong in (right - 1, right + 1):
        refused = refusal("train", {("counts", 1): wrong - 3}, manifest)
        assert f"counts {wrong:,} samples where its {covered:,} chunks have {right:,}" in refused
    assert refusal("validation", {}, manifest) is None
    for unknown in ({"identity": {}}, {"coverage": {"train": {"done": done, "slice_chunks": 3}}}):
        assert refusal("train", {}, manifest | unknown) is None


@pytest.mark.parametrize("rule", ["linear_predictions", "ncc_predictions"])
def test_predicted_classes_have_a_mean(rule):
    tensors = validation()
    s = EmbeddingStatistics(
        classes=torch.tensor([0, 3, 5]),
        counts=torch.ones(3).long(),
        means=torch.zeros(3, 2).double(),
        variances=torch.zeros(3).double(),
    )
    check_together("a store", s)
    tensors["ncc_predictions"] = torch.tensor([2, 5, 3, 0])  # class 7 is a label and never predicted
    check_together("a store", _with(s, tensors))
    tensors[rule] = torch.tensor([2, 5, 2, 1])
    with pytest.raises(StoreError, match="a store: its validation predicts classes without a mean"):
        check_together("a store", _with(s, tensors))


def _with(s, tensors):
    return replace(s, validation=ValidationStatistics(**tensors))


def test_one_class_and_one_chunk_are_enough():
    one = {name: torch.tensor([1]) for name in validation()}
    one |= {"loss_sum": torch.ones(1).double(), "block_totals": torch.ones(1, 5).double()}
    one["argmax_without_mean"] = torch.tensor([0])
    check_tensors("a/b/top/validation.safetensors", one, MANIFEST)
    one["agreements"] = torch.tensor([2])
    with pytest.raises(StoreError, match="agreements lie outside"):
        check_tensors("a/b/top/validation.safetensors", one, MANIFEST)
    about = MANIFEST | {"coverage": {"train": {"slice_chunks": 1, "chunks": 1, "done": [[0, 1]]}}}
    with pytest.raises(StoreError, match="chunks have 32"):
        check_tensors("a/b/top/train.safetensors", train(), about | {"identity": {"chunk_length": 33}})
