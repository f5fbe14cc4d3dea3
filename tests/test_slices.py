"""Slices do not depend on the batch size: no chunk is counted twice or skipped when a run is resumed with another."""

import pytest
from stopping import Stopped, stop_at

import collapse


def counts(store, name):
    """The classes that occur, and how often."""
    tensors = store.tensors(name)
    return {c: n for c, n in zip(tensors["classes"].tolist(), tensors["counts"].tolist(), strict=True) if n}


@pytest.fixture(scope="module")
def options(tiny):
    return {**tiny.options(), "max_chunks": 100}


@pytest.fixture(scope="module")
def whole(tiny, options, tmp_path_factory):
    return collapse.collect(tiny.model, store=tmp_path_factory.mktemp("whole") / "store", **options)


def same(one, other):
    for name in ("train", "validation"):
        assert counts(one, name) == counts(other, name)
    assert len(one.tensors("validation")["block_totals"]) == len(other.tensors("validation")["block_totals"])


@pytest.mark.parametrize(("first", "second", "phase"), [(1, 7, "train"), (7, 1, "train"), (2, "auto", "validation")])
def test_resumed_with_another_batch_size_counts_every_chunk_once(tiny, options, whole, tmp_path, first, second, phase):
    with pytest.raises(Stopped):
        collapse.collect(tiny.model, store=tmp_path / "s", batch_size=first, progress=stop_at(phase, 30), **options)
    store = collapse.collect(tiny.model, store=tmp_path / "s", batch_size=second, **options)
    assert not store.verify()
    same(store, whole)
