"""The state of an unfinished collection: gone on with where it counts the same slices, else refused or discarded."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from collapse.collection.resuming import find_place
from collapse.collection.slices import Slices
from collapse.errors import StoreError
from collapse.inputs.language_model import LanguageModel
from collapse.inputs.packing import Chunks
from collapse.inputs.text_source import TextPhase
from collapse.numerics.accumulate import ClassMoments
from collapse.stores.manifest import read_manifest
from collapse.stores.partial import Partial, Progress
from collapse.stores.tensor_files import described, tensor_bytes


class Tokens(LanguageModel):
    """Embeds each token as its number."""

    def embeddings(self, tokens_BT):
        return tokens_BT.unsqueeze(2).float()


def text(chunks: int) -> TextPhase:
    tokens = (10 * np.arange(chunks)[:, None] + np.arange(4)).astype("<i4")
    return TextPhase("train", Chunks(tokens), Tokens(None, torch.zeros(1, 1), None, 1, "none"))


def progress(**other) -> Progress:
    known = {"phase": "train", "start": 0, "done": 2, "stop": 4, "batch_size": 2, "identity": {"a": 1}, "means": None}
    return Progress(**{**known, "file": "train-1-2.safetensors", "entry": {}, **other})


def written(folder, slices, done, **other):
    """The state of a run of some slices of a text, as it is after ``done`` of them."""
    moments = ClassMoments(1)
    for index in range(slices.start, done):
        moments.add(*slices.phase.samples(*slices.units(index)))
    about = {
        "phase": slices.phase.name,
        "start": slices.start,
        "stop": slices.stop,
        "batch_size": 2,
        "identity": {"a": 1},
    }
    about |= {"means": None, "chunks": slices.phase.units, "slice_chunks": slices.length}
    Partial(folder).write(moments.state(), **{**about, "done": done, **other})


def place(folder, slices, identity=None, means=None):
    return find_place(Partial(folder), slices, identity or {"a": 1}, means)


def test_a_state_of_the_same_slices_is_gone_on_with(tmp_path):
    slices = Slices(text(11), 3, 0, 4, 2)
    assert place(tmp_path, slices) is None
    written(tmp_path, slices, 2)
    assert place(tmp_path, slices).done == 2
    assert place(tmp_path, slices, {"a": 1, "statistics": {"more": 1}}).done == 2
    assert place(tmp_path, slices).done == 2  # it stays where it is


@pytest.mark.parametrize(
    ("identity", "start", "stop", "said"),
    [
        ({"a": 2}, 0, 4, "a: 1 and 2"),
        ({"a": 1, "b": 3}, 0, 4, "b: none and 3"),
        ({"a": 1}, 1, 4, "slices: 1–4 and 2–4"),
        ({"a": 1}, 0, 3, "slices: 1–4 and 1–3"),
    ],
)
def test_a_state_of_another_collection_is_refused_and_stays(tmp_path, identity, start, stop, said):
    written(tmp_path, Slices(text(11), 3, 0, 4, 2), 2)
    with pytest.raises(StoreError, match=f"unfinished collection that differs in {said} "):
        place(tmp_path, Slices(text(11), 3, start, stop, 2), identity)
    assert Partial(tmp_path).read().done == 2


OTHERS = {
    "another phase": {"phase": "validation"},
    "other means": {"means": "b" * 64},
    "other slices": {"slice_chunks": 2},
    "another text": {"chunks": 12},
    "a file that is gone": {},
    "of an earlier version, of other slices": {"chunks": None, "slice_chunks": None},
    "of an earlier version, beyond the last slice": {"chunks": None, "slice_chunks": None, "done": 5},
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_state_that_is_of_no_more_use_is_discarded(tmp_path, caplog, name):
    slices, change = Slices(text(11), 3, 0, 4, 2), OTHERS[name]
    counted = Slices(text(11), 2, 0, 6, 2) if "of other slices" in name else slices
    written(
        tmp_path,
        counted,
        min(change.get("done", 2), 4),
        stop=4,
        **{k: v for k, v in change.items() if k != "done"},
    )
    file = tmp_path / "partial" / "state.json"
    state = json.loads(file.read_text())
    if "done" in change:
        state |= change
        file.write_text(json.dumps(state))
        if change["done"] == 5:
            (tmp_path / "partial" / state["file"]).rename(tmp_path / "partial" / "train-1-5.safetensors")
            file.write_text(json.dumps(state | {"file": "train-1-5.safetensors"}))
    if "gone" in name:
        (tmp_path / "partial" / state["file"]).unlink()
    assert place(tmp_path, slices) is None
    assert not (tmp_path / "partial").exists()
    assert bool(caplog.messages) == (name != "another phase")


def test_a_state_without_a_slice_is_no_place_to_go_on_from(tmp_path, caplog):
    about = {"phase": "train", "start": 0, "stop": 4, "batch_size": 2, "identity": {"a": 2}, "means": None}
    Partial(tmp_path).begin(**about)
    assert place(tmp_path, Slices(text(11), 3, 0, 4, 2)) is None
    assert not (tmp_path / "partial").exists()
    assert not caplog.messages


def test_a_state_of_an_earlier_version_is_gone_on_with_where_its_labels_are_these(tmp_path):
    slices = Slices(text(11), 3, 0, 4, 2)
    for done in (2, 4):
        written(tmp_path, slices, done, chunks=None, slice_chunks=None)
        assert place(tmp_path, slices).done == done


def test_a_state_says_what_it_is():
    for wrong in ({"done": "2"}, {"identity": []}, {"means": 3}, {"chunks": "11"}, {"file": None}):
        with pytest.raises(TypeError, match=next(iter(wrong))):
            progress(**wrong)
    for name in ("done", "identity", "means", "chunks", "made_by", "batch_size"):
        made = progress()
        object.__setattr__(made, name, 1.5)
        with pytest.raises(TypeError, match=f"{name} is 1.5"):
            made.__post_init__()  # here no checker of types comes before it
    for name in (
        "../train-1-2.safetensors",
        "train-1-1.safetensors",
        "validation-1-2.safetensors",
        "train-0-2.safetensors",
    ):
        with pytest.raises(ValueError, match="is not the file of 2 slices of this phase"):
            progress(file=name)
    made = progress(start=1, file="")
    may = ("train-2-2.safetensors", "train-2-4.safetensors")
    never = ("train-2-1", "train-2-5", "train-2-02", "train-2-²", "train-2-", "train-1-2", "validation-2-2")
    assert all(made.may_write(name) for name in may)
    assert not any(made.may_write(f"{name}.safetensors") for name in never)
    assert not made.may_write("train-2-2")
    with pytest.raises(AttributeError):
        progress().done = 3


def test_only_files_that_a_state_names_are_removed(tmp_path):
    partial, folder = Partial(tmp_path), tmp_path / "partial"
    assert partial.read() is None
    assert partial.strange() == []
    about = {"phase": "train", "start": 0, "stop": 4, "batch_size": 1, "identity": {}, "means": None}
    partial.begin(**about)
    assert partial.read().done == 0
    with pytest.raises(StoreError, match=r"was interrupted \(0 of 4 slices of the train phase kept\): run the same"):
        read_manifest(tmp_path)
    for done in (1, 2, 3):
        partial.write({"x": torch.ones(done)}, **about, done=done)
        assert {file.name for file in folder.iterdir()} == {"state.json", f"train-1-{done}.safetensors"}
    left = ("train-1-1.safetensors", "train-1-4.safetensors", ".train-1-4.safetensors.partial", ".state.json.partial")
    for name in left:
        (folder / name).write_text("left by a kill")
    assert partial.strange() == []
    partial.tidy(partial.read())
    assert {file.name for file in folder.iterdir()} == {"state.json", "train-1-3.safetensors", ".state.json.partial"}
    (folder / "notes.txt").write_text("mine")
    mine = [".train-1-2.safetensors", "notes.txt", "train-1-2.safetensors.partial", "train-2-3.safetensors"]
    for name in mine:
        (folder / name).write_text("mine")
    assert partial.strange() == [f"partial/{name}" for name in mine]
    partial.clear()
    assert sorted(file.name for file in folder.iterdir()) == mine
    assert partial.strange() == [f"partial/{name}" for name in mine]
    (tmp_path / "kill" / "partial").mkdir(parents=True)
    (tmp_path / "kill" / "partial" / ".state.json.partial").write_text("left by a kill")
    Partial(tmp_path / "kill").clear()
    assert not (tmp_path / "kill" / "partial").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "partial").write_text("a file")
    assert Partial(tmp_path / "other").strange() == ["partial"]


def test_a_state_that_was_altered_is_refused(tmp_path):
    about = {"phase": "train", "start": 0, "stop": 4, "batch_size": 1, "identity": {}, "means": None}
    partial = Partial(tmp_path)
    partial.write({"x": torch.ones(3)}, **about, done=1)
    file = tmp_path / "partial" / "train-1-1.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(StoreError, match="was altered"):
        partial.tensors(partial.read())
    for damaged in ("{", "[]", '{"phase": "train"}'):
        (tmp_path / "partial" / "state.json").write_text(damaged)
        with pytest.raises(StoreError, match="is damaged, or no state of a collection"):
            partial.read()


def test_a_states_tensors_are_of_a_layer_and_those_of_an_earlier_version_are_read(tmp_path):
    tensors = {"x": torch.ones(3), "mine/total": torch.ones(1)}
    about = {"phase": "train", "start": 0, "stop": 4, "batch_size": 1, "identity": {}, "means": None}
    partial = Partial(tmp_path)
    partial.write(tensors, **about, done=1)
    file = tmp_path / "partial" / "train-1-1.safetensors"
    assert set(load_file(file)) == {"top/x", "top/mine/total"}
    assert partial.tensors(partial.read()).keys() == tensors.keys()
    data = tensor_bytes(tensors)
    file.write_bytes(data)
    state = json.loads((tmp_path / "partial" / "state.json").read_text())
    (tmp_path / "partial" / "state.json").write_text(json.dumps(state | {"entry": described(data)}))
    assert partial.tensors(partial.read()).keys() == tensors.keys()
