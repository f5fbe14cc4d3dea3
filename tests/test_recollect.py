"""--recollect replaces a store only when the new one is complete; folders with other files are not changed."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from safetensors.torch import save_file
from stopping import Stopped, stop_at

import collapse
from collapse.errors import StoreError, UsageError
from collapse.stores import store_folder as places
from collapse.stores.manifest import MANIFEST
from collapse.stores.store import Store
from collapse.testing import random_features


class Budget:
    """Allow a number of changes of a folder, and end the process before the next one."""

    def __init__(self, steps):
        self.steps = steps

    def dying(self, function):
        def counted(*words, **more):
            if self.steps == 0:
                raise Stopped
            self.steps -= 1
            return function(*words, **more)

        return counted


def content(folder):
    return {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture(scope="module")
def options(tiny):
    return {**tiny.options(), "max_chunks": 60}


@pytest.fixture(scope="module")
def made(tiny, options, tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "store"
    return collapse.collect(tiny.model, store=folder, without=["covariance"], **options)


@pytest.fixture
def store(made, tmp_path):
    return Path(shutil.copytree(made.path, tmp_path / "store"))


def test_it_replaces_an_altered_store(tiny, made, options, store):
    file = store / "top" / "train.safetensors"
    file.write_bytes(file.read_bytes()[:-9] + b"\x11" * 9)
    with pytest.raises(StoreError, match=r"was altered: .*; pull the store again, or run .* with --recollect$"):
        collapse.measure(collapse.collect(tiny.model, store=store, **options))
    mended = collapse.collect(tiny.model, store=store, without=["covariance"], recollect=True, **options)
    assert mended.digest == made.digest
    assert mended.verify() == []


def test_it_is_resumed_and_then_takes_the_place(tiny, options, store, caplog):
    (store / "notes.txt").write_text("mine")
    old = content(store)
    with pytest.raises(UsageError):
        collapse.collect(tiny.model, store=store, device="cdua", recollect=True, **options)
    assert content(store) == old
    for phase in ("train", "validation"):
        with pytest.raises(Stopped):
            collapse.collect(tiny.model, store=store, recollect=True, progress=stop_at(phase, 30), **options)
        assert {name: data for name, data in content(store).items() if name in old} == old
        assert Store.load(store).check().state == "complete"
    caplog.set_level("INFO")
    new = collapse.collect(tiny.model, store=store, recollect=True, **options)
    assert any("resuming after slice" in each for each in caplog.messages)
    assert new.state == "complete"
    assert "covariance" in new.manifest["statistics"]
    assert not new.verify()
    assert {each.name for each in store.iterdir()} == {MANIFEST, "top", "notes.txt"}


def test_a_store_of_something_else_is_not_replaced(tiny, options, store):
    before = content(store)
    for other, said in (
        ({"text": str(tiny.validation)}, r"corpus\.sha256"),
        ({"validation_text": None}, "validation"),
        ({"dtype": "bfloat16"}, r"dtype: float32 \(stored\), bfloat16 \(requested\)"),
    ):
        with pytest.raises(StoreError, match=rf"would overwrite another store: .*{said}.*Choose another --store"):
            collapse.collect(tiny.model, store=store, recollect=True, **options | other)
    with pytest.raises(UsageError, match="no corpus"):
        collapse.collect(tiny.model, store=store, recollect=True)
    assert content(store) == before


def test_a_features_store_is_reused_with_later_plugins_and_replaced_when_asked(tmp_path):
    file, other, folder = tmp_path / "f.safetensors", tmp_path / "g.safetensors", tmp_path / "s"
    save_file(random_features(5, 3, 40), file)
    save_file(random_features(6, 3, 40), other)
    first = collapse.collect(file, store=folder, without="covariance")  # as if its plugin were installed later
    assert collapse.collect(file, store=folder).digest == first.digest
    with pytest.raises(StoreError, match=r"differs in features: .*Choose another --store"):
        collapse.collect(other, store=folder, recollect=True)
    new = collapse.collect(file, store=folder, recollect=True)
    assert "covariance" in new.manifest["statistics"]
    assert new.verify() == []
    assert {each.name for each in folder.iterdir()} == {MANIFEST, "top"}
    assert collapse.collect(file, store=folder, without="covariance").digest == new.digest  # which holds it


def test_an_unfinished_collection_of_something_else_is_kept(tiny, options, tmp_path):
    with pytest.raises(Stopped):
        collapse.collect(tiny.model, store=tmp_path / "u", progress=stop_at("train", 30), **options)
    before = content(tmp_path / "u")
    for again in (False, True):
        with pytest.raises(StoreError, match=r"holds an unfinished collection that differs in dtype: .*/u/shards"):
            collapse.collect(tiny.model, store=tmp_path / "u", recollect=again, dtype="bfloat16", **options)
    assert content(tmp_path / "u") == before


def test_an_unfinished_recollection_of_something_else_is_discarded(tiny, options, tmp_path, caplog):
    folder = tmp_path / "r"
    with pytest.raises(Stopped):
        collapse.collect(tiny.model, store=folder, progress=stop_at("train", 30), recollect=True, **options)
    done = collapse.collect(tiny.model, store=folder, recollect=True, dtype="bfloat16", **options)
    (said,) = (each for each in caplog.messages if "discarding" in each)
    differ = "dtype: float32 (stored), bfloat16 (requested)"
    assert said == (
        f"{folder}: discarding an unfinished --recollect that differs in {differ}. Collecting again from the start"
    )
    assert done.identity["dtype"] == "bfloat16"
    assert {each.name for each in folder.iterdir()} == {MANIFEST, "top"}


def test_killed_at_any_file_of_the_replacement_the_next_command_finishes_it(
    tiny, options, store, tmp_path, monkeypatch
):
    """The process dies before each change of the folder in turn; then the next command that writes finds a store."""
    new = collapse.collect(tiny.model, store=tmp_path / "new", **options)
    old = Store.load(store)
    seen = set()
    for step in range(40):
        folder = Path(shutil.copytree(store, tmp_path / f"{step}"))
        shutil.copytree(tmp_path / "new", folder / places.RECOLLECTED)
        left = Budget(step)
        with monkeypatch.context() as patch, suppress(Stopped):
            for module, name in ((Path, "replace"), (Path, "unlink"), (os, "rmdir")):
                patch.setattr(module, name, left.dying(getattr(module, name)))
            places.replace_by_recollected(folder)
        with suppress(StoreError):  # between two stores there is none
            assert Store.load(folder).verify() == []
        with places.locked_store_folder(folder):
            pass
        there = Store.load(folder)
        assert there.digest in (old.digest, new.digest)
        assert there.verify() == []
        seen.add(there.digest)
        if left.steps:
            break
    assert left.steps
    assert len(seen) == 2


@pytest.mark.parametrize("file", ["top/weights.safetensors", "shards/a.safetensors", "notes.txt"])
def test_folders_with_other_things_are_left_alone(tiny, options, made, tmp_path, file):
    folder = tmp_path / "mine"
    (folder / file).parent.mkdir(parents=True)
    (folder / file).write_text("precious")
    for command in (
        lambda: collapse.collect(tiny.model, store=folder, **options),
        lambda: collapse.collect(tiny.model, store=folder, recollect=True, **options),
        lambda: made.save(folder),
    ):
        with pytest.raises(StoreError, match=f"{folder} holds files not written by collapse"):
            command()
    assert {str(each) for each in content(folder)} == {file}
