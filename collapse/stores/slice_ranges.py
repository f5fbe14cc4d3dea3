"""Ranges of slices: those of a part, and those dealt to each rank."""

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

Run = tuple[int, int]
"""Adjacent slices, as a half-open range."""


def dealt(runs: Sequence[Run], n_ranks: int) -> list[list[Run]]:
    """Divide slices among ranks in order, so that the ranks' numbers of slices differ by at most one.

    >>> dealt([(0, 4), (6, 8)], 2)
    [[(0, 3)], [(3, 4), (6, 8)]]
    """
    total, left, shares = sum(stop - start for start, stop in runs), deque(runs), list[list[Run]]()
    for low, high in pairwise(rank * total // n_ranks for rank in range(n_ranks + 1)):
        share, lacking = list[Run](), high - low
        while lacking:
            start, stop = left.popleft()
            end = min(stop, start + lacking)
            share.append((start, end))
            lacking -= end - start
            if end < stop:
                left.appendleft((end, stop))
        shares.append(share)
    return shares


def spans(runs: Sequence[Run]) -> str:
    """Return ranges of slices as text, counted from 1 and with both ends.

    >>> spans([(0, 4), (6, 7)])
    '1–4, 7'
    """
    return ", ".join(f"{start + 1}–{stop}" if stop > start + 1 else f"{start + 1}" for start, stop in runs)


def part_of(slices: int, part: tuple[int, int] | None) -> Run:
    """Return the slices of part k of n, as a half-open range. It can be empty if n is larger than the number of slices.

    >>> part_of(10, None), part_of(10, (1, 3)), part_of(10, (3, 3))
    ((0, 10), (0, 3), (6, 10))
    """
    k, n = part or (1, 1)
    return (k - 1) * slices // n, k * slices // n
