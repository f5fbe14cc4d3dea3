"""Parts of rows, cut into the blocks that are multiplied at once and the groups of which the highest score is kept."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Block:
    """Rows that are multiplied at once, their groups, and the index of their part."""

    rows: slice
    groups: slice
    part: int


@dataclass(frozen=True)
class Part:
    """The rows and groups of a part, to the end of its last group."""

    rows: slice
    groups: slice


def cut(lengths: Sequence[int], group: int, most: int) -> tuple[list[Block], list[Part]]:
    """Cut parts into blocks of about equal lengths.

    Args:
        lengths: Rows of each part, which is followed by as many as its last group lacks.
        group: Rows of a group.
        most: Rows of a block, a whole number of groups.

    >>> blocks, parts = cut([20, 5], group=8, most=16)
    >>> [(each.rows.start, each.rows.stop, each.part) for each in blocks]
    [(0, 16, 0), (16, 20, 0), (24, 29, 1)]
    >>> [(each.groups.start, each.groups.stop) for each in parts]
    [(0, 3), (3, 4)]
    """
    blocks, parts, first = list[Block](), list[Part](), 0
    for length in lengths:
        step = -(-length // -(-length // most) // group) * group
        for start in range(first, first + length, step):
            stop = min(start + step, first + length)
            blocks.append(Block(slice(start, stop), slice(start // group, -(-stop // group)), len(parts)))
        after = first - (-length // group) * group
        parts.append(Part(slice(first, after), slice(first // group, after // group)))
        first = after
    return blocks, parts
