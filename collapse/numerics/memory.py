"""What is told where memory runs out: one line with what was done, how large its matrices are, and what to do."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from collapse.errors import CollapseError
from collapse.numerics.devices import is_out_of_memory


@contextmanager
def in_memory(message: str) -> Iterator[None]:
    """Report that memory ran out.

    Raises:
        CollapseError: It did; with this message.
    """
    try:
        yield
    except Exception as error:  # libraries raise it as errors of many kinds, and others name it as their cause
        if not is_out_of_memory(error):
            raise
        raise CollapseError(message) from error


def ran_out(doing: str, classes: int, dim: int, device: torch.device, *remedies: str, most: bool = False) -> str:
    """Return the message for a computation on class means.

    >>> ran_out("the pair sweep", 262_144, 2_304, torch.device("cpu"), "--min-count")
    'memory ran out in the pair sweep: C = 262,144 classes × d = 2,304 dimensions, 8·C·d = 4.8 GB for each matrix of \
class means: use a machine with more memory or --min-count'

    Args:
        doing: What is computed.
        classes: C.
        dim: d.
        device: Where.
        remedies: What else needs less memory.
        most: Whether C is not known yet, and at most so large.
    """
    size = 8 * classes * dim
    shown = f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
    elsewhere = (
        ["a machine with more memory"] if device.type == "cpu" else ["--device cpu", "a machine with more memory"]
    )
    return (
        f"memory ran out in {doing}: {'at most ' if most else ''}C = {classes:,} classes × d = {dim:,} dimensions, "
        f"8·C·d = {shown} for each matrix of class means: use {' or '.join([*elsewhere, *remedies])}"
    )
