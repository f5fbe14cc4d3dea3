"""Checks of a store's manifest and of the shapes and dtypes of its tensors, before any of them is used or allocated.

A checksum detects damage, not tampering: anybody can compute one for any content. So the content is checked as well.
"""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from collapse.errors import StoreError

_INTEGER, _DOUBLE, _FLOATING = ("I64",), ("F64",), ("F64", "F32", "F16", "BF16")
_TENSORS: dict[str, dict[str, tuple[tuple[str, ...], str]]] = {
    "train": {
        "classes": (_INTEGER, "C"),
        "counts": (_INTEGER, "C"),
        "means": (_DOUBLE, "C d"),
        "variances": (_DOUBLE, "C"),
    },
    "classifier": {"weight": (_FLOATING, "C d"), "bias": (_FLOATING, "C")},
    "validation": {
        "classes": (_INTEGER, "V"),
        "counts": (_INTEGER, "V"),
        "agreements": (_INTEGER, "V"),
        "linear_hits": (_INTEGER, "V"),
        "ncc_hits": (_INTEGER, "V"),
        "vocabulary_hits": (_INTEGER, "V"),
        "linear_predictions": (_INTEGER, "V"),
        "ncc_predictions": (_INTEGER, "V"),
        "loss_sum": (_DOUBLE, "V"),
        "block_totals": (_DOUBLE, "S 5"),
        "argmax_without_mean": (_INTEGER, "1"),
    },
}
"""Dtypes and dimensions by file and tensor: C classes, d dimensions, V classes in validation, S blocks."""

_OPTIONAL = {"bias"}


_MOST_VALUES, _MOST_DEPTH, _INTEGER_LIMIT = 200_000, 32, 1 << 63
"""Bounds on a manifest's JSON, which is traversed in Python. A manifest of 10,000 merged parts has 170,000 values."""


def check_bounds(manifest: object) -> None:
    """Raise StoreError if a manifest would take too much time or memory to check."""
    values = 0
    level = [manifest]
    for _ in range(_MOST_DEPTH):
        values += len(level)
        if values > _MOST_VALUES:
            raise StoreError(f"it holds more than {_MOST_VALUES:,} values")
        if any(type(each) is int and not -_INTEGER_LIMIT <= each < _INTEGER_LIMIT for each in level):
            raise StoreError("it holds an integer of more than 64 bits")
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return
    raise StoreError(f"it is nested more than {_MOST_DEPTH} levels deep")


def check_schema(manifest: Mapping[str, Any]) -> None:
    """Raise StoreError if a manifest does not match ``store.schema.json``."""
    from jsonschema.exceptions import best_match

    error = best_match(_validator().iter_errors(manifest))
    if error is not None:
        raise StoreError(f"it is not a manifest of a store: at {error.json_path}, {error.message[:200]}")


def check_names(manifest: Mapping[str, Any]) -> None:
    """Raise StoreError if a manifest names a file outside the store."""
    for name in manifest["files"]:
        layer, slash, file = name.partition("/")
        stem = file.removesuffix(".safetensors")
        words = [layer, stem]
        if not slash or stem == file or not all(w.isascii() and w.replace("_", "").isalnum() for w in words):
            raise StoreError(f"it names a file outside the store: {name!r}")


def check_sizes(manifest: Mapping[str, Any]) -> None:
    """Raise StoreError if a manifest's slices, or the shapes of a layer's tensors, are inconsistent."""
    coverage = manifest["coverage"]
    for phase in ("train", "validation"):
        if coverage[phase] is not None:
            _check_coverage(phase, coverage[phase])
    for layer in {name.split("/")[0] for name in manifest["files"]}:
        _check_tensors(layer, manifest)


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


@cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator, validators

    def is_integer(_: Any, value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)  # not 1.0: range() would reject it

    checker = Draft202012Validator.TYPE_CHECKER.redefine("integer", is_integer)
    schema = json.loads(files("collapse").joinpath("store.schema.json").read_text(encoding="utf-8"))
    return validators.extend(Draft202012Validator, type_checker=checker)(schema)


def _check_coverage(phase: str, coverage: Mapping[str, Any]) -> None:
    slices, done = coverage["slices"], coverage["done"]
    if "chunks" in coverage and slices != -(-coverage["chunks"] // coverage["slice_chunks"]):
        raise StoreError(f"its coverage of {phase} does not add up: {slices} slices of {coverage['chunks']} chunks")
    reached = 0
    for index, (start, stop) in enumerate(done):
        if start >= stop or stop > slices or start < reached + (index > 0):
            raise StoreError(f"its coverage of {phase} is out of order: {done} of {slices} slices")
        reached = stop


def _check_tensors(layer: str, manifest: Mapping[str, Any]) -> None:
    sizes: dict[str, int] = {}
    for name, wanted in _TENSORS.items():
        file = f"{layer}/{name}.safetensors"
        entry = manifest["files"].get(file)
        if entry is None:
            if name == "train":
                raise StoreError(f"it has no {file}")
            continue
        held = entry["tensors"]
        if not set(wanted) - _OPTIONAL <= set(held) <= set(wanted):
            raise StoreError(f"{file} should hold {', '.join(sorted(wanted))}, and holds {', '.join(sorted(held))}")
        for tensor, described in held.items():
            dtypes, dimensions = wanted[tensor]
            _check_shape(f"{file}: {tensor}", described["shape"], dimensions.split(), sizes)
            if described["dtype"] not in dtypes:
                raise StoreError(f"{file}: {tensor} is {described['dtype']}, and should be {' or '.join(dtypes)}")
    if sizes["C"] < 1 or sizes["d"] < 1:
        raise StoreError(f"{layer}/train.safetensors holds no class means")


def covered_chunks(coverage: Mapping[str, Any]) -> list[int]:
    """Return the number of chunks in each run of slices that a phase covers.

    >>> covered_chunks({"chunks": 10, "slice_chunks": 4, "done": [[0, 1], [2, 3]]})
    [4, 2]
    """
    length, chunks = coverage["slice_chunks"], coverage["chunks"]
    return [min(stop * length, chunks) - start * length for start, stop in coverage["done"]]


def _check_shape(where: str, shape: list[int], dimensions: list[str], sizes: dict[str, int]) -> None:
    """Compare a shape with the known dimensions, and record the new ones in ``sizes``."""
    expected = [int(d) if d.isdigit() else sizes.get(d) for d in dimensions]
    if len(shape) != len(expected) or any(e not in (None, s) for e, s in zip(expected, shape, strict=True)):
        wanted = ", ".join(str(d if e is None else e) for d, e in zip(dimensions, expected, strict=True))
        raise StoreError(f"{where} has shape {shape}, and should have ({wanted})")
    sizes |= dict(zip(dimensions, shape, strict=True))
