"""Shards: files that describe and check their content; gaps between them are collected next."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from collapse.errors import StoreError
from collapse.stores.manifest import SHARDS, read_manifest
from collapse.stores.shards import Part, Shard, gaps, remove_shards, set_damaged_shards_aside, shards_in

ABOUT = {
    "identity": {"weights": "w", "chunk_length": 4},
    "model": {"name": "m"},
    "corpus": {"name": "t"},
    "coverage": {"chunks": 11, "slice_chunks": 3, "slices": 4},
    "statistics": {},
    "statistics_by": {},
}


def shard(start=0, stop=2, phase="train", **about):
    held = {"means": torch.randn(5, 3).double(), "classes": torch.arange(5), "other/total": torch.ones(1).bfloat16()}
    return Shard(phase, start, stop, {**ABOUT, **about}, held=held)


def test_a_shard_is_read_as_it_was_written(tmp_path):
    made = shard(2, 3)
    made.write(tmp_path)
    (found,) = shards_in(tmp_path, "train")
    assert (found.start, found.stop, found.header, found.slices_in_phase) == (2, 3, made.header, 4)
    assert found.path.name == "train-3.safetensors"
    for name, tensor in found.tensors().items():
        assert torch.equal(tensor, made.tensors()[name])
        assert tensor.dtype == made.tensors()[name].dtype
    assert shards_in(tmp_path, "validation") == []
    first = found.path.read_bytes()
    made.write(tmp_path)
    assert found.path.read_bytes() == first
    from safetensors import safe_open

    with safe_open(found.path, "pt") as file:  # a plain safetensors file
        assert torch.equal(file.get_tensor("means"), made.tensors()["means"])


def test_a_longer_shard_replaces_the_one_that_it_extends(tmp_path):
    for run in ((0, 1), (0, 3), (3, 4)):
        shard(*run).write(tmp_path)
    assert [(each.start, each.stop) for each in shards_in(tmp_path, "train")] == [(0, 3), (3, 4)]
    remove_shards(tmp_path)
    assert shards_in(tmp_path, "train") == []


def test_a_shard_that_is_folded_while_they_are_listed_is_not_damaged(tmp_path):
    shard().write(tmp_path)
    (tmp_path / SHARDS / "train-3.safetensors").symlink_to(tmp_path / "gone")
    assert [each.start for each in shards_in(tmp_path, "train")] == [0]


def flipped(data, place):
    at = int(place * len(data))
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        *(lambda data, place=place: flipped(data, place) for place in np.linspace(0, 0.999, 14)),
        *(lambda data, size=size: data[:size] for size in (0, 5, 100, -1)),
    ],
)
def test_every_byte_is_checked_and_what_is_damaged_is_set_aside(tmp_path, caplog, damage):
    path = shard().write(tmp_path).path
    path.write_bytes(damage(path.read_bytes()))
    data = path.read_bytes()
    with pytest.raises(StoreError, match=rf"{path} (was altered|is damaged)"):
        [each.tensors() for each in shards_in(tmp_path, "train")]
    other = shard(2, 3).write(tmp_path)
    set_damaged_shards_aside(tmp_path)
    assert [each.path for each in shards_in(tmp_path, "train")] == [other.path]
    assert path.with_suffix(".damaged").read_bytes() == data
    assert "kept as train-1.damaged" in caplog.text


@given(st.lists(st.integers(0, 20), unique=True, max_size=10), st.integers(0, 20), st.integers(0, 20))
def test_gaps_are_what_no_shard_holds(ends, start, stop):
    ends = sorted(ends)
    held = list(zip(ends[::2], ends[1::2], strict=False))
    missing = gaps([shard(low, high) for low, high in held], (start, stop))
    of_gaps = [index for low, high in missing for index in range(low, high)]
    covered = {index for low, high in held for index in range(low, high)}
    assert of_gaps == [index for index in range(start, stop) if index not in covered]


def test_a_part_says_what_it_holds(tmp_path):
    with pytest.raises(StoreError, match="holds no part of a collection"):
        Part.load(tmp_path)
    shard(0, 1).write(tmp_path)
    shard(2, 4).write(tmp_path)
    part = Part.load(tmp_path)
    assert part.covered() == "training slices 1, 3–4 of 4"
    assert (part.model, part.corpus, str(part)) == ("m", "t", str(tmp_path))
    assert (tmp_path / SHARDS).is_dir()
    with pytest.raises(StoreError, match="holds an unfinished collection, or a part of one: run the same"):
        read_manifest(tmp_path)
