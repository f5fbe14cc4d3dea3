"""Nulls: the untrained model and shuffled labels are collected like the model, cached, and never confused with it."""

import json

import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

import collapse
from collapse.errors import StoreError, UsageError
from collapse.inputs.permuted_labels import permuted
from collapse.testing import random_features


def few(tiny):
    """Options of a collection that takes little time."""
    return tiny.options() | {"max_chunks": 60}


@pytest.fixture(scope="module")
def trained(tiny, tmp_path_factory):
    return collapse.collect(tiny.model, store=tmp_path_factory.mktemp("trained") / "s", **few(tiny))


@pytest.fixture(scope="module")
def shuffled(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shuffled") / "s"
    return collapse.collect(tiny.model, store=folder, null="shuffled", **few(tiny))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    file = tmp_path_factory.mktemp("features") / "f.safetensors"
    save_file(random_features(6, 5, 20_000), file)
    return file


@given(st.integers(1, 3000), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_every_place_is_taken_once(total, seed):
    places = permuted(torch.arange(total), total, seed)
    assert places.sort().values.tolist() == list(range(total))
    some = torch.arange(total)[total // 3 : total // 2 + 1]
    assert permuted(some, total, seed).tolist() == places[some].tolist()


def test_shuffled_numbers_are_the_direct_ones_of_permuted_labels(file):
    plain = {name: tensor.numpy() for name, tensor in load_file(file).items()}
    for split in ("train", "validation"):
        labels = plain[f"{split}_labels"]
        plain[f"{split}_labels"] = labels[permuted(torch.arange(len(labels)), len(labels)).numpy()]
    row = collapse.measure(collapse.collect(file, null="shuffled"))
    for name, value in reference.everything(plain).items():
        assert row.measurements[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name


def test_parts_of_shuffled_labels_merge_to_the_whole(tiny, shuffled, tmp_path):
    for k in (1, 2, 3):
        more = {"part": (k, 3), "batch_size": k, "null": "shuffled"}
        collapse.collect(tiny.model, store=tmp_path / str(k), **more, **few(tiny))
    merged = collapse.merge([tmp_path / "2", tmp_path / "3", tmp_path / "1"], store=tmp_path / "merged")
    a, b = merged.statistics(), shuffled.statistics()
    assert torch.equal(a.counts, b.counts)
    assert torch.allclose(a.means, b.means, rtol=0, atol=1e-12 * float(b.means.abs().max()))


def test_an_untrained_model_has_the_weights_of_its_initialization(tiny, trained):
    """The tiny model was never trained, and was drawn with the same seed."""
    null = collapse.collect(tiny.model, null="untrained", **few(tiny))
    assert torch.allclose(null.statistics().means, trained.statistics().means, atol=1e-6)
    state = torch.get_rng_state()
    again = collapse.collect(tiny.model, null="untrained", recollect=True, **few(tiny))
    assert torch.equal(torch.get_rng_state(), state)
    assert again.digest == null.digest


def test_identities_and_caches_are_apart(tiny, trained, shuffled):
    assert "null" not in trained.identity
    assert shuffled.identity == trained.identity | {"null": "shuffled"}
    made = {null: collapse.collect(tiny.model, null=null, **few(tiny)) for null in (None, "untrained", "shuffled")}
    assert len({store.path for store in made.values()}) == 3
    assert [store.identity.get("null") for store in made.values()] == [None, "untrained", "shuffled"]
    assert made["shuffled"].digest == shuffled.digest
    for store, null in ((shuffled, None), (trained, "untrained")):
        with pytest.raises(StoreError, match=rf"null: \w+ \(stored\), {null or 'none'} \(requested\)"):
            collapse.collect(tiny.model, store=store.path, null=null, **few(tiny))


def test_the_table_has_both_nulls(run, tiny, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    words = ["measure", tiny.model, "--null", "--chunk-length", 32, "--max-chunks", 60]
    words += ["--text", tiny.text, "--validation-text", tiny.validation]
    shown = run(*words).stdout
    for heading in ("untrained", "shuffled", "reachable"):
        assert heading in shown
    assert max(len(line) for line in shown.splitlines()[1:] if "C = " not in line) <= 80
    (row,) = json.loads(run(*words, "--json", "--metrics", "nc1.trace_ratio").stdout)
    values = {kind: values["nc1.trace_ratio"] for kind, values in row["nulls"].items()}
    table = run(*words, "--metrics", "nc1.trace_ratio", "--format", "markdown").stdout
    line = next(line for line in table.splitlines() if "nc1.trace_ratio" in line).split(" | ")
    assert [float(each.strip("| ")) for each in line[-2:]] == pytest.approx([*values.values()], rel=1e-3)


def test_features_have_shuffled_labels_only(run, file):
    (row,) = json.loads(run("measure", file, "--null", "--metrics", "nc2.norm", "--json").stdout)
    assert list(row["nulls"]) == ["shuffled"]
    assert [note["text"] for note in row["notes"]] == ["untrained: a features file has no model to initialize"]
    with pytest.raises(UsageError, match="no model to initialize: use --null shuffled"):
        collapse.collect(file, null="untrained")


def test_a_null_is_not_collected_from_a_store(run, trained):
    done = run("measure", trained.path, "--null", code=2)
    assert "run collapse measure MODEL --text FILES --null" in done.stderr
    with pytest.raises(UsageError, match="is a store, and null baselines need a model and a text"):
        collapse.measure_with_nulls(trained.path)


def test_what_makes_no_sense_is_refused(tiny):
    with pytest.raises(UsageError, match="--null must be untrained or shuffled, got 'noise'"):
        collapse.collect(tiny.model, null="noise", **few(tiny))
    with pytest.raises(
        UsageError, match=r"m\.gguf does not record how its model was initialized: for --null untrained"
    ):
        collapse.collect(tiny.model, null="untrained", model_args={"gguf_file": "m.gguf"}, **few(tiny))
    with pytest.raises(UsageError, match="remove null="):
        collapse.measure_with_nulls(tiny.model, null="shuffled", **few(tiny))
