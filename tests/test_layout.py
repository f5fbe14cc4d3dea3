"""A manifest that somebody sealed is refused where it does not follow its schema, or contradicts itself."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

import collapse
from collapse.errors import StoreError
from collapse.files import described
from collapse.manifest import MANIFEST, render, sealed

GOLDEN = Path(__file__).parent / "golden" / "store-v1"


@pytest.fixture
def copy(tmp_path):
    return Path(shutil.copytree(GOLDEN, tmp_path / "store"))


def seal(store, change):
    """Change a manifest and seal it again, as its maker could."""
    manifest = json.loads((store / MANIFEST).read_text())
    change(manifest)
    content = {key: value for key, value in manifest.items() if key not in ("digest", "checksum", "provenance")}
    (store / MANIFEST).write_bytes(render(sealed(content, manifest["provenance"])))


def tensors_of(name):
    return lambda manifest: manifest["files"][f"top/{name}.safetensors"]["tensors"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m["model"].update(name=7), r"at \$\.model\.name, 7 is not of type 'string'"),
        (lambda m: m["files"]["top/train.safetensors"].update(size=-1), r"-1 is less than the minimum"),
        (lambda m: m["coverage"]["train"].update(slices=True), r"coverage\.train\.slices, True is not of type"),
        (lambda m: m["coverage"]["train"].update(slices=10.0), r"10\.0 is not of type 'integer'"),
        (lambda m: m["coverage"]["train"].update(slices=11), "11 slices of 40 chunks"),
        (lambda m: m["coverage"]["train"].update(done=[[0, 4], [3, 10]]), "coverage of train is out of order"),
        (lambda m: m["coverage"]["train"].update(done=[[0, 12]]), "coverage of train is out of order"),
        (lambda m: m["files"].pop("top/train.safetensors"), "it has no top/train.safetensors"),
        (lambda m: tensors_of("train")(m).pop("means"), "should hold classes, counts, means, variances"),
        (lambda m: tensors_of("train")(m)["means"].update(shape=[268]), r"means has shape \[268\].*\(268, d\)"),
        (lambda m: tensors_of("train")(m)["counts"].update(dtype="F64"), "counts is F64, and should be I64"),
        (lambda m: tensors_of("classifier")(m)["weight"].update(shape=[268, 47]), r"should have \(268, 48\)"),
        (lambda m: tensors_of("validation")(m)["chunk_totals"].update(shape=[39, 4]), "39 chunks where 40"),
        (lambda m: m["provenance"].update(command=["rm"]), r"provenance\.command"),
    ],
)
def test_a_sealed_manifest_must_make_sense(copy, change, said):
    seal(copy, change)
    with pytest.raises(StoreError, match=said) as caught:
        collapse.load(copy)
    assert str(copy / MANIFEST) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_fields_that_are_not_known_are_ignored(copy):
    seal(copy, lambda manifest: manifest["model"].update(family="gpt_neo"))
    assert collapse.measure(collapse.load(copy)).measurements


@pytest.mark.parametrize(
    ("tensor", "value", "said"), [("classes", 0, "do not ascend"), ("counts", 0, "too few samples")]
)
def test_tensors_that_no_collection_writes_are_refused(copy, tensor, value, said):
    file = copy / "top" / "train.safetensors"
    tensors = {name: each.clone() for name, each in load_file(file).items()}
    tensors[tensor][3] = value
    save_file(tensors, file)
    seal(copy, lambda manifest: manifest["files"].update({"top/train.safetensors": described(file.read_bytes())}))
    with pytest.raises(StoreError, match=said):
        collapse.load(copy).statistics()
