"""Ranges of slices: those of a part, and those dealt to each rank."""

from collections.abc import Sequence
from itertools import pairwise

Run = tuple[int, int]
"""Adjacent slices, as a half-open range."""


def dealt(runs: Sequence[Run], ranks: int) -> list[list[Run]]:
    """Divide slices among ranks: each rank gets adjacent slices, and their numbers differ by at most one.

    >>> dealt([(0, 4), (6, 8)], 2)
    [[(0, 3)], [(3, 4), (6, 8)]]
    """
    places = [0]
    for start, stop in runs:
        places.append(places[-1] + stop - start)
    edges = [rank * places[-1] // ranks for rank in range(ranks + 1)]
    return [
        [
            (start + max(low - place, 0), min(start + high - place, stop))
            for (start, stop), place in zip(runs, places, strict=False)
            if max(low, place) < min(high, place + stop - start)
        ]
        for low, high in pairwise(edges)
    ]


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
