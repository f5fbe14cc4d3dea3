"""Manifests: their bytes, what is refused when they are read, and identities compared field by field."""

import json
import re
import shutil
from datetime import UTC, datetime

import pytest
from golden_store import GOLDEN

from collapse.errors import StoreError
from collapse.stores.files import sha256_of
from collapse.stores.manifest import (
    MANIFEST,
    differences,
    is_ours,
    is_store,
    now,
    read_manifest,
    render,
    sealed,
    spans,
)


@pytest.fixture
def golden():
    return json.loads((GOLDEN / MANIFEST).read_text())


@pytest.fixture
def store(tmp_path):
    shutil.copy(GOLDEN / MANIFEST, tmp_path / MANIFEST)
    return tmp_path


def content(manifest):
    return {key: value for key, value in manifest.items() if key not in ("digest", "checksum", "provenance")}


def test_a_manifest_is_rendered_to_known_bytes():
    made = sealed({"b": [1], "a": {}}, {"when": "now"})
    assert made["digest"] == sha256_of({"a": {}, "b": [1]})
    assert made["checksum"] == sha256_of({key: value for key, value in made.items() if key != "checksum"})
    assert render({"b": [1], "a": {}}) == b'{\n "a": {},\n "b": [\n  1\n ]\n}\n'
    with pytest.raises(ValueError, match="not JSON compliant"):
        render({"a": float("nan")})


def test_a_manifest_is_read_as_it_was_written(store, golden):
    assert read_manifest(store) == golden
    assert is_store(store)
    assert is_store(str(store))
    (store / MANIFEST).unlink()
    assert not is_store(store)


def test_where_there_is_none_it_is_said_why(tmp_path):
    with pytest.raises(StoreError, match=r"there is no store in .* \(no collapse\.json\)"):
        read_manifest(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(StoreError, match=r"it is a model, so collect it first: collapse collect .*collapse\.collect\("):
        read_manifest(tmp_path)
    (tmp_path / "stores" / "epoch-1").mkdir(parents=True)
    (tmp_path / "stores" / "epoch-1" / MANIFEST).touch()
    with pytest.raises(StoreError, match=r"there is no store in .*; there is .*stores/epoch-1$"):
        read_manifest(tmp_path)
    (tmp_path / "shards").mkdir()
    with pytest.raises(StoreError, match="holds a part of a collection, or one that was interrupted"):
        read_manifest(tmp_path)


OTHERS = {
    "another format": (lambda m: m.update(format="other"), "is not a manifest of a collapse store"),
    "a version in words": (lambda m: m.update(version="1"), "is not a manifest of a collapse store"),
    "version 0": (lambda m: m.update(version=0), "is not a manifest of a collapse store"),
    "a newer version": (lambda m: m.update(version=3), "is of store format 3, and this collapse reads 2: pip"),
    "no version": (lambda m: m.pop("version"), "was altered or is damaged"),
    "no files": (lambda m: m.pop("files"), "is not a manifest of a store"),
    "a name outside": (lambda m: m["files"].update({"../x": m["files"]["top/train.safetensors"]}), "does not match"),
    "a size that is none": (
        lambda m: m["files"]["top/train.safetensors"].update(size=-1),
        "is not a manifest of a store",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_sealed_manifest_of_something_else_is_refused(store, golden, name):
    change, said = OTHERS[name]
    change(golden)
    (store / MANIFEST).write_bytes(render(sealed(content(golden), golden["provenance"])))
    with pytest.raises(StoreError, match=said):
        read_manifest(store)


def damaged(golden):
    """Manifests that are not what was sealed."""
    yield render(golden | {"digest": sha256_of(1)})
    inner = {**golden, "digest": sha256_of(1)}
    yield render(inner | {"checksum": sha256_of({key: value for key, value in inner.items() if key != "checksum"})})
    yield render(golden | {"checksum": sha256_of(1)})
    yield render(golden | {"provenance": {"command": "another"}})
    yield render(golden | {"model": {"name": "another"}})
    yield render({key: value for key, value in golden.items() if key != "checksum"})
    yield render({key: value for key, value in golden.items() if key != "digest"})
    yield render(golden)[:-1]
    yield render(golden) + b"\n"
    yield json.dumps(golden, sort_keys=True).encode()
    yield json.dumps({key: golden[key] for key in sorted(golden, reverse=True)}, indent=1).encode() + b"\n"
    yield render(golden).replace(b'"version": 2', b'"version": NaN')
    yield render(golden).replace(b'"version": 2', b'"version": 2, "of": NaN')
    yield b"[]"
    yield b"{"
    yield b""


def test_what_is_not_what_was_sealed_is_refused(store, golden):
    for data in damaged(golden):
        (store / MANIFEST).write_bytes(data)
        with pytest.raises(StoreError, match=r"collapse\.json (was altered or is damaged|is not a manifest)"):
            read_manifest(store)


def test_differences_name_each_field_with_both_values():
    long = "x" * 61
    for mine, theirs, expected in (
        ({}, {}, []),
        ({"a": 1}, {"a": 1, "b": None}, []),  # a field that an earlier version did not have
        ({"a": 1}, {"a": True}, ["a: 1 and true"]),
        ({"a": 1}, {"a": 1.0}, ["a: 1 and 1.0"]),
        ({"a": 1}, {"a": "1"}, ["a: 1 and 1"]),
        ({"b": 1, "a": None}, {"b": 2, "a": [1]}, ["a: none and [1]", "b: 1 and 2"]),
        ({"a": {"b": {"c": 1}}}, {"a": {"b": {"c": 2, "d": 3}}}, ["a.b.c: 1 and 2", "a.b.d: none and 3"]),
        ({"a": {"b": 1}}, {"a": None}, ['a: {"b": 1} and none']),
        ({"a": None}, {"a": {}}, ["a: none and {}"]),
        ({"a": [1, 2]}, {"a": [2, 1]}, ["a: [1, 2] and [2, 1]"]),
        ({"a": long}, {"a": long[1:]}, [f"a: {'x' * 12}… and {'x' * 60}"]),
        ({"a": f"{long} "}, {"a": None}, [f"a: {long}  and none"]),
    ):
        assert differences(mine, theirs) == expected


def test_slices_are_told_from_1():
    for done, expected in (
        ([], "none"),
        ([[0, 1]], "1"),
        ([[0, 2]], "1–2"),
        ([[0, 4], [6, 7], [8, 10]], "1–4, 7, 9–10"),
    ):
        assert spans(done) == expected


def test_times_are_utc_to_the_second():
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", now())
    assert abs((datetime.fromisoformat(now()) - datetime.now(UTC)).total_seconds()) < 5


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ('{"store": "a", "row": {}}', True),
        ('{"store": "a", "origin": "b"}', True),
        ('{"store": "a"}', False),
        ('{"row": {}}', False),
        ('{"origin": "b"}', False),
        ('["store", "row"]', False),
        ("{", False),
    ],
)
def test_a_file_beside_the_tensors_is_ours_by_what_it_holds(tmp_path, text, ours):
    file = tmp_path / "results.json"
    assert is_ours(file)
    file.write_text(text)
    assert is_ours(file) == ours
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nothing")
    assert not is_ours(link)
