"""Parts of a made-up collection, merged: each slice once, whatever their order, or a refusal that says why."""

from functools import cache
from typing import ClassVar

import numpy as np
import pytest
import torch

from collapse.errors import StoreError, UsageError
from collapse.numerics.accumulate import ClassMoments
from collapse.numerics.statistics import ValidationStatistics
from collapse.numerics.validation_totals import merge_validation
from collapse.plugin.filling import Filled
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.statistic import State, ValidationStatistic
from collapse.stores.folding import fold_training, fold_validation, training_hash
from collapse.stores.manifest import MANIFEST
from collapse.stores.merging import merge
from collapse.stores.shards import Part, Shard
from collapse.stores.store import Store

CHUNKS, SLICE, SLICES, T, DIM, CLASSES = 22, 4, 6, 4, 3, 40  # the last slice has 2 chunks
RANDOM = np.random.default_rng(5)
H = torch.from_numpy(RANDOM.normal(size=(CHUNKS, T - 1, DIM)))
Y = torch.from_numpy(RANDOM.integers(0, CLASSES, (CHUNKS, T - 1)))
W = torch.from_numpy(RANDOM.normal(size=(CLASSES, DIM))).float()
COVERAGE = {"chunks": CHUNKS, "slice_chunks": SLICE, "slices": SLICES}


def chunks_of(run):
    return list(range(run[0] * SLICE, min(run[1] * SLICE, CHUNKS)))


def shard(
    run, *, statistics=("covariance",), scale=1.0, identity=None, train=None, bias=False, versions=None, name="m"
):
    """A shard of some training slices, as a collection makes it."""
    kinds = [plugins().statistics[name] for name in statistics]
    moments = ClassMoments(DIM, statistics=Filled(kinds))
    moments.add(scale * H[chunks_of(run)].flatten(0, 1), Y[chunks_of(run)].flatten())
    state = moments.state()
    state |= {"weight": W[state["classes"]]} | ({"bias": W[state["classes"], 0]} if bias else {})
    about = {
        "identity": {"weights": "w", "dtype": "float32", "chunk_length": T, **(identity or {})},
        "model": {"name": name, "vocabulary": CLASSES},
        "corpus": {"name": "t", "validation": "v"},
        "coverage": {**COVERAGE, **(train or {})},
        "statistics": {**moments.statistics.versions, **(versions or {})},
        "statistics_by": moments.statistics.makers,
        "provenance": {"command": f"{run}"},
    }
    return Shard("train", *run, about, held=state)


def part(folder, *runs, **how):
    """A folder with such shards."""
    for run in runs:
        shard(run, **how).write(folder)
    return Part.load(folder)


def whole(folder=None, **how):
    """The store of the whole text."""
    return fold_training(folder, [shard((0, SLICES), **how)])


@cache
def validation_of(chunk):
    """Counts of a chunk, made up."""
    draw = np.random.default_rng(chunk)
    labels = np.sort(draw.choice(CLASSES, T - 1, replace=False))
    hits = {name: torch.from_numpy(draw.integers(0, 2, T - 1)) for name in ("agreements", "linear_hits", "ncc_hits")}
    vocabulary, loss = (
        torch.from_numpy(draw.integers(0, 2, T - 1)),
        torch.from_numpy(draw.integers(0, 999, T - 1)) / 256.0,
    )
    ones = torch.ones(T - 1, dtype=torch.int64)
    totals = [T - 1, int(hits["agreements"].sum()), int(vocabulary.sum()), float(loss.sum()), chunk]
    return ValidationStatistics(
        classes=torch.from_numpy(labels),
        counts=ones,
        **hits,
        vocabulary_hits=vocabulary,
        linear_predictions=ones,
        ncc_predictions=ones,
        loss_sum=loss.double(),
        block_totals=torch.tensor([totals], dtype=torch.float64),
        argmax_without_mean=torch.tensor([chunk % 2]),
    )


def validation_shard(store, run, *, filled=(), **about):
    """A shard of some validation slices of a trained store."""
    state = dict(vars(merge_validation([validation_of(chunk) for chunk in chunks_of(run)])))
    for each in filled:
        state |= {f"{each.name}/{key}": value for key, value in each.tensors().items()}
    about = {
        "identity": store.identity,
        "model": store.manifest["model"],
        "corpus": store.manifest["corpus"],
        "coverage": COVERAGE,
        "trained": training_hash(store),
        "statistics": {each.name: each.version for each in filled},
        "statistics_by": Filled(map(type, filled)).makers,
        "provenance": {"command": f"{run}"},
        **about,
    }
    return Shard("validation", *run, about, held=state)


def validated(store, folder, *runs, **how):
    """A copy of a trained store with validation results of some slices."""
    copy = store.save(folder)
    for run in runs:
        validation_shard(store, run, **how).write(copy.path)
    return copy


def equal(mine, theirs, exactly=False):
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        assert value.dtype == theirs[name].dtype
        assert torch.allclose(value.double(), theirs[name].double(), rtol=0 if exactly else 1e-12, atol=1e-12), name


PARTITIONS = [
    [[(0, 2)], [(2, 3)], [(3, 6)]],
    [[(3, 6)], [(0, 2)], [(2, 3)]],
    [[(0, 1), (4, 6)], [(1, 4)]],
]


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_merged_parts_are_the_whole(tmp_path, partition, bias):
    parts = [part(tmp_path / str(k), *runs, bias=bias) for k, runs in enumerate(partition)]
    merged, one = merge(parts, store=tmp_path / "merged"), whole(bias=bias)
    for name in ("coverage", "identity", "model", "statistics", "statistics_by"):
        assert merged.manifest[name] == one.manifest[name]
    assert merged.manifest["statistics"] == {"covariance": 1}
    for name in ("train", "classifier", "covariance"):
        equal(merged.tensors(name), one.tensors(name), exactly=name == "classifier")
    assert Store.load(tmp_path / "merged").digest == merged.digest
    ordered = sorted(run for runs in partition for run in runs)
    assert [each["command"] for each in merged.manifest["provenance"]["parts"]] == [f"{run}" for run in ordered]


def test_parts_by_their_folders_and_twice_the_same_result(tmp_path):
    for k, run in enumerate([(0, 3), (3, 6)]):
        part(tmp_path / str(k), run)
    first = merge([tmp_path / "0", str(tmp_path / "1")], store=str(tmp_path / "merged"))
    before = (tmp_path / "merged" / MANIFEST).read_bytes()
    assert merge([tmp_path / "1", tmp_path / "0"], store=tmp_path / "merged").digest == first.digest
    assert (tmp_path / "merged" / MANIFEST).read_bytes() == before
    whole(tmp_path / "other", scale=2.0)
    with pytest.raises(StoreError, match="other holds another store, which differs in its statistics"):
        merge([tmp_path / "0", tmp_path / "1"], store=tmp_path / "other")
    with pytest.raises(UsageError, match="nothing to merge"):
        merge(iter([]), store=tmp_path / "a")
    with pytest.raises(StoreError, match="part_x holds no part of a collection: collapse collect MODEL --store part_x"):
        merge("part_x", store=tmp_path / "a")


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([(1, 6)], "slices 1 of 6 are in none"),
        ([(1, 2), (4, 5)], r"slices 1, 3–4, 6 of 6 are in none .*: collect them \(--part k/n\), then merge all"),
        ([(0, 3), (2, 6)], "/0 and .*/1 overlap: both hold .* slices 3 of 6"),
        ([(0, 4), (4, 6), (1, 4)], "/0 and .*/2 overlap: both hold .* slices 2–4 of 6"),
    ],
)
@pytest.mark.parametrize("phase", ["train", "validation"])
def test_slices_that_are_lacking_or_twice_there_are_named(tmp_path, phase, runs, said):
    if phase == "train":
        parts = [part(tmp_path / str(k), run) for k, run in enumerate(runs)]
    else:
        parts = [validated(whole(), tmp_path / str(k), run) for k, run in enumerate(runs)]
    with pytest.raises(StoreError, match=said) as caught:
        merge(parts, store=tmp_path / "merged")
    assert f"{phase} slices" in str(caught.value)
    assert not (tmp_path / "merged").exists()


def test_a_whole_store_among_parts_is_named(tmp_path):
    parts = [part(tmp_path / str(k), run) for k, run in enumerate([(0, 3), (3, 6)])]
    trained = merge(parts, store=tmp_path / "whole")
    with pytest.raises(StoreError, match="/whole is a trained store, not a part of a collection"):
        merge([*parts, trained], store=tmp_path / "merged")
    halves = [validated(trained, tmp_path / f"v{k}", run) for k, run in enumerate([(0, 3), (3, 6)])]
    complete = merge(halves, store=tmp_path / "complete")
    with pytest.raises(StoreError, match="/complete is a complete store, not a part of a collection"):
        merge([halves[0], complete], store=tmp_path / "merged")


DIFFERENT = {
    "identity": ({"identity": {"dtype": "bfloat16"}}, r"dtype: float32 \(first\), bfloat16 \(second\)"),
    "more in the identity": ({"identity": {"code": {"model": "c"}}}, r"code: none \(first\), \{"),
    "chunks": ({"train": {"chunks": 23}}, r"slices.chunks: 22 \(first\), 23 \(second\)"),
    "slices": (
        {"train": {"slice_chunks": 3, "slices": 8}},
        r"slices.slice_chunks: 4 \(first\), 3 \(second\); slices.slices",
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_parts_of_something_else_are_refused_with_both_values(tmp_path, name):
    change, said = DIFFERENT[name]
    parts = [part(tmp_path / "a", (0, 3)), part(tmp_path / "b", (3, 6), **change)]
    with pytest.raises(StoreError, match=f"/a and .*/b are not parts of one collection: they differ in {said}"):
        merge(parts, store=tmp_path / "merged")
    with pytest.raises(StoreError, match="are not parts of one collection"):
        merge([*parts[:1], part(tmp_path / "c", (1, 2)), *parts[1:]], store=tmp_path / "merged")


def test_a_part_that_was_altered_is_not_merged(tmp_path):
    parts = [part(tmp_path / "a", (0, 3)), part(tmp_path / "b", (3, 6))]
    file = tmp_path / "b" / "shards" / "train-4.safetensors"
    before = file.read_bytes()
    file.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    with pytest.raises(StoreError, match=r"train-4\.safetensors was altered"):
        merge(parts, store=tmp_path / "merged")
    assert not (tmp_path / "merged").exists()
    file.write_bytes(before)
    assert merge(parts, store=tmp_path / "merged").state == "trained"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"statistics": ()}, "did not fill it"),
        ({"versions": {"covariance": 2}}, "filled version 2, and the plugin installed is at version 1"),
    ],
)
def test_a_statistic_that_parts_do_not_share_is_left_out_and_said_so(tmp_path, caplog, change, said):
    parts = [part(tmp_path / "a", (0, 3)), part(tmp_path / "b", (3, 6), **change)]
    merged = merge(parts, store=tmp_path / "merged")
    assert "top/covariance.safetensors" not in merged.manifest["files"]
    assert merged.manifest["statistics"] == merged.manifest["statistics_by"] == {}
    assert "statistic covariance is left out: " in caplog.text
    assert said in caplog.text
    equal(merged.tensors("train"), whole().tensors("train"))


# the validation pass


class Seen(ValidationStatistic):
    """Chunks of the validation pass."""

    name = "seen"
    state: ClassVar = {"total": State((1,), torch.int64)}


def seen_in(run) -> Seen:
    made = Seen()
    made.total = torch.tensor([len(chunks_of(run))])
    return made


@pytest.fixture
def seen(monkeypatch):
    monkeypatch.setitem(plugins().statistics, "seen", Seen)


@pytest.mark.parametrize("runs", [[(0, 6)], [(0, 2), (2, 3), (3, 6)], [(3, 6), (0, 2), (2, 3)]], ids=str)
def test_statistics_of_the_validation_pass_are_merged(seen, tmp_path, caplog, runs):
    store = whole()
    parts = [validated(store, tmp_path / str(k), run, filled=[seen_in(run)]) for k, run in enumerate(runs)]
    merged = merge(parts, store=tmp_path / "merged")
    assert merged.tensors("seen")["total"].tolist() == [CHUNKS]
    assert merged.manifest["statistics"] == {"covariance": 1, "seen": 1}
    if len(parts) > 1:
        last = validated(store, tmp_path / "last", runs[-1])
        lacking = merge([*parts[:-1], last], store=tmp_path / "lacking")
        assert lacking.manifest["statistics"] == {"covariance": 1}
        assert "statistic seen is left out" in caplog.text


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_validation_parts_are_the_whole_pass(tmp_path, partition):
    store = whole()
    parts = [validated(store, tmp_path / str(k), *runs) for k, runs in enumerate(partition)]
    merged = merge(parts, store=tmp_path / "merged")
    one = fold_validation(None, store, [validation_shard(store, (0, SLICES))])
    assert merged.state == one.state == "complete"
    assert merged.digest == one.digest
    equal(merged.tensors("validation"), vars(merge_validation([validation_of(chunk) for chunk in range(CHUNKS)])))
    for name in ("train", "classifier", "covariance"):
        equal(merged.tensors(name), store.tensors(name), exactly=True)


def test_validation_parts_need_the_same_means_slices_and_results(tmp_path):
    store, other = whole(), whole(scale=1.5)
    mine = validated(store, tmp_path / "1", (0, 3))
    for name, made, said in (
        ("another store", validated(other, tmp_path / "2", (3, 6)), "they differ in training: "),
        (
            "other slices",
            validated(store, tmp_path / "3", (3, 6), coverage={**COVERAGE, "slices": 7, "chunks": 28}),
            r"they differ in slices.chunks: 22 \(first\), 28 \(second\); slices.slices: 6 \(first\), 7 \(second\)",
        ),
        ("another training", validated(store, tmp_path / "4", (3, 6), trained="0" * 64), "they differ in training: "),
        ("no validation", store.save(tmp_path / "5"), "holds no validation results: collapse collect MODEL --store"),
        ("other names", validated(whole(name="n"), tmp_path / "6", (3, 6)), "are not copies of one trained store"),
    ):
        with pytest.raises(StoreError, match=said):
            merge([mine, made], store=tmp_path / "merged")
        assert name


def test_validation_beside_the_means_keeps_what_is_there(tmp_path):
    store = whole(tmp_path / "s")
    before = {name: (tmp_path / "s" / name).read_bytes() for name in store.manifest["files"]}
    done = fold_validation(store.path, store, [validation_shard(store, (0, SLICES))])
    assert set(done.manifest["files"]) == {*before, "top/validation.safetensors"}
    assert {name: (tmp_path / "s" / name).read_bytes() for name in before} == before
    assert done.manifest["statistics"] == {"covariance": 1}
    assert Store.load(tmp_path / "s").check().state == "complete"
    copied = fold_validation(None, store, [validation_shard(store, (0, SLICES))])
    assert copied.path is None
    assert copied.digest == done.digest


def test_a_store_says_which_samples_it_should_have():
    """What is counted twice is seen when it is written."""
    with pytest.raises(StoreError, match=r"counts 66 samples where its 23 chunks have 69"):
        whole(train={"chunks": 23})
