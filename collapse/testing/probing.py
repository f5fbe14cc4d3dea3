"""Probe a pair function on a small tile: it must be elementwise, symmetric and pure.

The tile has real class ids, but random means, variances, counts and classifier, so that no two numbers agree by chance
and none is lost to rounding. The result of a function that depends on the tile, or on the order of a pair, would depend
on how the sweep cuts the classes into tiles.
"""

from dataclasses import replace

import torch
from torch import Tensor

from collapse.errors import PluginError
from collapse.numerics.lending import settle, tensors_of
from collapse.numerics.returned import as_tile
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.numerics.tiles import Pair, Points
from collapse.plugin.guarding import Wrote
from collapse.plugin.metrics import Metric
from collapse.testing.contents import contents, differing

_CLASSES, _CUT = 12, 5
_TOLERANCE = 1e-5  # of the largest value: a function may compute in float32


class Asymmetric(PluginError):
    """A pair metric gives another number for a pair in the other order."""


def probe(metric: Metric, s: EmbeddingStatistics) -> None:
    """Call a pair metric on a tile of at most 12 classes, on the same pairs in other tiles, and once more.

    Raises:
        PluginError: It does not always give the same number for a pair, or wrote to its input.
        Exception: Any exception of the metric.
    """
    points = Points.of(_drawn(s), torch.float64)
    C = len(points.means)
    cut = min(_CUT, C - 1)
    whole = _call(metric, points, slice(0, C), slice(0, C))
    _compare(whole, _call(metric, points, slice(0, C), slice(0, C)), "called twice, it gives {} and {} for one pair")
    try:
        _compare(whole, whole.T, "it is not symmetric: {} for a pair, {} for the same pair in the other order")
    except PluginError as error:
        raise Asymmetric(str(error)) from None
    corner = _call(metric, points, slice(0, cut), slice(cut, C))
    about = f"it depends on the tile: {{}} for a pair in one of {C}×{C}, {{}} in one of {cut}×{C - cut}"
    _compare(whole[:cut, cut:], corner, about, diagonal=False)


def _drawn(s: EmbeddingStatistics) -> EmbeddingStatistics:
    draw = torch.Generator().manual_seed(0)
    C, d, device = min(_CLASSES, s.n_classes), s.dim, s.means.device

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=draw).to(device)

    drawn = replace(
        s,
        classes=s.classes[:C].clone(),
        counts=torch.randint(2, 100, (C,), generator=draw).to(device),
        means=normal(C, d),
        variances=normal(C).square(),
        classifier=None if s.classifier is None else normal(C, d),
        bias=None if s.bias is None else normal(C),
        validation=None,
        extra={},
    )
    return settle(drawn)


def _call(metric: Metric, points: Points, rows: slice, columns: slice) -> Tensor:
    points = replace(points)  # so that nothing can be kept there for the next call
    pair = Pair(points, rows, columns, points.means[rows] @ points.means[columns].T)
    read = tensors_of(points.statistics) | points.tensors() | pair.fields()
    before = contents(read)
    values = metric.of(pair)
    written = differing(before, contents(read)) or pair.written()
    if written:
        raise Wrote(written)
    tile = as_tile(values, pair.gram).clone()
    left_out = pair.left_out(metric.over) if callable(metric.over) else None
    if left_out is not None:  # compare also which pairs are excluded
        tile.masked_fill_(left_out, float("nan"))
    return tile


def _compare(a: Tensor, b: Tensor, text: str, *, diagonal: bool = True) -> None:
    """Raise if two tiles differ by more than rounding; the diagonal of a diagonal tile holds no pairs."""
    finite = a[torch.isfinite(a)]
    scale = float(finite.abs().max()) if len(finite) else 0.0
    same = (a == b) | (a.isnan() & b.isnan()) | ((a - b).abs() <= _TOLERANCE * scale)
    if diagonal:
        same = same.fill_diagonal_(True)
    if not bool(same.all()):
        i, j = (~same).nonzero()[0].tolist()
        raise PluginError(text.format(f"{float(a[i, j]):.6g}", f"{float(b[i, j]):.6g}"))
