"""Slices do not depend on the batch size: no chunk is counted twice or skipped when a run is resumed with another."""

from dataclasses import replace

import pytest
from stopping import Stopped, stop_at

import collapse
from collapse.stores.shards import shards_in


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


def test_a_killed_collection_keeps_the_batch_size_that_memory_allowed(tiny, options, tmp_path):
    """Memory runs out, the batch is halved, the run dies: the same command goes on with the halved one."""
    with pytest.raises(Stopped):
        collapse.collect(tiny.model, store=tmp_path / "s", batch_size=6, progress=stop_at("train", 30), **options)
    (shard,) = shards_in(tmp_path / "s", "train")
    halved = replace(shard, header={**shard.header, "batch_size": 3}, held=shard.tensors())
    halved.write(tmp_path / "s")
    for asked, used in ((6, 3), (2, 2)):
        stop = stop_at("train", 60 if asked == 6 else 80)
        with pytest.raises(Stopped):
            collapse.collect(tiny.model, store=tmp_path / "s", batch_size=asked, progress=stop, **options)
        assert shards_in(tmp_path / "s", "train")[0].header["batch_size"] == used
