"""Make a store of tensors."""

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from collapse.stores.lazily import Tensors
from collapse.stores.manifest import (
    MANIFEST,
    VERSION,
    render,
    sealed,
)
from collapse.stores.store import Store
from collapse.stores.store_folder import staging
from collapse.stores.tensor_checks import check_samples
from collapse.stores.tensor_files import described, tensor_bytes
from collapse.stores.writing import write_atomic


def build(
    path: Path | None,
    about: Mapping[str, Any],
    files: Mapping[str, Tensors],
    *,
    provenance: Mapping[str, Any],
    kept: Mapping[str, Any] | None = None,
) -> Store:
    """Make a store of tensors, replacing an existing one: write the tensor files first, ``collapse.json`` last.

    Args:
        path: Folder of the store, locked by the caller; None for a store in memory.
        about: identity, model, corpus, coverage, statistics and statistics_by of the manifest.
        files: Tensors by file name, such as ``top/train.safetensors``.
        provenance: Device, batch size, times, command.
        kept: Manifest entries of existing files that stay unchanged.
    """
    entries = dict(kept or {})
    with staging(path) if path is not None else nullcontext() as place:
        for name, tensors in files.items():
            data = tensor_bytes(tensors)
            entries[name] = described(data)
            if place is not None:
                write_atomic(place / name, data)
        manifest = sealed({"format": "collapse", "version": VERSION, **about, "files": entries}, provenance)
        for name, tensors in files.items():
            if "counts" in tensors:
                check_samples(name, tensors["counts"], manifest)
        if place is not None:
            write_atomic(place / MANIFEST, render(manifest))
    return Store(manifest, path, files)
