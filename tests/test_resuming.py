"""The state of an unfinished collection: gone on with where it counts the same slices, else refused or discarded."""

import json

import numpy as np
import pytest
import torch

from collapse.collection.resuming import find_place
from collapse.collection.slices import Slices
from collapse.errors import StoreError
from collapse.inputs.language_model import LanguageModel
from collapse.inputs.packing import Chunks
from collapse.inputs.text_source import TextPhase
from collapse.numerics.accumulate import ClassMoments
from collapse.stores.manifest import read_manifest
from collapse.stores.partial import Partial


class Tokens(LanguageModel):
    """Embeds each token as its number."""

    def embeddings(self, tokens_BT):
        return tokens_BT.unsqueeze(2).float()


BATCHES = {"first_batch": 2, "made_by": {}}


def text(chunks: int) -> TextPhase:
    tokens = (10 * np.arange(chunks)[:, None] + np.arange(4)).astype("<i4")
    return TextPhase("train", Chunks(tokens), Tokens(None, torch.zeros(1, 1), None, 1, "none"))


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
    about |= {"means": None, "chunks": slices.phase.units, "slice_chunks": slices.length, **BATCHES}
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
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_state_that_is_of_no_more_use_is_discarded(tmp_path, caplog, name):
    slices = Slices(text(11), 3, 0, 4, 2)
    written(tmp_path, slices, 2, **OTHERS[name])
    state = json.loads((tmp_path / "partial" / "state.json").read_text())
    if "gone" in name:
        (tmp_path / "partial" / state["file"]).unlink()
    assert place(tmp_path, slices) is None
    assert not (tmp_path / "partial").exists()
    assert bool(caplog.messages) == (name != "another phase")


def test_a_state_without_a_slice_is_no_place_to_go_on_from(tmp_path, caplog):
    about = {"phase": "train", "start": 0, "stop": 4, "batch_size": 2, "identity": {"a": 2}, "means": None}
    Partial(tmp_path).begin(**about, chunks=11, slice_chunks=3, **BATCHES)
    assert place(tmp_path, Slices(text(11), 3, 0, 4, 2)) is None
    assert not (tmp_path / "partial").exists()
    assert not caplog.messages


def test_a_state_names_a_complete_file_at_every_moment(tmp_path):
    partial, folder = Partial(tmp_path), tmp_path / "partial"
    assert partial.read() is None
    about = {"phase": "train", "start": 0, "stop": 4, "batch_size": 1, "identity": {}, "means": None}
    about |= {"chunks": 11, "slice_chunks": 3, **BATCHES}
    partial.begin(**about)
    assert partial.read().done == 0
    with pytest.raises(StoreError, match=r"was interrupted \(0 of 4 slices of the train phase kept\): run the same"):
        read_manifest(tmp_path)
    for done in (1, 2, 3):
        partial.write({"x": torch.ones(done)}, **about, done=done)
        assert {file.name for file in folder.iterdir()} == {"state.json", f"train-1-{done}.safetensors"}
    for name in ("train-1-1.safetensors", "train-1-4.safetensors", ".train-1-4.safetensors.partial"):
        (folder / name).write_text("left by a kill")
    partial.tidy(partial.read())
    assert {file.name for file in folder.iterdir()} == {"state.json", "train-1-3.safetensors"}
    partial.clear()
    assert not folder.exists()


def test_a_state_that_was_altered_is_refused(tmp_path):
    about = {"phase": "train", "start": 0, "stop": 4, "batch_size": 1, "identity": {}, "means": None}
    about |= {"chunks": 11, "slice_chunks": 3, **BATCHES}
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
