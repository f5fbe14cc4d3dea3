"""How much memory is left: on a GPU, on the machine, in its container, and for this process."""

from pathlib import Path

import torch

from collapse.control_groups import control_groups

# of version 2, and of version 1
_CGROUPS = (
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)


def available(device: torch.device, root: Path = Path("/")) -> int | None:
    """Return the bytes that this process can still use, at most; None if they are not known, as on macOS.

    What can be swapped or dropped counts as available, so that what does not fit certainly does not.

    Args:
        device: Where.
        root: Where proc and sys are.
    """
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if device.type != "cpu":
        return None
    machine = _numbers(root / "proc/meminfo", ":")
    swap = machine.get("SwapFree", 0)
    left = [machine["MemAvailable"] + swap] if "MemAvailable" in machine else []
    left += [each + swap for folder in control_groups("memory", root) if (each := _left(folder)) is not None]
    left += _of_process(root)
    return max(0, min(left)) if left else None


def size_of(count: int) -> str:
    """Format a number of bytes.

    >>> size_of(14_495_514_624), size_of(2_400_000)
    ('14.5 GB', '2.4 MB')
    """
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"


def _of_process(root: Path) -> list[int]:
    """Return what ``ulimit -v`` leaves, if it is set."""
    try:
        import resource
    except ImportError:  # Windows
        return []
    limit, used = resource.getrlimit(resource.RLIMIT_AS)[0], _numbers(root / "proc/self/status", ":").get("VmSize")
    return [] if limit == resource.RLIM_INFINITY or used is None else [limit - used]


def _left(folder: Path) -> int | None:
    """Return what one control group leaves; the cache of files counts as left, because the kernel drops it."""
    for names in _CGROUPS:
        try:
            limit, used = ((folder / name).read_text().strip() for name in names)
            if limit != "max":
                stat = _numbers(folder / "memory.stat", " ")
                return int(limit) - int(used) + stat.get("file", stat.get("cache", 0)) - stat.get("shmem", 0)
        except (OSError, ValueError):
            continue
    return None


def _numbers(file: Path, separator: str) -> dict[str, int]:
    """Return the numbers of a file of lines such as ``MemFree: 12 kB``, in bytes; empty if there is no such file."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return {}
    found = {}
    for name, _, value in (line.partition(separator) for line in lines):
        number, _, unit = value.strip().partition(" ")
        if number.isdigit():
            found[name] = int(number) << (10 if unit == "kB" else 0)
    return found
