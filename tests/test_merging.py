"""Parts of a made-up collection, merged: each slice once, whatever their order, or a refusal that says why."""

import hashlib
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from collapse.collection.merging import merge
from collapse.collection.pieces import add_validation, joined, means_hash, pieces_of
from collapse.errors import StoreError, UsageError
from collapse.numerics.accumulate import ClassMoments
from collapse.numerics.statistics import ValidationStatistics
from collapse.numerics.validation_totals import merge_validation
from collapse.plugin.filling import Filled
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.registry import Plugin
from collapse.plugin.statistic import ValidationStatistic
from collapse.stores.building import build
from collapse.stores.files import canonical
from collapse.stores.manifest import INCOMING, MANIFEST
from collapse.stores.store import Store

CHUNKS, SLICE, SLICES, T, DIM, CLASSES = 22, 4, 6, 4, 3, 40  # the last slice has 2 chunks
RANDOM = np.random.default_rng(5)
H = torch.from_numpy(RANDOM.normal(size=(CHUNKS, T - 1, DIM)))
Y = torch.from_numpy(RANDOM.integers(0, CLASSES, (CHUNKS, T - 1)))
W = torch.from_numpy(RANDOM.normal(size=(CLASSES, DIM))).float()
TRAIN = {"chunks": CHUNKS, "slice_chunks": SLICE, "slices": SLICES}


def chunks_of(*runs, chunks=CHUNKS):
    return [chunk for start, stop in runs for chunk in range(start * SLICE, min(stop * SLICE, chunks))]


def trained(
    path, *runs, statistics=("covariance",), scale=1.0, identity=None, train=None, bias=False, versions=None, name="m"
):
    """A store of some slices, as a collection writes it."""
    moments = ClassMoments(DIM, statistics=[plugins().statistics[name]() for name in statistics])
    chunks = chunks_of(*runs)
    moments.add(scale * H[chunks].flatten(0, 1), Y[chunks].flatten())
    s = moments.statistics_so_far()
    files = {"top/train.safetensors": {name: getattr(s, name) for name in ("classes", "counts", "means", "variances")}}
    files["top/classifier.safetensors"] = {"weight": W[s.classes]} | ({"bias": W[s.classes, 0]} if bias else {})
    files |= {f"top/{name}.safetensors": dict(tensors) for name, tensors in s.extra.items()}
    versions = {**s.versions, **(versions or {})}
    about = {
        "identity": {"weights": "w", "dtype": "float32", "chunk_length": T, "statistics": versions, **(identity or {})},
        "model": {"name": name, "vocabulary": CLASSES},
        "corpus": {"name": "t", "validation": "v"},
        "coverage": {"train": {**TRAIN, "done": [list(run) for run in runs], **(train or {})}, "validation": None},
        "statistics": versions,
        "statistics_by": dict(s.made_by),
    }
    return build(path, about, files, provenance={"command": f"{runs}"})


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


def validated(store, path, *runs, coverage=None, filled=()):
    """The same with validation results of some slices."""
    known = {**TRAIN, "means": means_hash(store), "done": [list(run) for run in runs], **(coverage or {})}
    made = [[validation_of(chunk) for chunk in chunks_of(run, chunks=known["chunks"])] for run in runs]
    pieces = list(zip(runs, map(merge_validation, made), strict=True))
    about = {name: store.manifest[name] for name in ("identity", "model", "corpus")}
    about["coverage"] = {**store.manifest["coverage"], "validation": known}
    more = {"path": path, "about": about, "provenance": {"command": f"{runs}"}}
    return add_validation(store=store, pieces=pieces, statistics=Filled(filled), **more)


def equal(mine, theirs, exactly=False):
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        assert value.dtype == theirs[name].dtype
        assert torch.allclose(value.double(), theirs[name].double(), rtol=0 if exactly else 1e-12, atol=1e-12), name


PARTITIONS = [
    [[(0, 2)], [(2, 3)], [(3, 6)]],
    [[(3, 6)], [(0, 2)], [(2, 3)]],
    [[(0, 1), (4, 6)], [(1, 4)]],
    [[(5, 6)], [(0, 5)]],
]


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_merged_parts_are_the_whole(tmp_path, partition, bias):
    parts = [trained(None, *runs, bias=bias) for runs in partition]
    merged = merge(parts, store=tmp_path / "merged")
    whole = trained(None, (0, SLICES), bias=bias)
    assert merged.manifest["coverage"] == whole.manifest["coverage"]
    assert merged.identity == whole.identity
    assert merged.manifest["model"] == whole.manifest["model"]
    assert merged.manifest["statistics"] == whole.manifest["statistics"] == {"covariance": 1}
    assert merged.manifest["statistics_by"] == whole.manifest["statistics_by"]
    for name in ("train", "classifier", "covariance"):
        equal(merged.tensors(name), whole.tensors(name), exactly=name == "classifier")
    assert Store.load(tmp_path / "merged").digest == merged.digest
    ordered = sorted(partition)
    assert [each["command"] for each in merged.manifest["provenance"]["parts"]] == [f"{tuple(r)}" for r in ordered]


def test_parts_by_their_folders_and_twice_the_same_result(tmp_path):
    for k, run in enumerate([(0, 3), (3, 6)]):
        trained(tmp_path / str(k), run)
    first = merge([tmp_path / "0", str(tmp_path / "1")], store=str(tmp_path / "merged"))
    before = (tmp_path / "merged" / MANIFEST).read_bytes()
    assert merge([tmp_path / "1", tmp_path / "0"], store=tmp_path / "merged").digest == first.digest
    assert (tmp_path / "merged" / MANIFEST).read_bytes() == before
    (tmp_path / "merged" / INCOMING).mkdir()  # left by a kill
    assert merge(stores=[tmp_path / "0", tmp_path / "1"], store=tmp_path / "merged").digest == first.digest
    assert not (tmp_path / "merged" / INCOMING).exists()
    trained(tmp_path / "other", (0, 6), scale=2.0)
    with pytest.raises(StoreError, match="other holds another store, which differs in its statistics"):
        merge([tmp_path / "0", tmp_path / "1"], store=tmp_path / "other")
    with pytest.raises(UsageError, match="nothing to merge"):
        merge([], store=tmp_path / "none")
    with pytest.raises(UsageError, match="nothing to merge"):
        merge(iter([]), store=tmp_path / "a")
    with pytest.raises(StoreError, match="there is no store in part_x"):
        merge("part_x", store=tmp_path / "a")


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([(1, 6)], "slices 1 of 6 are in none"),
        ([(0, 5)], "slices 6 of 6 are in none"),
        ([(0, 2), (4, 6)], "slices 3–4 of 6 are in none .*: collect --part 2/3, then"),
        ([(1, 2), (4, 5)], "slices 1, 3–4, 6 of 6 are in none .*: collect --part 1/6 and --part 3/6 and"),
        ([(3, 6)], "slices 1–3 of 6 are in none .*: collect --part 1/2, then"),
        ([(0, 1), (1, 4)], "slices 5–6 of 6 are in none .*: collect the missing part, then"),  # of unequal parts
        ([(0, 5), (2, 3)], "/0 and .*/1 overlap: both hold .* slices 3 of 6"),
        ([(0, 3), (2, 6)], "/0 and .*/1 overlap: both hold .* slices 3 of 6"),
        ([(0, 4), (4, 6), (1, 4)], "/0 and .*/2 overlap: both hold .* slices 2–4 of 6"),
        ([(0, 3), (0, 3), (3, 6)], "/0 and .*/1 overlap: both hold .* slices 1–3 of 6"),
    ],
)
@pytest.mark.parametrize("phase", ["train", "validation"])
def test_slices_that_are_lacking_or_twice_there_are_named(tmp_path, phase, runs, said):
    if phase == "train":
        parts = [trained(tmp_path / str(k), run) for k, run in enumerate(runs)]
    else:
        whole = trained(None, (0, SLICES))
        parts = [validated(whole, tmp_path / str(k), run) for k, run in enumerate(runs)]
    with pytest.raises(StoreError, match=said) as caught:
        merge(parts, store=tmp_path / "merged")
    assert f"{phase} slices" in str(caught.value)
    assert not (tmp_path / "merged").exists()


def test_a_whole_store_among_parts_is_named(tmp_path):
    parts = [trained(tmp_path / str(k), run) for k, run in enumerate([(0, 3), (3, 6)])]
    whole = merge(parts, store=tmp_path / "whole")
    with pytest.raises(StoreError, match="/whole is a trained store, not a part of a collection"):
        merge([*parts, whole], store=tmp_path / "merged")
    halves = [validated(whole, tmp_path / f"v{k}", run) for k, run in enumerate([(0, 3), (3, 6)])]
    complete = merge(halves, store=tmp_path / "complete")
    with pytest.raises(StoreError, match="/complete is a complete store, not a part of a collection"):
        merge([halves[0], complete], store=tmp_path / "merged")


DIFFERENT = {
    "identity": ({"identity": {"dtype": "bfloat16"}}, "dtype: float32 and bfloat16"),
    "more in the identity": ({"identity": {"code": {"model": "c"}}}, r"code: none and \{"),
    "chunks": ({"train": {"chunks": 23}}, "slices.chunks: 22 and 23"),
    "slices": (
        {"train": {"chunks": 22, "slice_chunks": 3, "slices": 8}},
        "slices.slice_chunks: 4 and 3; slices.slices",
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_parts_of_something_else_are_refused_with_both_values(tmp_path, name):
    change, said = DIFFERENT[name]
    if "chunks" in change.get("train", {}):  # samples must add up
        change = {**change, "identity": {"chunk_length": None}}
        said = f"chunk_length: 4 and none; {said}"
    parts = [trained(tmp_path / "a", (0, 3)), trained(tmp_path / "b", (3, 6), **change)]
    with pytest.raises(StoreError, match=f"/a and .*/b are not parts of one collection: they differ in {said}"):
        merge(parts, store=tmp_path / "merged")
    with pytest.raises(StoreError, match="are not parts of one collection"):
        merge([*parts[:1], trained(tmp_path / "c", (1, 2)), *parts[1:]], store=tmp_path / "merged")


def test_a_part_that_was_altered_is_not_merged(tmp_path):
    parts = [trained(tmp_path / "a", (0, 3)), trained(tmp_path / "b", (3, 6))]
    for name in ("train", "classifier", "covariance"):
        file = tmp_path / "b" / "top" / f"{name}.safetensors"
        before = file.read_bytes()
        file.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
        with pytest.raises(StoreError, match=f"{name}.safetensors was altered"):
            merge(parts, store=tmp_path / "merged")
        file.write_bytes(before)
    assert not (tmp_path / "merged").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"statistics": ()}, "does not hold it"),
        ({"versions": {"covariance": 2}}, "filled version 2, and the plugin installed is at version 1"),
    ],
)
def test_a_statistic_that_parts_do_not_share_is_left_out_and_said_so(tmp_path, caplog, change, said):
    parts = [trained(tmp_path / "a", (0, 3)), trained(tmp_path / "b", (3, 6), **change)]
    merged = merge(parts, store=tmp_path / "merged")
    assert "top/covariance.safetensors" not in merged.manifest["files"]
    assert merged.manifest["statistics"] == merged.identity["statistics"] == merged.manifest["statistics_by"] == {}
    assert f"statistic covariance is left out: {tmp_path / 'b'} {said}" in caplog.text
    equal(merged.tensors("train"), trained(tmp_path / "whole", (0, 6)).tensors("train"))


def test_a_statistic_that_no_plugin_can_merge_is_left_out(tmp_path, caplog):
    parts = [
        trained(tmp_path / str(k), run, versions={"a_novel": 1, "novel": 1}) for k, run in enumerate([(0, 3), (3, 6)])
    ]
    merged = merge(parts, store=tmp_path / "merged")
    assert merged.manifest["statistics"] == {"covariance": 1}
    equal(merged.tensors("covariance"), trained(None, (0, 6)).tensors("covariance"))
    assert "no plugin installed here can merge it" in caplog.text


def test_names_are_those_of_the_first_slices(tmp_path):
    parts = [trained(None, (0, 3), name="first"), trained(None, (3, 6), name="second")]
    for number, each in enumerate((parts, parts[::-1])):
        assert merge(each, store=tmp_path / str(number)).model == "first"
    stores = [trained(None, (0, 6), name="first"), trained(None, (0, 6), name="second", statistics=())]
    stores = [validated(store, None, run) for store, run in zip(stores, [(0, 3), (3, 6)], strict=True)]
    for number, each in enumerate((stores, stores[::-1])):
        merged = merge(each, store=tmp_path / f"validated{number}")
        assert merged.model == "first"
        assert "top/covariance.safetensors" in merged.manifest["files"]


# the validation pass


class Seen(ValidationStatistic):
    """Chunks of the validation pass."""

    name = "seen"

    def __init__(self, total: int = 0) -> None:
        self.total = torch.tensor([total])

    def merge(self, other, mine, theirs):
        self.total = self.total + other.total


@pytest.fixture
def seen(monkeypatch):
    monkeypatch.setitem(plugins().statistics, "seen", Seen)
    monkeypatch.setitem(plugins().owners, ("statistic", "seen"), Plugin("tests", "tests 1.0"))


@pytest.mark.parametrize("runs", [[(0, 6)], [(0, 2), (2, 3), (3, 6)], [(3, 6), (0, 2), (2, 3)]], ids=str)
def test_statistics_of_the_validation_pass_are_merged(seen, tmp_path, caplog, runs):
    store = trained(None, (0, SLICES))
    parts = [validated(store, None, run, filled=[Seen(len(chunks_of(run)))]) for run in runs]
    merged = merge(parts, store=tmp_path / "merged")
    assert merged.tensors("seen")["total"].tolist() == [CHUNKS]
    assert merged.manifest["statistics"] == merged.identity["statistics"] == {"covariance": 1, "seen": 1}
    assert merged.manifest["coverage"]["validation"]["statistics"] == ["seen"]
    if len(parts) > 1:
        lacking = merge([*parts[:-1], validated(store, None, runs[-1])], store=tmp_path / "lacking")
        assert lacking.manifest["statistics"] == {"covariance": 1}
        assert "statistic seen is left out" in caplog.text
    caplog.clear()
    again = validated(merged, None, (0, 6))
    assert again.manifest["statistics"] == {"covariance": 1}
    assert "top/seen.safetensors" not in again.manifest["files"]
    left_out = [each for each in caplog.messages if "is left out" in each]
    assert left_out == ["statistic seen is left out: it was not filled on all of the validation text"]


def test_a_validation_statistic_without_its_plugin_is_not_taken_from_one_part(seen, tmp_path, monkeypatch):
    store = trained(None, (0, SLICES))
    parts = [validated(store, None, run, filled=[Seen(len(chunks_of(run)))]) for run in [(0, 4), (4, 6)]]
    monkeypatch.delitem(plugins().statistics, "seen")
    merged = merge(parts, store=tmp_path / "merged")
    assert "top/seen.safetensors" not in merged.manifest["files"]
    assert merged.manifest["statistics"] == {"covariance": 1}


def test_a_copy_that_was_altered_is_not_merged(tmp_path):
    store = trained(None, (0, SLICES))
    parts = [validated(store.save(tmp_path / f"{run}"), tmp_path / f"{run}", run) for run in [(0, 3), (3, 6)]]
    for part in parts:
        file = part.path / "top" / "train.safetensors"
        before = file.read_bytes()
        file.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
        with pytest.raises(StoreError, match=r"train\.safetensors was altered"):
            merge(parts, store=tmp_path / "merged")
        file.write_bytes(before)
    assert merge(parts, store=tmp_path / "merged").state == "complete"


@pytest.mark.parametrize(
    "partition", [*PARTITIONS, [[(0, 6)]], [[(0, 1), (2, 3), (4, 5)], [(1, 2), (3, 4), (5, 6)]]], ids=str
)
def test_validation_parts_are_the_whole_pass(tmp_path, partition):
    store = trained(None, (0, SLICES))
    parts = [validated(store, None, *runs) for runs in partition]
    merged = merge(parts, store=tmp_path / "merged")
    whole = validated(store, None, (0, SLICES))
    assert merged.state == whole.state == "complete"
    assert merged.digest == whole.digest
    expected = merge_validation([validation_of(chunk) for chunk in range(CHUNKS)])
    equal(merged.tensors("validation"), vars(expected))
    for name in ("train", "classifier", "covariance"):
        equal(merged.tensors(name), store.tensors(name), exactly=True)
    assert len(merged.manifest["provenance"]["parts"]) == len(parts)


def test_validation_parts_need_the_same_means_slices_and_results(tmp_path):
    store, other = trained(tmp_path / "a", (0, 6)), trained(tmp_path / "b", (0, 6), scale=1.5)
    part = validated(store, tmp_path / "1", (0, 3))
    for name, made, said in (
        ("means", validated(other, tmp_path / "2", (3, 6)), "means: .*validation slices.means: "),
        (
            "slices",
            validated(store, tmp_path / "3", (3, 6), coverage={"slices": 7, "chunks": 28}),
            "validation slices.chunks: 22 and 28; validation slices.slices: 6 and 7",
        ),
        ("hash", validated(store, tmp_path / "4", (3, 6), coverage={"means": "0" * 64}), "validation slices.means: "),
        ("none", store, "validation slices.chunks: 22 and none"),
    ):
        with pytest.raises(StoreError, match=f"they differ in {said}"):
            merge([part, made], store=tmp_path / "merged")
        assert name
    with pytest.raises(StoreError, match="holds no validation results: collapse collect MODEL --store"):
        merge([store], store=tmp_path / "merged")


def test_validation_results_as_pieces(tmp_path):
    store = trained(tmp_path / "trained", (0, SLICES))
    assert pieces_of(store) == []
    runs = [(0, 2), (3, 4), (5, 6)]
    part = validated(store, tmp_path / "part", *runs)
    assert part.state == "trained"
    pieces = pieces_of(part)
    assert [run for run, _ in pieces] == runs
    equal(vars(merge_validation([piece for _, piece in pieces])), part.tensors("validation"))
    assert [len(piece.block_totals) > 0 for _, piece in pieces] == [True, False, False]  # the first has all of them
    # more pieces, put among those that are there
    more = [((4, 5), merge_validation([validation_of(chunk) for chunk in chunks_of((4, 5))]))]
    known = {**part.manifest["coverage"]["validation"], "done": [[0, 2], [3, 6]]}
    about = {name: part.manifest[name] for name in ("identity", "model", "corpus")}
    about["coverage"] = {**part.manifest["coverage"], "validation": known}
    together = sorted([*pieces, *more], key=lambda piece: piece[0])
    made = add_validation(part, together, Filled(), path=part.path, about=about, provenance={})
    expected = merge_validation([validation_of(chunk) for chunk in chunks_of((0, 2), (3, 6))])
    equal(made.tensors("validation"), vars(expected))


def test_validation_beside_the_means_keeps_what_is_there(tmp_path):
    store = trained(tmp_path / "s", (0, SLICES))
    before = {name: (tmp_path / "s" / name).read_bytes() for name in store.manifest["files"]}
    done = validated(store, tmp_path / "s", (0, SLICES))
    assert set(done.manifest["files"]) == {*before, "top/validation.safetensors"}
    assert {name: (tmp_path / "s" / name).read_bytes() for name in before} == before
    assert done.manifest["statistics"] == done.identity["statistics"] == {"covariance": 1}
    assert done.manifest["statistics_by"] == store.manifest["statistics_by"]
    assert done.manifest["coverage"]["validation"]["statistics"] == []
    assert Store.load(tmp_path / "s").check().state == "complete"
    copied = validated(store, None, (0, SLICES))
    assert copied.path is None
    assert copied.digest == done.digest


def test_runs_are_joined_where_they_touch():
    for runs, expected in (
        ([], []),
        ([(2, 3)], [[2, 3]]),
        ([(4, 6), (0, 2), (2, 4), (8, 9)], [[0, 6], [8, 9]]),
        ([(0, 1), (2, 3)], [[0, 1], [2, 3]]),
        ([(3, 4), (0, 1), (2, 3), (4, 5)], [[0, 1], [2, 5]]),
    ):
        assert joined(runs) == expected


def test_the_hash_of_means_is_of_classes_counts_and_means(tmp_path):
    golden = Store.load(Path(__file__).parent / "golden" / "store-v1")
    assert means_hash(golden) == golden.manifest["coverage"]["validation"]["means"]
    made = trained(None, (0, 1))
    train = made.tensors("train")
    data = b"".join(train[name].numpy().tobytes() for name in ("classes", "counts", "means"))
    assert means_hash(made) == hashlib.sha256(data).hexdigest()
    assert means_hash(trained(None, (0, 1), scale=1 + 1e-15)) != means_hash(made)


def test_a_store_says_which_samples_it_should_have(tmp_path):
    """What a part counts twice is seen when it is written, and when it is opened to be merged."""
    with pytest.raises(StoreError, match=r"counts 24 samples where its 12 chunks have 36"):
        trained(tmp_path / "a", (0, 2), train={"done": [[0, 3]]})
    part = trained(tmp_path / "b", (0, 2))
    manifest = json.loads((tmp_path / "b" / MANIFEST).read_text())
    assert canonical(manifest) == canonical(part.manifest)


def test_no_store_is_written_inside_a_store(tmp_path, monkeypatch):
    parts = [trained(tmp_path / str(n), run) for n, run in enumerate(((0, 3), (3, 6)))]
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path / "0")
    for target in (tmp_path / "0" / "sub", tmp_path / "0" / "top" / "a" / "b", "sub", Path("..") / "1" / "sub"):
        with pytest.raises(StoreError, match=f"{target} lies inside the store {tmp_path}/[01]: choose a .* outside it"):
            merge(parts, store=target)
    assert sorted(tmp_path.rglob("*")) == before
    merge(parts, store=Path("..") / "merged")
