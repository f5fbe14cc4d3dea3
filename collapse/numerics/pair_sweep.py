"""Compute all pair metrics together, in one sweep over tiles of class pairs.

The C×C grid is never formed. The sweep visits the tiles of the upper triangle. For each tile it computes one Gram
product of centred means, and derives every field of the pairs, such as their cosines, at most once for all metrics
(pair_fields.py; near_pairs.py computes the distances of near pairs again). Each metric's measures (mean, std, …)
reduce the metric's values.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from collapse.core import ranks
from collapse.core.progress import Report
from collapse.numerics.devices import keep_freed_memory
from collapse.numerics.pair_fields import ClassGeometry, Tile, tile_side, tiles
from collapse.numerics.reducing import MetricResult
from collapse.numerics.values import Values, plain
from collapse.plugin.metrics import Noted
from collapse.plugin.parameters import closure, functions_of_pairs, of_tiles


def sweep(
    values: Values, wanted: Sequence[MetricResult], *, side: int | None = None, progress: Report | None = None
) -> Counter[str]:
    """Compute pair metrics over this rank's share of all pairs c < c′, and add the values to the metrics' tallies.

    Args:
        values: The statistics, and the values of functions of classes. The sweep runs on the device of the statistics.
        wanted: The results of the pair metrics, with empty tallies; the sweep fills them.
        side: Number of rows, and of columns, of a tile; None for the result of
            :func:`~collapse.numerics.pair_fields.tile_side`.
        progress: Called as progress(what, tiles done, tiles).

    Returns:
        The ``pair_counts`` of :class:`collapse.numerics.pair_fields.ClassGeometry`, from this rank's pairs.
    """
    means = values.s.means
    side = side or tile_side(means.device)
    kept = set().union(*(functions_of_pairs(each.metric.function) for each in wanted))
    for each in wanted:
        with each.recording_failure():
            _prepare(values, each.metric.function)
    geometry = ClassGeometry(values.s)
    keep_freed_memory()
    with torch.no_grad():
        memory = torch.empty(side * side, dtype=torch.float64, device=means.device)
    walk = list(tiles(len(means), side))[ranks.rank() :: ranks.count()]
    for done, (rows, columns) in enumerate(walk, start=1):
        tile = Tile(geometry, values, rows, columns, _product(geometry.centred, rows, columns, memory), kept)
        for each in wanted:
            if each.failure is None:
                with each.recording_failure():
                    _add(each, tile)
        ranks.raise_others_error()
        if progress:
            progress("sweeping pairs", done, len(walk))
    return geometry.pair_counts


def _prepare(values: Values, function: Callable[..., Any]) -> None:
    """Compute the class values that are parameters of a function of pairs, before any tile.

    If a function of classes fails or writes to a shared tensor, the metric fails before its first tile.
    """
    for each in closure(function):
        if each.kind != "field" and not (each.kind == "function" and of_tiles(each.target)):
            values.argument(each, keep=True)  # also large values, because every tile needs them


def _add(result: MetricResult, tile: Tile) -> None:
    """Add the values of a tile to the result of a metric.

    A diagonal tile contains every pair twice, but each pair counts only once.
    """
    noted = tile.value(result.metric.function)
    result.remark = noted if isinstance(noted, Noted) else result.remark
    values = plain(noted)
    if values is None:
        return
    assert result.tally is not None  # every pair metric has one
    if result.top_pairs is not None:
        result.top_pairs.add(values, tile.rows, tile.columns)
    if result.class_tally is not None:
        if not tile.diagonal:
            result.class_tally.add(values, tile.rows)
            result.class_tally.add(values.T, tile.columns)
        elif len(values) > 1:
            result.class_tally.add(_without_diagonal(values), tile.rows)
    if tile.diagonal:
        values = values.take(_above_diagonal(len(values), values.device))
    result.tally.add(values.view(1, -1))


@torch.no_grad()
def _product(
    means_Cd: Float[Tensor, "C d"], rows: slice, columns: slice, memory: Float[Tensor, " n"]
) -> Float[Tensor, "R S"]:
    """Compute a tile's Gram product in the given memory; in a diagonal tile, copy one quarter from its mirror image."""
    a_Rd, b_Sd = means_Cd[rows], means_Cd[columns]
    out = memory[: len(a_Rd) * len(b_Sd)].view(len(a_Rd), len(b_Sd))
    if rows != columns:
        return torch.mm(a_Rd, b_Sd.T, out=out)
    half = len(a_Rd) // 2
    torch.mm(a_Rd[:half], a_Rd.T, out=out[:half])
    torch.mm(a_Rd[half:], a_Rd[half:].T, out=out[half:, half:])
    out[half:, :half] = out[:half, half:].T
    return out


@lru_cache(maxsize=1)  # diagonal tiles have one size, except the last
def _above_diagonal(n: int, device: torch.device) -> Int[Tensor, " P"]:
    """Return the positions above the diagonal in a flattened n × n tile.

    >>> _above_diagonal(3, torch.device("cpu")).tolist()
    [1, 2, 5]
    """
    row_P, column_P = torch.triu_indices(n, n, 1, device=device)
    return row_P * n + column_P


def _without_diagonal(values: Float[Tensor, "R R"]) -> Float[Tensor, "R S"]:
    """Return a square tile without its diagonal (the pairs of a class with itself), shape (R, R − 1).

    >>> _without_diagonal(torch.arange(9.0).view(3, 3)).tolist()
    [[1.0, 2.0], [3.0, 5.0], [6.0, 7.0]]
    """
    n = len(values)
    return values.flatten()[1:].view(n - 1, n + 1)[:, :-1].reshape(n, n - 1)
