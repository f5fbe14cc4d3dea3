"""Compute which slices belong to a part, and which slices of the part each rank collects."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

Range = tuple[int, int]
"""Adjacent slices: index of the first slice, and index after the last slice."""


def dealt(ranges: Sequence[Range], n_ranks: int) -> list[list[Range]]:
    """Divide slices among ranks in order, so that the ranks' numbers of slices differ by at most one.

    >>> dealt([(0, 4), (6, 8)], 2)
    [[(0, 3)], [(3, 4), (6, 8)]]
    """
    slices = [each for start, stop in ranges for each in range(start, stop)]
    bounds = pairwise(rank * len(slices) // n_ranks for rank in range(n_ranks + 1))
    return [adjacent((each, each + 1) for each in slices[low:high]) for low, high in bounds]


def adjacent(ranges: Iterable[Range]) -> list[Range]:
    """Join adjacent ranges; ``ranges`` are in ascending order.

    >>> adjacent([(0, 1), (1, 3), (4, 5)])
    [(0, 3), (4, 5)]
    """
    found: list[Range] = []
    for start, stop in ranges:
        if found and found[-1][1] == start:
            start, _ = found.pop()
        found.append((start, stop))
    return found


def spans(ranges: Sequence[Range]) -> str:
    """Return ranges of slices as text; slices are counted from 1, and both ends are included.

    >>> spans([(0, 4), (6, 7)])
    '1–4, 7'
    """
    return ", ".join(f"{start + 1}–{stop}" if stop > start + 1 else f"{start + 1}" for start, stop in ranges)


def slices_of_part(slices: int, part: tuple[int, int] | None) -> Range:
    """Return the range of slices of a part; ``part`` is (k, n) for part k of n, or None for all slices.

    The range can be empty if n is larger than the number of slices.

    >>> slices_of_part(10, None), slices_of_part(10, (1, 3)), slices_of_part(10, (3, 3))
    ((0, 10), (0, 3), (6, 10))
    """
    k, n = part or (1, 1)
    return (k - 1) * slices // n, k * slices // n
