"""Slices do not depend on the batch size: no chunk is counted twice or skipped, whatever a run is resumed with."""

import json
import shutil

import pytest
from safetensors.torch import load_file, save_file

import collapse
from collapse.errors import StoreError
from collapse.inputs.text_source import slice_length
from collapse.stores.files import canonical
from collapse.stores.manifest import MANIFEST, render, sealed
from collapse.stores.tensor_files import described


class Stopped(Exception):
    """Ends a collection as a kill would, between two batches."""


def stop_at(phase, chunk):
    def report(what, done, total, note=""):
        if what == f"collecting {phase}" and done >= chunk:
            raise Stopped

    return report


def counts(store, name="train"):
    tensors = store.tensors(name)
    return dict(zip(tensors["classes"].tolist(), tensors["counts"].tolist(), strict=True))


@pytest.fixture(scope="module")
def options(tiny):
    return {**tiny.options(), "max_chunks": 100}


@pytest.fixture(scope="module")
def whole(tiny, options, tmp_path_factory):
    return collapse.collect(tiny.model, store=tmp_path_factory.mktemp("whole") / "store", **options)


def same(one, other):
    for name in ("train", "validation"):
        mine, theirs = counts(one, name), counts(other, name)
        seen = mine.keys() | theirs.keys()
        assert all(mine.get(each, 0) == theirs.get(each, 0) for each in seen)
    assert len(one.tensors("validation")["block_totals"]) == len(other.tensors("validation")["block_totals"])


@pytest.mark.parametrize(("first", "second", "phase"), [(1, 7, "train"), (7, 1, "train"), (2, "auto", "validation")])
def test_resumed_with_another_batch_size_counts_every_chunk_once(tiny, options, whole, tmp_path, first, second, phase):
    with pytest.raises(Stopped):
        collapse.collect(tiny.model, store=tmp_path / "s", batch_size=first, progress=stop_at(phase, 30), **options)
    store = collapse.collect(tiny.model, store=tmp_path / "s", batch_size=second, **options)
    assert not store.verify()
    same(store, whole)


def test_parts_of_any_batch_size_fit_together(tiny, options, whole, tmp_path):
    parts = [
        collapse.collect(tiny.model, store=tmp_path / f"{k}", part=(k, 3), batch_size=batch, **options)
        for k, batch in enumerate((1, 5, "auto"), 1)
    ]
    assert counts(collapse.merge(parts, store=tmp_path / "merged")) == counts(whole)


def make_state_old(store, length):
    """Write a state as an earlier version did, which cut slices of so many chunks and did not say so."""
    file = store / "partial" / "state.json"
    state = json.loads(file.read_text())
    for name in ("chunks", "slice_chunks", "first_batch", "made_by"):
        state.pop(name)
    factor = slice_length(100, 32) // length if length else 1
    old = file.with_name(state["file"])
    state["done"] *= factor
    state["stop"] *= factor
    state["file"] = f"train-1-{state['done']}.safetensors"
    old.rename(file.with_name(state["file"]))
    file.write_bytes(canonical(state))


def test_a_store_whose_samples_do_not_add_up_is_refused(whole, tmp_path):
    store = shutil.copytree(whole.path, tmp_path / "s")
    file = store / "top" / "train.safetensors"
    tensors = load_file(file)
    save_file({name: value + (name == "counts") for name, value in tensors.items()}, file)
    manifest = json.loads((store / MANIFEST).read_text())
    content = {key: value for key, value in manifest.items() if key not in ("digest", "checksum", "provenance")}
    content["files"]["top/train.safetensors"] = described(file.read_bytes())
    (store / MANIFEST).write_bytes(render(sealed(content, manifest["provenance"])))
    opened = collapse.load(store)
    with pytest.raises(StoreError, match=r"counts [\d,]+ samples where its 100 chunks have 3,100"):
        opened.check()
    with pytest.raises(StoreError, match="counted twice or skipped"):
        collapse.measure(opened)
    assert any("counted twice or skipped" in each for each in opened.verify())


def test_a_killed_collection_keeps_the_batch_size_that_memory_allowed(tiny, options, tmp_path):
    """Memory runs out, the batch is halved, the run dies: the same command goes on with the halved one."""
    with pytest.raises(Stopped):
        collapse.collect(tiny.model, store=tmp_path / "s", batch_size=6, progress=stop_at("train", 30), **options)
    file = tmp_path / "s" / "partial" / "state.json"
    state = json.loads(file.read_text()) | {"batch_size": 3}
    file.write_bytes(canonical(state))
    with pytest.raises(Stopped):
        collapse.collect(tiny.model, store=tmp_path / "s", batch_size=6, progress=stop_at("train", 60), **options)
    assert json.loads(file.read_text())["batch_size"] == 3
    with pytest.raises(Stopped):
        collapse.collect(tiny.model, store=tmp_path / "s", batch_size=2, progress=stop_at("train", 80), **options)
    assert json.loads(file.read_text())["batch_size"] == 2
