"""The device of an option."""

import torch

from collapse.errors import UsageError, first_line


def pick_device(device: str) -> torch.device:
    """Return the torch device of an option.

    Raises:
        UsageError: This machine does not have it.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        target = torch.device(device)
        torch.zeros(1, device=target).item()  # fails for devices that cannot compute, such as "meta"
    except (RuntimeError, AssertionError) as error:
        if "Expected one of" in str(error):  # followed by all of torch's twenty names
            raise UsageError(f"no device {device!r} here: use auto, cpu, cuda, cuda:1 or mps") from error
        raise UsageError(f"no device {device!r} here: {first_line(error)}; use --device cpu or auto") from error
    return target


def float64_device(device: torch.device) -> torch.device:
    """Return the device, or the CPU if that device has no float64."""
    return torch.device("cpu") if device.type == "mps" else device


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that a GPU or the machine ran out of memory, so that a smaller batch may work."""
    said = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(
        each in said for each in ("out of memory", "not enough memory", "allocate memory")
    )
