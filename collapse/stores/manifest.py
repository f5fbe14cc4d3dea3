"""Build, read and compare the manifest of a store, ``collapse.json``. The format version is 3.

Where its fields are made: ``identity`` in inputs/identity.py; ``model``, ``corpus`` and ``coverage`` by the source;
``statistics``, ``files`` and ``provenance`` in folding_shards.py; ``digest`` and ``checksum`` by :func:`sealed`.
docs/reference/store.md describes each field.
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from collapse.core.paths import near_folders
from collapse.errors import StoreError
from collapse.stores.files import sha256_of
from collapse.stores.layer_names import TOP

MANIFEST = "collapse.json"
KNOWN_LATER = frozenset({"attention", "head"})
"""Fields of a store's identity that are known only after the model is loaded, so no request has them."""

OF_VALIDATION = frozenset({"validation", "max_validation_chunks"})
"""Fields of an identity that describe the validation text. They are not compared if a store has no validation yet."""

NO_LENS = "no_lens"
"""Key in the manifest's ``model``; the value says why the final norm and head cannot be applied to inner layers."""

SHARDS = "shards"
"""Subfolder of a store's folder with the state of an unfinished collection."""
RESULTS, ORIGIN = "results.json", "origin.json"
"""Files in a store's folder that are not part of its content: its last measurements, and its address on the Hub."""
VERSION = 3

_FILE = re.compile(r"[0-9A-Za-z_]+/[0-9A-Za-z_]+\.safetensors")


def sealed(content: Mapping[str, Any], provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest: ``content``, the digest of ``content``, the provenance, and the checksum of all of these."""
    manifest: dict[str, Any] = {**content, "digest": sha256_of(content), "provenance": dict(provenance)}
    manifest["checksum"] = sha256_of(manifest)
    return manifest


def render(manifest: Mapping[str, Any]) -> bytes:
    """Return the manifest's bytes. A file with any other bytes is rejected, so that every change is detected."""
    return (json.dumps(manifest, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def is_store(path: str | Path) -> bool:
    """Whether a folder holds a store."""
    return (Path(path) / MANIFEST).is_file()


def is_part(path: str | Path) -> bool:
    """Whether a folder has shards but no store: a part of a collection, or an interrupted collection."""
    return (Path(path) / SHARDS).is_dir() and not is_store(path)


def read_manifest(path: Path) -> dict[str, Any]:
    """Read and check the manifest of the store in a folder; raises the exceptions of :meth:`collapse.Store.load`."""
    file = path / MANIFEST
    if not file.is_file():
        raise _no_store(path)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error}. Check its permissions") from error
    try:
        manifest: dict[str, Any] = json.loads(data)
        version = manifest["version"]
        if manifest["format"] == "collapse" and isinstance(version, int) and version != VERSION:
            remedy = "run pip install -U linguistic-collapse" if version > VERSION else "collect the store again"
            raise StoreError(
                f"{file} has store format {version}, but this version of collapse reads {VERSION}: {remedy}"
            )
        of_digest = {key: value for key, value in manifest.items() if key not in ("digest", "provenance", "checksum")}
        intact = data == render(manifest) == render(sealed(of_digest, manifest["provenance"]))
        intact = intact and all(map(_FILE.fullmatch, manifest["files"]))  # so that no file lies outside the folder
    except (ValueError, KeyError, TypeError, AttributeError):
        intact = False
    if not intact:
        raise StoreError(f"{file} was altered or is damaged: delete {path}, then pull or collect the store again")
    return manifest


def _no_store(path: Path) -> StoreError:
    """Return the error for a folder without a manifest; it says what the folder holds instead."""
    if (path / SHARDS).is_dir():
        return StoreError(
            f"{path} holds an unfinished collection, or a part of one: run the same collapse collect again to "
            "continue, or merge the parts: collapse merge PART… --store DIR"
        )
    also = f"; {close}" if (close := near_folders(str(path))) else ""
    if below := sorted(str(each.parent) for each in path.glob(f"stores/*/{MANIFEST}")):
        also = f": give one of {', '.join(below[:4])}" + (", …" if len(below) > 4 else "")
    elif (path / "config.json").is_file():
        also = (
            f": this is a model; collect it first with collapse collect {path} --store DIR, in Python "
            f'collapse.collect("{path}")'
        )
    return StoreError(f"there is no store in {path} (no {MANIFEST}){also}")


def file_of(name: str, layer: str = TOP) -> str:
    """Return a tensor file's path in its store.

    >>> file_of("train"), file_of("train", "4"), name_of("top/train.safetensors"), layer_of("4/train.safetensors")
    ('top/train.safetensors', '4/train.safetensors', 'train', '4')
    """
    return f"{layer}/{name}.safetensors"


def name_of(file: str) -> str:
    """Return a tensor file's name without folders and suffix."""
    return file.split("/")[-1].removesuffix(".safetensors")


def layer_of(file: str) -> str:
    """Return the layer of a tensor file, which is the name of the file's folder."""
    return file.split("/")[0]


def shape_of(manifest: Mapping[str, Any]) -> tuple[int, int]:
    """Return the shape (C, d) of the class means."""
    classes, dim = manifest["files"][file_of("train")]["tensors"]["means"]["shape"]
    return classes, dim


def why_absent(manifest: Mapping[str, Any], layer: str = TOP) -> dict[str, str]:
    """Return a dictionary that maps an input of metrics to the reason why a layer may lack this input.

    Some reasons also say how to add the input. The reasons contain no paths, because they are published.
    """
    identity, no_lens = manifest["identity"], manifest["model"].get(NO_LENS)
    what = "data" if "task" in identity else "text"
    why = {
        "n_params": "the source of the embeddings does not say how many parameters its model has",
        "ood": "no out-of-distribution text was given: add one with --ood-text",
        "previous": "the table has no previous row, or the previous row has another tokenizer",
    }
    if no_lens and layer != TOP:
        why["validation"] = f"layer {layer} has no decisions: {no_lens}"
    elif "features" in identity or not identity.keys() & {"task", "shards"}:
        why["validation"] = "no validation samples were given: add validation_features and validation_labels"
    else:
        layers = "" if layer == TOP else f" --layers {layer}"
        collect = f"collapse collect MODEL --store STORE{layers} --validation-{what} FILES"
        why["validation"] = f"not validated yet: run {collect}"
    return why


def now() -> str:
    """Return the current time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
