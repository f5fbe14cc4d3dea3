"""Files that are either whole or not there: atomic writes, hashes, canonical JSON, checked tensor files."""

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from collapse.errors import CollapseError, StoreError, first_line
from collapse.reading import is_utf8, open_regular, parse_json
from collapse.reading import read_json as read_json

if TYPE_CHECKING:
    from torch import Tensor

Examine = Callable[[bytes], None]

# A file changed within this time of being hashed could change again within one tick of the clock: not remembered.
_SETTLED_SECONDS = 2.0
_REMEMBER_BYTES = 1 << 20
_MEMORY_LIMIT = 1 << 12
_BLOCK = 1 << 20
_HEADER_LIMIT = 1 << 24
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
ANOTHER_STORE, ANOTHER_OUTPUT, ANOTHER_HOME, ANOTHER_CACHE = (
    "choose another --store",
    "choose another --output",
    "set COLLAPSE_HOME to a folder on another disk",
    "set HF_HOME to a folder on another disk",
)


def home() -> Path:
    """The folder of cached stores, packed texts and remembered hashes: ``$COLLAPSE_HOME`` or the user's cache."""
    from platformdirs import user_cache_path

    given = os.environ.get("COLLAPSE_HOME")
    if given:
        return expanded(given)
    with suppress(RuntimeError):
        folder = user_cache_path("collapse")
        if folder.is_absolute():
            return folder
    raise CollapseError(
        "no home folder is known (HOME is not set): set COLLAPSE_HOME to a folder for the cache, "
        "and HF_HOME to one for what comes from the Hub"
    )


def expanded(path: str | Path) -> Path:
    """A path with ``~`` replaced by the home folder; unchanged where nobody has that name."""
    return Path(os.path.expanduser(path))


def canonical(value: Any) -> bytes:
    """JSON with sorted keys and no spaces: equal values give equal bytes.

    >>> canonical({"b": 1, "a": [None, "µ"]})
    b'{"a":[null,"\\\\u00b5"],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def sha256_of(value: Any) -> str:
    """sha256 of a value's canonical JSON."""
    return hashlib.sha256(canonical(value)).hexdigest()


def sha256_file(path: Path, *, remember: bool = True, examine: Examine | None = None) -> str:
    """sha256 of a regular file's bytes, in full; remembered in the user's cache by size, times and inode.

    The change time is part of what is compared: no program can set it back, so a byte flipped under a restored
    modification time is still seen. Only a program that writes through a memory map while the file is hashed, and goes
    on afterwards, may be missed.

    Args:
        path: The file.
        remember: Use and keep the remembered hash. False reads the file, whatever is remembered.
        examine: Called with each block that is hashed, and with b"" at the end; it raises where a block is refused. A
            remembered hash is used only where the same function accepted the file before.

    Raises:
        OSError: It cannot be read, or is no regular file.
    """
    with open_regular(path) as file:
        status = os.fstat(file.fileno())
        before = stamp(file.fileno())
        remember = remember and status.st_size >= _REMEMBER_BYTES and os.name == "posix"
        about = "" if examine is None else examine.__qualname__
        if remember:
            with suppress(OSError, ValueError, LookupError, TypeError, CollapseError):
                known = read_json(_memory(path, about), _MEMORY_LIMIT)
                if known["stamp"] == before:
                    return str(known["sha256"])
        hashed = hashlib.sha256()
        while block := file.read(_BLOCK):
            hashed.update(block)
            if examine is not None:
                examine(block)
        if examine is not None:
            examine(b"")
        unchanged = stamp(file.fileno()) == before
    if remember and unchanged and time.time() - status.st_ctime > _SETTLED_SECONDS:
        with suppress(OSError, CollapseError):  # a cache that cannot be written is no reason to stop
            _remember(_memory(path, about), {"stamp": before, "sha256": hashed.hexdigest()})
    return hashed.hexdigest()


def stamp(file: Path | int) -> list[int]:
    """What changes with a file's content: the change time is set by the system alone."""
    try:
        status = os.stat(file)
    except OSError:
        return []
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev]


def _memory(path: Path, examined: str) -> Path:
    place = os.fsencode(path.resolve()) + (f"\0{examined}".encode() if examined else b"")
    return home() / "hashes" / f"{hashlib.sha256(place).hexdigest()}.json"


def _remember(memory: Path, known: Mapping[str, Any]) -> None:
    memory.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(prefix=".", dir=memory.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(canonical(known))
        os.replace(partial, memory)
    finally:
        with suppress(OSError):
            os.unlink(partial)


def write_atomic(path: Path, data: bytes, *, other: str = ANOTHER_STORE) -> None:
    """Write a file whole or not at all, and durably: a temporary file beside it, fsync, rename.

    Args:
        path: Where.
        data: What.
        other: How to write elsewhere, for the message where it cannot be written.

    Raises:
        CollapseError: No space, no permission, or another failure of the file system.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise write_error(path, error, len(data), other=other) from error


def write_output(path: str | Path, data: bytes) -> None:
    """Write a file that a user named with ``--output``, whole or not at all.

    What a link points to is replaced, not the link; the permissions stay. Several processes may write one file.

    Raises:
        CollapseError: The place cannot be written.
    """
    target = Path(os.path.realpath(path))
    partial = target.with_name(f".{token_hex(8)}.partial")
    try:
        if target.is_symlink():  # links in a ring lead to no file
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(data)
        if target.exists():
            shutil.copymode(target, partial)
        partial.replace(target)
    except OSError as error:
        raise write_error(path, error, len(data), other=ANOTHER_OUTPUT) from error
    finally:
        with suppress(OSError):  # its folder may be what could not be made
            partial.unlink(missing_ok=True)


def move(source: Path, target: Path) -> None:
    """Move a file within a file system, durably, in the place of what is there; raises as :func:`write_atomic`."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        source.replace(target)
        _sync_folder(target.parent)
    except OSError as error:
        raise write_error(target, error) from error


def write_error(path: str | Path, error: BaseException, size: int = 0, *, other: str = ANOTHER_STORE) -> CollapseError:
    """The message for a failed write; ``other`` says how to write elsewhere."""
    need = f" ({size / 1e6:,.1f} MB)" if size >= 50_000 else ""
    number = _number(error) or (errno.ENOSPC if is_full(error) else 0)
    reason = os.strerror(number) if number else first_line(error)
    return CollapseError(
        f"cannot write {path}{need}: {reason}. Free space or {other}, "
        "then run the same command again: what was finished is kept"
    )


def is_full(error: BaseException) -> bool:
    """Whether a write failed for want of space: a full disk, a used-up quota, a limit on a file's size."""
    # datasets looks at the free space itself, and raises without a number; torch's writer finds itself in a wrong place
    said = str(error)
    in_words = said.startswith("Not enough disk space") or ("inline_container" in said and "Reader" not in said)
    return _number(error) in _FULL or in_words


def _number(error: BaseException) -> int:
    """The system's number of an error, which Rust's libraries put in words; 0 for none."""
    if isinstance(error, OSError) and error.errno:
        return error.errno
    in_words = _OS_ERROR.search(str(error))
    return int(in_words[1]) if in_words else 0


def raise_if_full(error: BaseException, folder: str | Path, other: str) -> None:
    """Raise the message for a full disk where a library's error came of one, however deep."""
    cause: BaseException | None = error
    while cause is not None:
        if is_full(cause):
            raise write_error(getattr(cause, "filename", None) or folder, cause, other=other) from error
        cause = cause.__cause__ or cause.__context__


def _sync_folder(folder: Path) -> None:
    # Makes the rename itself durable, where the system lets a folder be opened.
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def tensor_bytes(tensors: Mapping[str, "Tensor"]) -> bytes:
    """A safetensors file's bytes. No free metadata: two or more keys would make the bytes differ from run to run."""
    from safetensors.torch import save

    return save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})


def described(data: bytes) -> dict[str, Any]:
    """The manifest's entry for a tensor file: size, sha256, and each tensor's dtype and shape."""
    header = _parse_header(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "tensors": header}


def read_tensors(path: Path, entry: Mapping[str, Any], *, remember: bool = True) -> dict[str, "Tensor"]:
    """Read a tensor file that must be what its manifest entry says: size, header and hash, in this order.

    Raises:
        StoreError: It is absent, truncated, altered, or its header is not the manifest's.
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
    """Load a safetensors file, which must be a regular file; the library itself opens no name that is not UTF-8."""
    from safetensors.torch import load, load_file

    with open_regular(path) as file:
        return load_file(path) if is_utf8(path) else load(file.read())


def read_tensor(path: Path, name: str) -> "Tensor":
    """Read one tensor of a file that was checked."""
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
    """Compare a tensor file with its manifest entry without loading it; raises as :func:`read_tensors`."""
    mend = "fetch or collect it again"
    if not path.is_file():
        raise StoreError(f"{path} is missing: the store is not whole; {mend}")
    size = path.stat().st_size
    if size != entry["size"]:
        raise StoreError(f"{path} has {size:,} bytes where the manifest says {entry['size']:,}: truncated; {mend}")
    with open_regular(path) as file:
        length = bounded(int.from_bytes(file.read(8), "little"), size)
        header = file.read(length)
    try:
        tensors = _parse_header(header)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        tensors = None
    if tensors != entry["tensors"]:
        raise StoreError(f"{path} holds other tensors than the manifest says: it was altered; {mend}")
    digest = sha256_file(path, remember=remember)
    if digest != entry["sha256"]:
        raise StoreError(
            f"{path} was altered: its sha256 is {digest[:12]}… where the manifest says {entry['sha256'][:12]}…; {mend}"
        )


def bounded(length: int, size: int) -> int:
    """The length that a safetensors file gives its header; 0, which is none, where it cannot be."""
    return length if length <= min(size - 8, _HEADER_LIMIT) else 0


def _parse_header(header: bytes) -> dict[str, Any]:
    return {
        name: {"dtype": tensor["dtype"], "shape": tensor["shape"]}
        for name, tensor in parse_json(header).items()
        if name != "__metadata__"
    }
