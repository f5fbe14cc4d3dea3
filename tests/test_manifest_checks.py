"""A manifest that somebody sealed is refused where it does not follow its schema, or contradicts itself."""

import json
import shutil
from pathlib import Path

import pytest
from golden_store import GOLDEN, seal

import collapse
from collapse.errors import StoreError
from collapse.stores.manifest import MANIFEST
from collapse.stores.manifest_checks import _validator, check_bounds, check_names, check_schema, check_sizes


@pytest.fixture
def golden():
    return json.loads((GOLDEN / MANIFEST).read_text())


@pytest.fixture
def copy(tmp_path):
    return Path(shutil.copytree(GOLDEN, tmp_path / "store"))


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


def nested(depth):
    value = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_bounds_are_exact():
    for fits, too_much, said in (
        ([0] * 199_999, [0] * 200_000, "more than 200,000 values"),
        (nested(32), nested(33), "nested more than 32 levels deep"),
        ({"a": (1 << 63) - 1}, {"a": 1 << 63}, "an integer of more than 64 bits"),
        ([{"a": [-(1 << 63)]}], [{"a": [-(1 << 63) - 1]}], "an integer of more than 64 bits"),
        (1e300, {"b": [*range(5), {"c": 1 << 64}]}, "an integer of more than 64 bits"),
    ):
        check_bounds(fits)
        with pytest.raises(StoreError, match=said):
            check_bounds(too_much)


def test_file_names_stay_inside():
    names = ("top/train.safetensors", "layer_3/my_stat2.safetensors")
    check_names({"files": dict.fromkeys(names)})
    for name in (
        "train.safetensors",
        "toptrain",
        "top/train",
        "top/train.bin",
        "top/.safetensors",
        "/train.safetensors",
        "_/train.safetensors",
        "top/a/b.safetensors",
        "../train.safetensors",
        "top/../x.safetensors",
        "top-1/train.safetensors",
        "top/tr-ain.safetensors",
        "töp/train.safetensors",
        "top/tränk.safetensors",
    ):
        with pytest.raises(StoreError, match="outside the store"):
            check_names({"files": {names[0]: None, name: None}})


def test_the_schema_counts_in_integers(golden):
    _validator.cache_clear()  # mutation tests exchange its code
    check_schema(golden)
    for value in (True, 10.0, "10", None, -1):
        golden["coverage"]["train"]["slices"] = value
        with pytest.raises(StoreError, match=r"at \$\.coverage\.train\.slices"):
            check_schema(golden)


@pytest.mark.parametrize("phase", ["train", "validation"])
def test_runs_of_slices_ascend_without_touching(golden, phase):
    coverage = golden["coverage"][phase]
    del coverage["chunks"], coverage["slice_chunks"]
    for slices, done in ((10, [[0, 10]]), (10, [[1, 2]]), (10, [[0, 4], [5, 6], [8, 10]]), (3, [[2, 3]]), (3, [])):
        coverage.update(slices=slices, done=done)
        check_sizes(golden)
    for done in ([[4, 4]], [[5, 4]], [[0, 11]], [[0, 4], [4, 10]], [[0, 4], [3, 10]], [[5, 6], [0, 1]], [[0, 5]] * 2):
        coverage.update(slices=10, done=done)
        with pytest.raises(StoreError, match=f"coverage of {phase} is out of order"):
            check_sizes(golden)


def test_slices_are_those_of_the_chunks(golden):
    train = golden["coverage"]["train"]
    for chunks, length, slices in ((40, 4, 10), (37, 4, 10), (41, 4, 11), (1, 1024, 1)):
        train.update(chunks=chunks, slice_chunks=length, slices=slices, done=[[0, slices]])
        check_sizes(golden)
        for wrong in (slices - 1, slices + 1):
            train.update(slices=wrong, done=[])
            with pytest.raises(StoreError, match=f"coverage of train does not add up: {wrong} slices of {chunks}"):
                check_sizes(golden)


def tensors(manifest, name):
    return manifest["files"][f"top/{name}.safetensors"]["tensors"]


def sized(golden, classes, dim):
    for each in tensors(golden, "train").values():
        each["shape"] = [classes, dim] if len(each["shape"]) == 2 else [classes]
    tensors(golden, "classifier")["weight"]["shape"] = [classes, dim]
    tensors(golden, "classifier").pop("bias", None)
    return golden


def test_a_store_has_a_class_and_a_dimension(golden):
    check_sizes(sized(golden, 1, 1))
    for classes, dim in ((0, 3), (3, 0), (0, 0)):
        with pytest.raises(StoreError, match="holds no class means"):
            check_sizes(sized(golden, classes, dim))


def test_each_file_holds_its_tensors_and_no_other(golden):
    classifier = tensors(sized(golden, 5, 3), "classifier")
    for dtype in ("F64", "F32", "F16", "BF16"):
        classifier["bias"] = {"dtype": dtype, "shape": [5]}
        check_sizes(golden)
    for wrong, said in (
        ({"dtype": "I64", "shape": [5]}, "bias is I64, and should be F64 or F32 or F16 or BF16"),
        ({"dtype": "F32", "shape": [6]}, r"bias has shape \[6\], and should have \(5\)"),
        ({"dtype": "F32", "shape": [5, 1]}, r"bias has shape \[5, 1\], and should have \(5\)"),
        ({"dtype": "F32", "shape": []}, r"bias has shape \[\], and should have \(5\)"),
    ):
        classifier["bias"] = wrong
        with pytest.raises(StoreError, match=said):
            check_sizes(golden)
    del classifier["bias"]
    for name in ("train", "classifier", "validation"):
        held = tensors(golden, name)
        held["more"] = {"dtype": "F64", "shape": [1]}
        with pytest.raises(StoreError, match=f"top/{name}.safetensors should hold "):
            check_sizes(golden)
        del held["more"]
        for tensor in list(held):
            taken = held.pop(tensor)
            with pytest.raises(StoreError, match=f"top/{name}.safetensors should hold "):
                check_sizes(golden)
            held[tensor] = taken
            held[tensor] = taken | {"dtype": "U8"}
            with pytest.raises(StoreError, match=f"{tensor} is U8, and should be "):
                check_sizes(golden)
            held[tensor] = taken
    tensors(golden, "validation")["block_totals"]["shape"][1] = 3
    with pytest.raises(StoreError, match=r"block_totals has shape \[40, 3\], and should have \(S, 5\)"):
        check_sizes(golden)


def test_only_the_class_means_are_needed(golden):
    del golden["files"]["top/classifier.safetensors"]
    check_sizes(golden)
    tensors(golden, "validation")["counts"]["dtype"] = "F64"
    with pytest.raises(StoreError, match="counts is F64"):  # what follows a file that is absent is checked, too
        check_sizes(golden)
    del golden["files"]["top/validation.safetensors"]
    check_sizes(golden)
    del golden["files"]["top/train.safetensors"]
    with pytest.raises(StoreError, match=r"it has no top/train\.safetensors"):
        check_sizes(golden)


def test_every_layer_is_checked(golden):
    golden["files"]["other/train.safetensors"] = json.loads(json.dumps(golden["files"]["top/train.safetensors"]))
    check_sizes(golden)
    golden["files"]["other/train.safetensors"]["tensors"]["counts"]["dtype"] = "F64"
    with pytest.raises(StoreError, match=r"other/train\.safetensors: counts is F64"):
        check_sizes(golden)
