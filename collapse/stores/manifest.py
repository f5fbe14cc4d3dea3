"""The manifest of a store, ``collapse.json``: sealed, written, read and compared. Format version 2."""

import json
from collections.abc import Mapping, Set
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from collapse.core.reading import read_bytes, read_json
from collapse.errors import StoreError
from collapse.stores.files import canonical, sha256_of

MANIFEST = "collapse.json"
LAYER = "top"
"""The layer that is collected: a folder of a store, and the first word of the names of a state's tensors."""

KNOWN_LATER = frozenset({"attention", "head"})
"""Fields of a store's identity that are known only after the model is loaded, so no plan has them."""

OF_VALIDATION = frozenset({"validation", "max_validation_chunks"})
"""Fields of an identity that say what was validated on: a store that is only trained accepts others."""

SHARDS = "shards"
"""Subfolder of a store's folder for the state of its collection, until the store holds it."""
RESULTS, ORIGIN = "results.json", "origin.json"
"""Files next to a store's tensors that are not of its content: the last measurements, and where it was pulled from."""
VERSION = 2


def sealed(content: Mapping[str, Any], provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest with its digest and checksum."""
    manifest: dict[str, Any] = {**content, "digest": sha256_of(content), "provenance": dict(provenance)}
    manifest["checksum"] = sha256_of(manifest)
    return manifest


def render(manifest: Mapping[str, Any]) -> bytes:
    """Return the manifest's bytes. A manifest on disk must have exactly these bytes, so that any change is detected."""
    return (json.dumps(manifest, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def is_store(path: str | Path) -> bool:
    """Whether a folder holds a store."""
    return (Path(path) / MANIFEST).is_file()


def is_part(path: str | Path) -> bool:
    """Whether a folder holds a part of a collection, or one that was interrupted."""
    return (Path(path) / SHARDS).is_dir() and not is_store(path)


def is_ours(file: Path) -> bool:
    """Whether a file next to a store's tensors, RESULTS or ORIGIN, is absent or was written by collapse."""
    if not (file.is_symlink() or file.exists()):
        return True
    try:
        content = read_json(file)
    except (OSError, ValueError, TypeError):
        return False
    return isinstance(content, dict) and "store" in content and ("row" in content or "origin" in content)


def read_manifest(path: Path, name: str = MANIFEST) -> dict[str, Any]:
    """Read and check the manifest of the store in a folder; raises the errors of :meth:`Store.load`."""
    file = path / name
    if not file.is_file():
        if (path / SHARDS).is_dir():
            raise StoreError(
                f"{path} holds a part of a collection, or one that was interrupted: run the same collapse collect "
                "again to continue, or merge the parts: collapse merge STORE… --store DIR"
            )
        below = sorted(str(each.parent) for each in path.glob(f"stores/*/{MANIFEST}"))
        some = ", ".join(below[:4]) + (", …" if len(below) > 4 else "")
        also = f"; there is {some}" if below else ""
        if not below and (path / "config.json").is_file():
            also = (
                f": it is a model, so collect it first: collapse collect {path} --store DIR, in Python "
                f'collapse.collect("{path}")'
            )
        raise StoreError(f"there is no store in {path} (no {MANIFEST}){also}")
    try:
        data = read_bytes(file)
    except OSError as error:
        raise StoreError(f"{file} is not a manifest of a collapse store: {error}") from error
    altered = f"{file} was altered or is damaged: delete {path}, then fetch or collect the store again"
    try:
        manifest = json.loads(data)
        version = manifest["version"]
        if manifest["format"] != "collapse" or not isinstance(version, int) or version < 1:
            raise StoreError(f"{file} is not a manifest of a collapse store")
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(altered) from error
    if version != VERSION:
        remedy = "pip install -U linguistic-collapse" if version > VERSION else "collect the store again"
        raise StoreError(f"{file} is of store format {version}, and this collapse reads {VERSION}: {remedy}")
    try:
        sealed_part = {key: value for key, value in manifest.items() if key != "checksum"}
        content = {key: value for key, value in sealed_part.items() if key not in ("digest", "provenance")}
        whole = manifest["checksum"] == sha256_of(sealed_part) and manifest["digest"] == sha256_of(content)
        if not whole or data != render(manifest):
            raise StoreError(altered)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(altered) from error
    _check_schema(file, manifest)
    return dict(manifest)


def _check_schema(file: Path, manifest: Mapping[str, Any]) -> None:
    """Raise StoreError if a manifest does not match ``store.schema.json``."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    schema = json.loads(files("collapse").joinpath("store.schema.json").read_text(encoding="utf-8"))
    error = best_match(Draft202012Validator(schema).iter_errors(manifest))
    if error is not None:
        raise StoreError(f"{file} is not a manifest of a store: at {error.json_path}, {error.message[:200]}")


def differences(
    mine: Mapping[str, Any], theirs: Mapping[str, Any], *, apart: Set[str] = frozenset(), prefix: str = ""
) -> list[str]:
    """List the fields in which two identities differ, each with both values; fields in ``apart`` are not compared.

    This is the only comparison of identities, and of what they say to users.

    >>> differences({"dtype": "float32", "corpus": {"split": "a"}}, {"dtype": "float32", "corpus": {"split": "b"}})
    ['corpus.split: a and b']
    """
    found = []
    for key in sorted({*mine, *theirs} - apart):
        a, b = mine.get(key), theirs.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found += differences(a, b, prefix=f"{prefix}{key}.")
        elif canonical(a) != canonical(b):
            found.append(f"{prefix}{key}: {_short(a)} and {_short(b)}")
    return found


def shape_of(manifest: Mapping[str, Any]) -> tuple[int, int]:
    """Return the shape of the class means: C and d."""
    classes, dim = manifest["files"][f"{LAYER}/train.safetensors"]["tensors"]["means"]["shape"]
    return classes, dim


def spans(done: list[list[int]]) -> str:
    """Describe slices, counted from 1: the half-open ranges [[0, 4], [6, 7]] give ``1–4, 7``."""
    words = [f"{start + 1}–{stop}" if stop > start + 1 else f"{start + 1}" for start, stop in done]
    return ", ".join(words) if words else "none"


def now() -> str:
    """Return the current time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _short(value: Any) -> str:
    text = "none" if value is None else value if isinstance(value, str) else json.dumps(value)
    return f"{text[:12]}…" if len(text) > 60 and " " not in text else text
