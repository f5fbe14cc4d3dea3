"""What a fault of our own could write is refused when it is read: each in one line that names the file."""

import json
import os
import shutil
from pathlib import Path

import pytest
from golden_store import GOLDEN, seal
from safetensors.torch import load_file, save_file

import collapse
from collapse.errors import StoreError
from collapse.stores.manifest import MANIFEST
from collapse.stores.tensor_files import described


@pytest.fixture
def copy(tmp_path):
    return Path(shutil.copytree(GOLDEN, tmp_path / "store"))


def forge(store, name, change):
    """Change the tensors of a file and seal them."""
    file = store / "top" / f"{name}.safetensors"
    tensors = {key: each.clone() for key, each in load_file(file).items()}
    change(tensors)
    save_file(tensors, file)
    seal(store, lambda manifest: manifest["files"].update({f"top/{name}.safetensors": described(file.read_bytes())}))


def put(tensor, value, at=3):
    return lambda tensors: tensors[tensor].__setitem__(at, value)


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        ("train", put("classes", 0), "its classes do not ascend"),
        ("train", put("classes", -1, at=0), "its classes do not ascend"),
        ("train", put("means", float("nan")), "means are not all finite"),
        ("train", put("variances", float("inf")), "variances are not all finite"),
        ("classifier", put("weight", float("nan")), "weight are not all finite"),
        ("validation", put("loss_sum", float("nan")), "loss_sum are not all finite"),
        ("train", put("counts", 1 << 20), "samples where its 40 chunks have"),
        ("validation", put("counts", 1 << 20), "chunks were counted twice or skipped"),
    ],
)
def test_what_no_collection_writes_is_refused(copy, file, change, said):
    forge(copy, file, change)
    with pytest.raises(StoreError, match=said) as caught:
        collapse.measure(collapse.load(copy))
    assert f"{file}.safetensors" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert any(said in problem for problem in collapse.load(copy).verify())


def test_large_numbers_whose_sum_overflows_are_finite(copy):
    forge(copy, "train", lambda tensors: tensors["means"][:2, 0].fill_(1.7e308))
    assert collapse.load(copy).statistics().n_classes > 1


@pytest.mark.parametrize("change", [put("scatter", float("nan"), at=(0, 1)), put("samples", 7, at=0)])
def test_a_wrong_covariance_costs_its_own_measurement(copy, change):
    honest = collapse.measure(collapse.load(copy)).measurements
    forge(copy, "covariance", change)
    row = collapse.measure(collapse.load(copy))
    assert row.measurements == honest | {"nc1.covariance_ratio": None}
    assert [note.kind for note in row.notes if note.measurement == "nc1.covariance_ratio"] == ["error"]


def test_a_manifest_follows_its_schema_and_names_no_file_outside(copy):
    manifest = json.loads((copy / MANIFEST).read_text())
    for change, said in (
        (lambda m: m["model"].update(name=7), r"at \$\.model\.name, 7 is not of type 'string'"),
        (lambda m: m["files"].pop("top/train.safetensors"), "'top/train.safetensors' is a required property"),
        (lambda m: m["files"].update({"../x.safetensors": m["files"]["top/train.safetensors"]}), "does not match"),
    ):
        seal(copy, change)
        with pytest.raises(StoreError, match=said) as caught:
            collapse.load(copy)
        assert str(copy / MANIFEST) in str(caught.value)
        seal(copy, lambda m: m.update(manifest))
        for field in ("files", "model"):
            seal(copy, lambda m, field=field: m.update({field: manifest[field]}))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs")
def test_a_fifo_in_the_place_of_a_file_is_refused_at_once(copy, tmp_path):
    for name in ("top/train.safetensors", MANIFEST):
        made = shutil.copytree(copy, tmp_path / name.replace("/", "-"))
        (made / name).unlink()
        os.mkfifo(made / name)
        with pytest.raises(StoreError):
            collapse.measure(collapse.load(made))
