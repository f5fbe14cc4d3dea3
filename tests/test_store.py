"""The store format, version 2: a golden store written once must open, verify, measure and be written the same."""

import json
import shutil
from pathlib import Path

import pytest
from golden_store import GOLDEN
from safetensors.torch import load_file, save_file

import collapse
from collapse.errors import StoreError
from collapse.measurement.last_results import keep_row, kept_row
from collapse.stores.lock import locked
from collapse.stores.manifest import MANIFEST, render, sealed
from collapse.stores.store import Store
from collapse.stores.tensor_files import described


@pytest.fixture
def copy(tmp_path) -> Path:
    return Path(shutil.copytree(GOLDEN, tmp_path / "store"))


def test_the_golden_store_opens_and_measures_the_same():
    store = collapse.load(GOLDEN)
    assert store.state == "complete"
    assert store.verify() == []
    expected = json.loads((GOLDEN.parent / "measured-v2.json").read_text())
    row = collapse.measure(store)
    assert row.store == expected["store"]
    for name, value in expected["measurements"].items():
        assert row.measurements[name] == pytest.approx(value, rel=1e-10, abs=1e-13), name


def test_the_golden_store_is_written_to_the_same_bytes(tmp_path):
    again = collapse.load(GOLDEN).save(tmp_path / "again")
    for file in GOLDEN.rglob("*"):
        if file.is_file():
            assert (tmp_path / "again" / file.relative_to(GOLDEN)).read_bytes() == file.read_bytes(), file
    assert again.digest == collapse.load(GOLDEN).digest


def test_a_file_that_another_program_wrote_is_copied_as_it_is(copy, tmp_path):
    file = copy / "top" / "train.safetensors"
    save_file(load_file(file), file, metadata={"format": "pt"})
    manifest = json.loads((copy / MANIFEST).read_text())
    content = {k: v for k, v in manifest.items() if k not in ("digest", "checksum", "provenance")}
    content["files"]["top/train.safetensors"] = described(file.read_bytes())
    (copy / MANIFEST).write_bytes(render(sealed(content, {})))
    saved = collapse.load(copy).save(tmp_path / "again")
    assert saved.verify() == []
    assert (saved.path / "top" / "train.safetensors").read_bytes() == file.read_bytes()


def test_provenance_does_not_change_the_digest(copy):
    manifest = json.loads((copy / MANIFEST).read_text())
    content = {k: v for k, v in manifest.items() if k not in ("digest", "checksum", "provenance")}
    (copy / MANIFEST).write_bytes(render(sealed(content, {"finished": "another day"})))
    assert collapse.load(copy).digest == collapse.load(GOLDEN).digest


def test_a_newer_version_says_how_to_read_it(copy):
    manifest = json.loads((copy / MANIFEST).read_text())
    content = {k: v for k, v in manifest.items() if k not in ("digest", "checksum", "provenance")}
    (copy / MANIFEST).write_bytes(render(sealed(content | {"version": 3}, {})))
    with pytest.raises(StoreError, match="format 3, and this collapse reads 2: pip install -U"):
        collapse.load(copy)


@pytest.mark.parametrize("name", ["../outside.safetensors", "/etc/passwd", "top/../../x", "a/b/c", "top\\x"])
def test_a_manifest_cannot_name_a_file_outside(copy, name):
    manifest = json.loads((copy / MANIFEST).read_text())
    content = {k: v for k, v in manifest.items() if k not in ("digest", "checksum", "provenance")}
    content["files"] = {**content["files"], name: content["files"]["top/train.safetensors"]}
    (copy / MANIFEST).write_bytes(render(sealed(content, {})))
    with pytest.raises(StoreError, match="does not match"):
        collapse.load(copy)


def test_a_file_that_is_missing_truncated_or_not_named_is_told(copy):
    (copy / "top" / "strange.safetensors").write_bytes(b"x")
    (copy / "top" / "covariance.safetensors").unlink()
    train = copy / "top" / "train.safetensors"
    train.write_bytes(train.read_bytes()[:-8])
    problems = Store.load(copy).verify()
    assert [Path(each.split(" ")[0]).name for each in problems] == [
        "covariance.safetensors",
        "train.safetensors",
        "strange.safetensors",
    ]
    assert ["missing" in problems[0], "truncated" in problems[1], "not in the manifest" in problems[2]] == [True] * 3


def test_results_are_kept_and_ignored_when_off(copy):
    store = collapse.load(copy)
    assert kept_row(store) is None
    row = collapse.measure(store)
    keep_row(store, row)
    assert kept_row(collapse.load(copy)) == collapse.Row.from_dict(row.to_dict())
    file = copy / "results.json"
    file.write_text(file.read_text().replace('"min_count":1', '"min_count":2'))
    assert kept_row(collapse.load(copy)) is None


def test_results_are_kept_under_the_lock_and_nothing_of_a_killed_process_stays(copy):
    store = collapse.load(copy)
    row = collapse.measure(store)
    (copy / ".results.json.partial").write_bytes(b"{")  # by a process that was killed
    with locked(copy):
        keep_row(store, row)
        assert kept_row(store) is None
    keep_row(store, row)
    assert kept_row(store) == collapse.Row.from_dict(row.to_dict())
    assert not [each.name for each in copy.iterdir() if each.name.startswith(".")]
