"""Tensor files: written without metadata, and checked against the manifest when they are read."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapse.core.reading import is_utf8, open_regular
from collapse.errors import StoreError

if TYPE_CHECKING:
    from torch import Tensor
from collapse.stores.files import sha256_file, stamp

_HEADER_LIMIT = 1 << 24


def tensor_bytes(tensors: Mapping[str, "Tensor"]) -> bytes:
    """Serialize tensors as safetensors, without metadata: two or more keys would make the bytes vary between runs."""
    import torch
    from safetensors.torch import save

    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    size = sum(tensor.nbytes for tensor in held.values())
    for_copies = [torch.empty(size, dtype=torch.uint8) for _ in range(2)]  # without memory, save() ends the process
    del for_copies
    return save(held)


def described(data: bytes) -> dict[str, Any]:
    """Return the manifest entry for a tensor file: size, sha256, and each tensor's dtype and shape."""
    header = _parse_header(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "tensors": header}


def read_tensors(path: Path, entry: Mapping[str, Any], *, remember: bool = True) -> dict[str, "Tensor"]:
    """Read a tensor file and check it against its manifest entry: size, header and hash, in this order.

    Raises:
        StoreError: It is missing, truncated or altered, or its header differs from the manifest.
    """
    from safetensors import SafetensorError

    before = stamp(path)
    check_file(path, entry, remember=remember)
    try:
        tensors = load_tensors(path)
    except (SafetensorError, ValueError, TypeError, KeyError, RuntimeError, OSError) as error:
        raise StoreError(f"{path} cannot be read as safetensors: {error}; fetch or collect it again") from error
    if stamp(path) != before:
        raise StoreError(f"{path} changed while it was read: run the same command again")
    return tensors


def load_tensors(path: Path) -> dict[str, "Tensor"]:
    """Load a safetensors file, which must be a regular file; the library cannot open a name that is not UTF-8."""
    from safetensors.torch import load, load_file

    with open_regular(path) as file:
        return load_file(path) if is_utf8(path) else load(file.read())


def read_tensor(path: Path, name: str) -> "Tensor":
    """Read one tensor of a file that has been checked."""
    from safetensors import SafetensorError, safe_open

    try:
        if not is_utf8(path):
            return load_tensors(path)[name]
        with safe_open(path, framework="pt") as file:
            tensor: Tensor = file.get_tensor(name)
            return tensor
    except (SafetensorError, ValueError, TypeError, KeyError, RuntimeError, OSError) as error:
        raise StoreError(f"{path} cannot be read as safetensors: {error}; fetch or collect it again") from error


def check_file(path: Path, entry: Mapping[str, Any], *, remember: bool = True) -> None:
    """Check a tensor file against its manifest entry without loading it; raises as :func:`read_tensors`."""
    remedy = "fetch or collect it again"
    if not path.is_file():
        raise StoreError(f"{path} is missing: the store is not whole; {remedy}")
    size = path.stat().st_size
    if size != entry["size"]:
        raise StoreError(f"{path} has {size:,} bytes where the manifest says {entry['size']:,}: truncated; {remedy}")
    with open_regular(path) as file:
        length = bounded(int.from_bytes(file.read(8), "little"), size)
        header = file.read(length)
    try:
        tensors = _parse_header(header)
    except (ValueError, KeyError, TypeError, AttributeError):
        tensors = None
    if tensors != entry["tensors"]:
        raise StoreError(f"{path} holds other tensors than the manifest says: it was altered; {remedy}")
    digest = sha256_file(path, remember=remember)
    if digest != entry["sha256"]:
        raise StoreError(
            f"{path} was altered: its sha256 is {digest[:12]}…, and the manifest says {entry['sha256'][:12]}…; {remedy}"
        )


def bounded(length: int, size: int) -> int:
    """Return the header length that a safetensors file gives, or 0 if it is impossible."""
    return length if length <= min(size - 8, _HEADER_LIMIT) else 0


def _parse_header(header: bytes) -> dict[str, Any]:
    return {
        name: {"dtype": tensor["dtype"], "shape": tensor["shape"]}
        for name, tensor in json.loads(header).items()
        if name != "__metadata__"
    }
