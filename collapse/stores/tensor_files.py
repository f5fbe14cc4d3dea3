"""Write tensor files (safetensors), and check them against the manifest and the invariants of a collection."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapse.errors import StoreError
from collapse.stores.files import sha256_file, sha256_of
from collapse.stores.manifest import name_of

if TYPE_CHECKING:
    from torch import Tensor

_OURS = ("train", "classifier", "validation")
_REMEDY = "pull the store again, or run the command that collected it again, with --recollect"


def tensor_bytes(tensors: Mapping[str, "Tensor"], metadata: str | None = None) -> bytes:
    """Serialize tensors as safetensors. ``metadata`` is one field, because the order of several fields would vary."""
    import torch
    from safetensors.torch import save

    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    size = sum(tensor.nbytes for tensor in held.values())
    # if memory is too small, this raises an exception; save() would abort the process
    for_copies = [torch.empty(size, dtype=torch.uint8) for _ in range(2)]
    del for_copies
    return save(held, None if metadata is None else {"collapse": metadata})


def hash_of(about: Any, tensors: Mapping[str, "Tensor"]) -> str:
    """Return one sha256 of a description and of tensors, including the tensors' names, dtypes and shapes."""
    import torch

    described = {}
    for name, tensor in tensors.items():
        data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
        described[name] = [str(tensor.dtype), list(tensor.shape), hashlib.sha256(data).hexdigest()]
    return sha256_of([about, described])


def manifest_entry(data: bytes) -> dict[str, Any]:
    """Return the manifest entry for a tensor file: size, sha256, and each tensor's dtype and shape."""
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    header.pop("__metadata__", None)
    tensors = {name: {"dtype": each["dtype"], "shape": each["shape"]} for name, each in header.items()}
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "tensors": tensors}


def check_file(path: Path, entry: Mapping[str, Any], *, remember: bool = True) -> None:
    """Check the size and the hash of a tensor file against its manifest entry.

    Args:
        path: The file.
        entry: As made by :func:`manifest_entry`.
        remember: As in :func:`collapse.stores.files.sha256_file`.

    Raises:
        StoreError: The file is missing, truncated or altered.
    """
    if not path.is_file():
        raise StoreError(f"{path} is missing: the store is incomplete; {_REMEDY}")
    size = path.stat().st_size
    if size != entry["size"]:
        raise StoreError(f"{path} has {size:,} bytes, but the manifest records {entry['size']:,}; {_REMEDY}")
    digest = sha256_file(path, remember=remember)
    if digest != entry["sha256"]:
        raise StoreError(
            f"{path} was altered: its sha256 is {digest[:12]}…, but the manifest records {entry['sha256'][:12]}…; "
            f"{_REMEDY}"
        )


def check_tensors(file: str, tensors: Mapping[str, "Tensor"], manifest: Mapping[str, Any]) -> None:
    """Check the tensors that every collection writes; tensors of plugin statistics are not checked.

    Raises:
        StoreError: Class ids do not ascend, a number is not finite, or the counts do not add up to the number of
            collected samples.
    """
    phase = name_of(file)
    if phase not in _OURS:
        return
    for name, tensor in tensors.items():
        if name == "classes" and not (bool((tensor.diff() > 0).all()) and bool((tensor >= 0).all())):
            raise StoreError(f"{file}: its class ids are not in ascending order; {_REMEDY}")
        # A finite sum proves that all values are finite, and needs little memory. If it overflows, each value is
        # checked.
        if tensor.is_floating_point() and not (tensor.double().sum().isfinite() or bool(tensor.isfinite().all())):
            raise StoreError(f"{file}: {name} has values that are not finite; {_REMEDY}")
    coverage, length = manifest["coverage"].get(phase) or {}, manifest["identity"].get("chunk_length")
    expected = coverage.get("samples")
    if expected is None and length and "chunks" in coverage:
        expected = coverage["chunks"] * (length - 1)
    if "counts" in tensors and expected not in (None, samples := int(tensors["counts"].sum())):
        raise StoreError(
            f"{file} counts {samples:,} samples, but {expected:,} were collected: samples were counted twice or "
            "skipped; collect again (--recollect)"
        )
