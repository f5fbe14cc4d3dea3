"""Make a store of tensors."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from collapse.stores.manifest import VERSION, sealed
from collapse.stores.shards import remove_shards
from collapse.stores.store import Store, Tensors
from collapse.stores.store_folder import write_files
from collapse.stores.tensor_files import check_tensors, described, tensor_bytes


def build(
    path: Path | None,
    about: Mapping[str, Any],
    files: Mapping[str, Tensors],
    *,
    provenance: Mapping[str, Any],
    kept: Mapping[str, Any] | None = None,
) -> Store:
    """Make a store of tensors: write the tensor files first, ``collapse.json`` last; then remove its shards.

    Args:
        path: Folder of the store, locked by the caller; None for a store in memory.
        about: identity, model, corpus, coverage, statistics and statistics_by of the manifest.
        files: Tensors by file name, such as ``top/train.safetensors``.
        provenance: Device, batch size, times, command.
        kept: Manifest entries of existing files that stay unchanged.
    """
    entries = dict(kept or {})

    def files_written() -> Iterator[tuple[str, bytes]]:
        for name, tensors in files.items():
            check_tensors(name, tensors, about)
            data = tensor_bytes(tensors)
            entries[name] = described(data)
            yield name, data

    @cache
    def manifest() -> dict[str, Any]:
        return sealed({"format": "collapse", "version": VERSION, **about, "files": entries}, provenance)

    if path is None:
        list(files_written())
        return Store(manifest(), None, files)
    write_files(path, files_written(), manifest)
    remove_shards(path)
    return Store(manifest(), path)
