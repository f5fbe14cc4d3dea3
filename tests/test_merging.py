"""Merging parts of a collection: each slice counts once, and errors say why. Numbers: test_collecting.py."""

from typing import ClassVar

import pytest
import torch

import collapse
from collapse.errors import StoreError, UsageError
from collapse.numerics.class_moments import ClassMoments
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.statistic import State, ValidationStatistic
from collapse.stores.folding_shards import fold_training
from collapse.stores.manifest import MANIFEST
from collapse.stores.shards import Shard

PARTS = [(1, 3), (2, 3), (3, 3), (1, 2)]
OPTIONS: dict[str, int] = {"max_chunks": 24, "batch_size": 4}


@pytest.fixture(scope="module")
def made(tiny, tmp_path_factory):
    """Return a function that collects a part into a folder of its own."""
    folder, options = tmp_path_factory.mktemp("parts"), {**OPTIONS, **tiny.options()}

    def made(part, **changes):
        at = folder / str(len(list(folder.iterdir())))
        collapse.collect(tiny.model, store=at, part=part, **options | changes)
        return at

    return made


@pytest.fixture(scope="module")
def parts(made):
    """The training parts of :data:`PARTS`."""
    return dict(zip(PARTS, map(made, PARTS), strict=True))


@pytest.fixture(scope="module")
def trained(parts, tmp_path_factory):
    return collapse.merge([parts[part] for part in PARTS[:3]], store=tmp_path_factory.mktemp("trained") / "s")


@pytest.mark.parametrize("target", [(1, 3), (1, 2)])
def test_the_store_may_not_replace_a_part(parts, target):
    with pytest.raises(UsageError, match="holds an unfinished collection, which the store would replace: give another"):
        collapse.merge([parts[each] for each in PARTS[:3]], store=parts[target])
    assert collapse.stores.shards.Part.load(parts[target]).shards


def test_parts_by_their_folders_and_twice_the_same_result(tiny, parts, tmp_path):
    first, *rest = (parts[part] for part in PARTS[:3])
    merged = collapse.merge([first, *map(str, rest)], store=str(tmp_path / "merged"))
    assert len(merged.manifest["provenance"]["parts"]) == 3
    before = (tmp_path / "merged" / MANIFEST).read_bytes()
    assert collapse.merge([*rest, first], store=tmp_path / "merged").digest == merged.digest
    assert (tmp_path / "merged" / MANIFEST).read_bytes() == before
    whole = collapse.collect(tiny.model, store=tmp_path / "merged", **OPTIONS, **tiny.options())
    assert whole.state == "complete"
    assert collapse.merge([*rest, first], store=tmp_path / "merged").digest == whole.digest
    with pytest.raises(UsageError, match="at least two parts are needed, got 1"):
        collapse.merge([first], store=tmp_path / "a")
    for other in ("part_x", merged):
        with pytest.raises(StoreError, match=f"{other} holds no part of a collection: give a folder collected with"):
            collapse.merge([first, other], store=tmp_path / "a")


@pytest.mark.parametrize(
    ("some", "said"),
    [
        ([(2, 3), (3, 3)], r"training slices 1–\d of \d+ are missing .*: collect them \(--part k/n\), then merge all"),
        ([(1, 2), (2, 3), (3, 3)], "/{} and .*/{} overlap: both hold train slices "),
    ],
)
def test_slices_that_are_lacking_or_twice_there_are_named(parts, tmp_path, some, said):
    folders = [parts[part] for part in some]
    with pytest.raises(StoreError, match=said.format(*(each.name for each in folders))):
        collapse.merge(folders, store=tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_parts_of_something_else_are_refused_with_both_values(parts, made, tmp_path):
    mine = parts[1, 3]
    for change, here, there in (({"dtype": "bfloat16"}, "float32", "bfloat16"), ({"max_chunks": 23}, "24", "23")):
        other, (name,) = made((3, 3), **change), change
        for some in ([mine, other], [mine, other, parts[2, 3]]):
            with pytest.raises(StoreError) as raised:
                collapse.merge(some, store=tmp_path / "merged")
            assert "are not parts of one collection: they differ in" in str(raised.value)
            assert f"{name}: {here} ({mine}), {there} ({other})" in str(raised.value)


def test_a_part_that_was_altered_is_not_merged(parts, made, tmp_path):
    other = made((3, 3))
    (file,) = (other / "shards").iterdir()
    before = file.read_bytes()
    file.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    some = [parts[1, 3], parts[2, 3], other]
    with pytest.raises(StoreError, match=rf"{file.name} was altered"):
        collapse.merge(some, store=tmp_path / "merged")
    assert not (tmp_path / "merged").exists()
    file.write_bytes(before)
    assert collapse.merge(some, store=tmp_path / "merged").state == "trained"


def test_a_statistic_that_parts_do_not_share_is_left_out(parts, trained, made, tmp_path, caplog, monkeypatch):
    some = [parts[1, 3], parts[2, 3], made((3, 3), without="covariance")]
    merged = collapse.merge(some, store=tmp_path / "merged")
    assert merged.manifest["statistics"] == merged.manifest["statistics_by"] == {}
    assert "top/covariance.safetensors" not in merged.manifest["files"]
    assert "statistic covariance is excluded: " in caplog.text
    assert "lacks it" in caplog.text
    for name, tensor in merged.tensors("train").items():
        assert torch.equal(tensor, trained.tensors("train")[name])
    monkeypatch.setattr(plugins().statistics["covariance"], "version", 2)
    collapse.merge([parts[part] for part in PARTS[:3]], store=tmp_path / "other")
    assert "has version 1 of it, but the installed plugin has version 2" in caplog.text


class Seen(ValidationStatistic):
    """Samples of the validation pass."""

    name = "seen"
    state: ClassVar = {"total": State((1,), torch.int64)}

    def update(self, batch):
        self.total += len(batch.classes)


def test_statistics_of_the_validation_pass_are_merged(tiny, trained, monkeypatch, tmp_path, caplog):
    monkeypatch.setitem(plugins().statistics, "seen", Seen)

    def validated(name, parts, without=()):
        """Validate a copy of the trained store in parts; ``without`` is of the first part."""
        store = trained.save(tmp_path / name)
        for at, part in enumerate(parts):
            more = {**tiny.options(), "max_chunks": 24, "without": () if at else without}
            store = collapse.collect(tiny.model, store=store.path, part=part, **more)
        return store

    merged, whole = validated("merged", PARTS[:3]), validated("whole", [None])
    assert torch.equal(merged.tensors("seen")["total"], whole.tensors("seen")["total"])
    assert merged.manifest["statistics"] == {"covariance": 1, "seen": 1}
    assert validated("lacking", PARTS[:3], ["seen"]).manifest["statistics"] == {"covariance": 1}
    assert "statistic seen is excluded" in caplog.text


def test_the_row_of_the_head_of_each_class_is_of_a_part_that_saw_it():
    rows = torch.randn(5, 3)

    def shard(run, labels):
        moments = ClassMoments(3)
        moments.add(torch.randn(len(labels), 3), torch.tensor(labels))
        state = moments.state()
        about = {name: {} for name in ("identity", "statistics", "statistics_by", "provenance")}
        about |= {"model": {"name": "m"}, "corpus": {"name": "t"}, "layers": ["top"], "coverage": {"slices": 2}}
        state |= {"weight": rows[state["classes"]], "bias": rows[state["classes"], 0]}
        return Shard("train", *run, about, held=state)

    store = fold_training(None, [shard((0, 1), [4, 0, 2]), shard((1, 2), [2, 1, 1])])
    assert store.tensors("train")["classes"].tolist() == [0, 1, 2, 4]
    assert store.tensors("train")["counts"].tolist() == [1, 2, 2, 1]
    head = store.tensors("classifier")
    assert torch.equal(head["weight"], rows[[0, 1, 2, 4]])
    assert torch.equal(head["bias"], rows[[0, 1, 2, 4], 0])
