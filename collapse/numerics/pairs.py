"""One sweep over tiles of class pairs, for all pair metrics together.

The C×C grid is never formed. The sweep visits the tiles of the upper triangle, computes one Gram product of centred
means per tile, and cuts it into strips that stay in the cache. Every field of a strip is derived at most once and
shared by the metrics. Measures reduce the values.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from collapse.core.progress import Report
from collapse.numerics.reducing import Evaluated
from collapse.numerics.tiles import ClassGeometry, Tile
from collapse.numerics.values import Values, plain
from collapse.plugin.metrics import Noted
from collapse.plugin.parameters import closure, functions_of_pairs, of_tiles

TILE = 768
"""Classes per side of a tile on a CPU, large enough for a fast product."""

_STRIP = 1 << 18
"""Pairs of a strip. The memory of larger fields is given back after each operation, and its pages are new each time."""


def sweep(
    values: Values, wanted: Sequence[Evaluated], *, tile: int | None = None, progress: Report | None = None
) -> Counter[str]:
    """Add the values of pair metrics over all pairs c < c′ to their tallies.

    Args:
        values: What functions of classes give; the sweep runs on the device of the statistics.
        wanted: The metrics, with empty tallies.
        tile: Classes per side of a tile; None for :data:`TILE`, or 4,096 on a GPU.
        progress: Called as progress(what, tiles done, tiles).

    Returns:
        The counts of :class:`collapse.numerics.tiles.ClassGeometry`.
    """
    means = values.s.means
    tile = tile or (TILE if means.device.type == "cpu" else 4096)
    kept = set().union(*(functions_of_pairs(each.metric.function) for each in wanted))
    for each in wanted:
        with each.on_its_own():
            _prepare(values, each.metric.function)
    geometry = ClassGeometry(values.s)
    with torch.inference_mode():
        memory = torch.empty(tile * tile, dtype=torch.float64, device=means.device)
    height = max(1, _STRIP // tile)
    walk = list(tiles(len(means), tile))
    for done, (rows, columns) in enumerate(walk, start=1):
        gram = _product(geometry.means, rows, columns, height, memory)
        for strip, across in strips(rows, columns, height):
            part = gram[strip.start - rows.start : strip.stop - rows.start, across.start - columns.start :]
            piece = Tile(geometry, values, strip, across, part[:, : across.stop - across.start], kept)
            for each in wanted:
                if each.failed is None:
                    with each.on_its_own():
                        _add(each, piece, strip, across)
        if progress:
            progress("sweeping pairs", done, len(walk))
    return geometry.counts


def _prepare(values: Values, function: Callable[..., Any]) -> None:
    """Compute the class values that a function of pairs asks for."""
    for each in closure(function):
        if each.kind != "field" and not (each.kind == "function" and of_tiles(each.target)):
            values.argument(each)


def _add(each: Evaluated, tile: Tile, rows: slice, columns: slice) -> None:
    """Add a metric's values of a tile; a diagonal one holds every pair twice."""
    found = tile.value(each.metric.function)
    each.remark = found if isinstance(found, Noted) else each.remark
    values = plain(found)
    if values is None or each.tally is None:
        return
    diagonal = rows.start == columns.start
    if each.top is not None:
        each.top.add(values, rows, columns)
    if each.class_tally is not None and not diagonal:
        each.class_tally.add(values, rows)
        each.class_tally.add(values.T, columns)
    elif each.class_tally is not None and len(values) > 1:
        each.class_tally.add(_without_diagonal(values), rows)
    if diagonal:
        row_n, column_n = torch.triu_indices(len(values), len(values), 1, device=values.device)
        values = values[row_n, column_n]
    each.tally.add(values.view(1, -1))


def tiles(n: int, tile: int) -> Iterator[tuple[slice, slice]]:
    """Yield the rows and columns of the tiles of the upper triangle, including the diagonal."""
    runs = [slice(start, min(start + tile, n)) for start in range(0, n, tile)]
    for index, rows in enumerate(runs):
        for columns in runs[index:]:
            yield rows, columns


def strips(rows: slice, columns: slice, height: int) -> Iterator[tuple[slice, slice]]:
    """Cut a tile into strips of rows; one of a diagonal tile into its own diagonal tile and what is right of it.

    >>> [(row.start, column.start, column.stop) for row, column in strips(slice(0, 4), slice(0, 4), 2)]
    [(0, 0, 2), (0, 2, 4), (2, 2, 4)]
    """
    for start in range(rows.start, rows.stop, height):
        strip = slice(start, min(start + height, rows.stop))
        if rows != columns:
            yield strip, columns
            continue
        yield strip, strip
        if strip.stop < columns.stop:
            yield strip, slice(strip.stop, columns.stop)


@torch.inference_mode()
def _product(
    means_Cd: Float[Tensor, "C d"], rows: slice, columns: slice, height: int, memory: Float[Tensor, " n"]
) -> Float[Tensor, "R S"]:
    """Compute the Gram product of a tile in the given memory; of a diagonal tile only what its strips need."""
    a_Rd, b_Sd = means_Cd[rows], means_Cd[columns]
    out = memory[: len(a_Rd) * len(b_Sd)].view(len(a_Rd), len(b_Sd))
    if rows != columns:
        return torch.mm(a_Rd, b_Sd.T, out=out)
    for start in range(0, len(a_Rd), height):
        strip = slice(start, start + height)
        torch.mm(a_Rd[strip], b_Sd[start:].T, out=out[strip, start:])
    return out


def _without_diagonal(values: Float[Tensor, "R R"]) -> Float[Tensor, "R S"]:
    """Return each row without the pair of a class with itself.

    >>> _without_diagonal(torch.arange(9.0).view(3, 3)).tolist()
    [[1.0, 2.0], [3.0, 5.0], [6.0, 7.0]]
    """
    n = len(values)
    return values.flatten()[1:].view(n - 1, n + 1)[:, :-1].reshape(n, n - 1)
