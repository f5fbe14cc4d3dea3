"""The store format, version 3: a golden store can be opened, measured and written unchanged; others are refused."""

import json
import shutil
from pathlib import Path

import pytest
from golden_store import GOLDEN, seal
from safetensors.torch import load_file, save_file

import collapse
from collapse.errors import StoreError
from collapse.measurement.last_results import keep_row, kept_row
from collapse.stores.lock import locked
from collapse.stores.manifest import MANIFEST, read_manifest, render
from collapse.stores.store import Store
from collapse.stores.tensor_files import manifest_entry


@pytest.fixture
def copy(tmp_path) -> Path:
    return Path(shutil.copytree(GOLDEN, tmp_path / "store"))


def test_the_golden_store_opens_and_measures_the_same():
    store = collapse.load(GOLDEN)
    assert store.state == "complete"
    assert store.verify() == []
    expected = json.loads((GOLDEN.parent / "measured-v3.json").read_text())
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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.update(version=4), "has store format 4, but this version of collapse reads 3: run pip install -U"),
        (lambda m: m.pop("version"), "was altered or is damaged"),
        *(
            (lambda m, name=name: m["files"].update({name: m["files"]["top/train.safetensors"]}), "was altered")
            for name in ("../outside.safetensors", "/etc/passwd", "a/b/c", "top\\x")
        ),
    ],
)
def test_a_manifest_of_another_version_or_with_files_elsewhere_is_refused(copy, change, said):
    seal(copy, change)
    with pytest.raises(StoreError, match=said) as caught:
        collapse.load(copy)
    assert str(copy / MANIFEST) in str(caught.value)


def test_a_manifest_that_is_not_what_was_sealed_is_refused(copy):
    golden = json.loads((copy / MANIFEST).read_text())
    for data in (
        render(golden | {"digest": "0" * 64}),
        render(golden | {"provenance": {"command": "another"}}),
        render({key: value for key, value in golden.items() if key != "checksum"}),
        render(golden) + b"\n",
        render(golden).replace(b'"version": 3', b'"version": 3, "of": NaN'),
        b"[]",
        b"{",
    ):
        (copy / MANIFEST).write_bytes(data)
        with pytest.raises(StoreError, match=r"collapse\.json was altered or is damaged: delete"):
            collapse.load(copy)


def test_where_there_is_no_store_it_is_said_what_is_there(tmp_path):
    with pytest.raises(StoreError, match=r"there is no store in .* \(no collapse\.json\)$"):
        read_manifest(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(StoreError, match=r"this is a model; collect it first with .*collapse\.collect\("):
        read_manifest(tmp_path)
    (tmp_path / "stores" / "epoch-1").mkdir(parents=True)
    (tmp_path / "stores" / "epoch-1" / MANIFEST).touch()
    with pytest.raises(StoreError, match=r"there is no store in .*: give one of .*stores/epoch-1$"):
        read_manifest(tmp_path)


def forge(store, name, change):
    """Change the tensors of a file and seal them."""
    file = store / "top" / f"{name}.safetensors"
    tensors = {key: each.clone() for key, each in load_file(file).items()}
    change(tensors)
    save_file(tensors, file)
    entry = {f"top/{name}.safetensors": manifest_entry(file.read_bytes())}
    seal(store, lambda manifest: manifest["files"].update(entry))


def put(tensor, value, at=3):
    return lambda tensors: tensors[tensor].__setitem__(at, value)


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        ("train", put("classes", 0), "its class ids are not in ascending order"),
        ("train", put("means", float("nan")), "means has values that are not finite"),
        ("classifier", put("weight", float("nan")), "weight has values that are not finite"),
        ("validation", put("loss_sum", float("nan")), "loss_sum has values that are not finite"),
        ("train", put("counts", 1 << 20), r"were collected: samples were counted twice"),
        ("validation", put("counts", 1 << 20), "samples were counted twice or skipped"),
    ],
)
def test_what_no_collection_writes_is_refused(copy, file, change, said):
    forge(copy, file, change)
    with pytest.raises(StoreError, match=said) as caught:
        collapse.measure(collapse.load(copy))
    assert f"{file}.safetensors" in str(caught.value)
    assert any(said in problem for problem in collapse.load(copy).verify())


def test_a_wrong_covariance_costs_its_own_measurement(copy):
    honest = collapse.measure(collapse.load(copy)).measurements
    forge(copy, "covariance", put("scatter", float("nan"), at=(0, 1)))
    row = collapse.measure(collapse.load(copy))
    assert row.measurements == honest | {"nc1.covariance_ratio": None}


def test_a_file_that_is_missing_or_truncated_is_told(copy):
    (copy / "top" / "covariance.safetensors").unlink()
    train = copy / "top" / "train.safetensors"
    train.write_bytes(train.read_bytes()[:-8])
    missing, truncated = Store.load(copy).verify()
    assert "covariance.safetensors is missing" in missing
    assert "train.safetensors has" in truncated


def test_results_are_kept_under_the_lock_and_ignored_when_off(copy):
    store = collapse.load(copy)
    row = collapse.measure(store)
    (copy / ".results.json.partial").write_bytes(b"{")  # by a process that was killed
    with locked(copy):
        keep_row(store, row)
        assert kept_row(store) is None
    keep_row(store, row)
    assert kept_row(store) == collapse.Row.from_dict(row.to_dict())
    assert not [each.name for each in copy.iterdir() if each.name.startswith(".")]
    file = copy / "results.json"
    file.write_text(file.read_text().replace('"min_count":1', '"min_count":2'))
    assert kept_row(collapse.load(copy)) is None
