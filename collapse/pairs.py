"""One sweep over tiles of class pairs, for every pair metric at once.

The C×C grid is never formed: the upper triangle is walked tile by tile, one Gram product of centred means a tile, from
which every field is derived at most once and shared. Mean and std are merged over tiles as (n, mean, M2).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from collapse.errors import PluginError
from collapse.guarding import Guest, Watch, Wrote
from collapse.lending import settle, tensors_of
from collapse.metrics import CoV, LogMeanExp, MeanLog, Measure, Metric, Std, limit_at
from collapse.probing import probe
from collapse.returned import as_tile
from collapse.statistics import EmbeddingStatistics
from collapse.tiles import LEAVES_OUT_ZEROS, Pair, Points


@dataclass(frozen=True)
class Sweep:
    """What one sweep gives.

    Attributes:
        metrics: For each metric its measures, or the exception that says what is wrong with its function.
        close_pairs: Pairs of unequal means closer than the embeddings' rounding, counted where ``sqdist`` is used.
        rounded: Pairs that differ by no more than the rounding of float64, by the ``over`` that leaves them out.
    """

    metrics: list["Swept | Exception"]
    close_pairs: int
    rounded: dict[str, int]


@dataclass(frozen=True)
class Swept:
    """What a sweep gives for one pair metric.

    Attributes:
        values: The measures taken, by measurement name; nan where no pair was left.
        left_out: Pairs left out, by measurement name (only where there are any).
        mean, std: Of the pair function itself.
        rows: Mean over the other classes, shape (C,); nan for a class without a pair.
        cast: The dtype that the function returned where it is a less exact one than the sweep's, or None.
    """

    values: dict[str, float]
    left_out: dict[str, int]
    mean: float
    std: float
    rows: Float[Tensor, " C"]
    cast: str | None = None


class SweepStopped(PluginError):
    """A pair metric wrote to the statistics themselves: nothing that follows could be trusted.

    Attributes:
        wanted: The metric with its measures, as given.
        error: What it wrote to.
    """

    def __init__(self, wanted: tuple[Metric, Sequence[Measure]], error: Wrote) -> None:
        super().__init__(f"{wanted[0].called}: {error}")
        self.wanted, self.error = wanted, error


def sweep(
    s: EmbeddingStatistics,
    wanted: Sequence[tuple[Metric, Sequence[Measure]]],
    *,
    tile: int | None = None,
    dtype: torch.dtype = torch.float64,
    progress: Callable[[str, int, int | None], None] | None = None,
) -> Sweep:
    """Evaluate pair metrics over all pairs c < c′.

    Args:
        s: Class statistics; the sweep runs on their device.
        wanted: Pair metrics, each with the measures to take.
        tile: Classes a side of a tile; None for 512, whose fields stay in a CPU's cache, or 4,096 on a GPU.
        dtype: float64, or float32 for a quick look (distances are then redone sooner).
        progress: Called as progress(what, tiles done, tiles).

    Raises:
        SweepStopped: A metric wrote to the statistics.
    """
    tile = tile or (512 if s.means.device.type == "cpu" else 4096)
    _let_malloc_keep_tiles()
    settle(s)
    points = Points.of(s, dtype)
    tallies = [_start(s, metric, measures) for metric, measures in wanted]
    watch, calling = Watch(tensors_of(s) | points.tensors()), Guest()
    gram = torch.empty(tile * tile, dtype=dtype, device=s.means.device)
    close_pairs, rounded = 0, dict.fromkeys(LEAVES_OUT_ZEROS, 0)
    walk = list(tiles(s.n_classes, tile))
    for done, (rows, columns) in enumerate(walk):
        a_Rd, b_Sd = points.means[rows], points.means[columns]
        out = gram[: len(a_Rd) * len(b_Sd)].view(len(a_Rd), len(b_Sd))
        pair = Pair(points, rows, columns, torch.mm(a_Rd, b_Sd.T, out=out))
        close, equal = 0, dict.fromkeys(LEAVES_OUT_ZEROS.values(), 0)
        for index, tally in enumerate(tallies):
            if isinstance(tally, Exception):
                continue
            try:
                with calling:
                    returned = tally.metric.function(pair)
                tally.add(returned, pair, rows, columns)
                del returned  # or its memory is not there for the next one
            except Exception as error:  # a plugin's function: it costs its own measurements only
                tallies[index] = error
            close = max(close, pair.close_pairs)
            equal |= pair.rounded  # a pair that is made anew below may not compute all fields again
            if pair.written():
                tallies[index] = Wrote(pair.written())
                pair = Pair(points, rows, columns, torch.mm(a_Rd, b_Sd.T, out=out))
            if watch.written():
                raise SweepStopped(wanted[index], Wrote(watch.written()))
        close_pairs += close
        for over, field in LEAVES_OUT_ZEROS.items():
            rounded[over] += equal[field]
        if progress:
            progress("sweeping pairs", done + 1, len(walk))
    return Sweep([each if isinstance(each, Exception) else each.result() for each in tallies], close_pairs, rounded)


def _start(s: EmbeddingStatistics, metric: Metric, measures: Sequence[Measure]) -> "_Tally | Exception":
    try:
        probe(metric, s)
        return _Tally(s, metric, measures)
    except Exception as error:  # as above
        return error


class _Tally:
    """Running (n, mean, M2), row sums and the rarer sums of one pair metric."""

    def __init__(self, s: EmbeddingStatistics, metric: Metric, measures: Sequence[Measure]) -> None:
        self.s, self.metric, self.measures = s, metric, measures
        self.n, self.mean, self.squares = 0, 0.0, 0.0
        self.left_out = 0
        self.row_sums = torch.zeros(s.n_classes, dtype=torch.float64, device=s.means.device)
        self.row_missing = torch.zeros_like(self.row_sums)
        self.log_n, self.log_sum, self.zeros = 0, 0.0, 0
        self.powers = {
            m.name: _PowerMean(limit_at(m.exponent, s.n_classes, s.dim) or 0.0)
            for m in measures
            if isinstance(m, LogMeanExp)
        }
        self.cast: str | None = None
        self.takes_logs = any(isinstance(m, MeanLog) for m in measures)

    def add(self, returned: object, pair: Pair, rows: slice, columns: slice) -> None:
        values = as_tile(returned, pair.gram)
        if isinstance(returned, Tensor) and returned.dtype != values.dtype and returned.is_floating_point():
            self.cast = str(returned.dtype).removeprefix("torch.")
        skip = pair.left_out(self.metric.over)
        diagonal = pair.diagonal
        if diagonal:  # both triangles are there: halve the sums, leave out the diagonal
            on = torch.eye(len(values), dtype=torch.bool, device=values.device)
            skip = on if skip is None else skip | on
        share = 2 if diagonal else 1
        n = values.numel()
        if skip is not None:
            n -= int(skip.sum())
            self.left_out += (values.numel() - n - (len(values) if diagonal else 0)) // share
            values = values.masked_fill(skip, 0)
            self.row_missing[rows] += skip.sum(dim=1)
            if not diagonal:
                self.row_missing[columns] += skip.sum(dim=0)
        row_sums = values.sum(dim=1)
        self.row_sums[rows] += row_sums
        if not diagonal:
            self.row_sums[columns] += values.sum(dim=0)
        if n == 0:
            return
        mean = float(row_sums.sum()) / n
        centred = values - mean
        if skip is not None:
            centred.masked_fill_(skip, 0)
        flat = centred.view(-1)
        self._merge(n // share, mean, float(torch.dot(flat, flat)) / share)
        if self.takes_logs:
            self._add_logs(values, skip, n, share)
        for power in self.powers.values():
            power.add(values, skip, n // share, share)

    def _merge(self, n: int, mean: float, squares: float) -> None:
        total = self.n + n
        delta = mean - self.mean
        self.squares += squares + delta * delta * self.n * n / total
        self.mean += delta * n / total
        self.n = total

    def _add_logs(self, values: Tensor, skip: Tensor | None, n: int, share: int) -> None:
        logs = values.log()
        zeros = 0
        if skip is not None or values.amin() <= 0:
            nothing = values == 0
            zeros = int(nothing.sum()) - (values.numel() - n)
            logs.masked_fill_(nothing, 0)
        self.zeros += zeros // share
        self.log_n += (n - zeros) // share
        self.log_sum += float(logs.sum()) / share

    def result(self) -> Swept:
        std = (self.squares / self.n) ** 0.5 if self.n else float("nan")
        mean = self.mean if self.n else float("nan")
        values, left_out = {}, {}
        for measure in self.measures:
            left = self.left_out
            if isinstance(measure, MeanLog):
                value, left = (self.log_sum / self.log_n if self.log_n else float("nan")), left + self.zeros
            elif isinstance(measure, LogMeanExp):
                value = self.powers[measure.name].result()
            else:
                value = reduced(measure, mean, std)
            values[measure.name] = value
            if left:
                left_out[measure.name] = left
        pairs = self.s.n_classes - self.row_missing  # the diagonal counts as missing once
        return Swept(values, left_out, mean, std, self.row_sums / pairs, self.cast)


class _PowerMean:
    """(1/s)·log mean exp(s·x) by a running log-sum-exp."""

    def __init__(self, s: float) -> None:
        self.s, self.n, self.log_sum = s, 0, float("-inf")

    def add(self, values: Tensor, skip: Tensor | None, n: int, share: int) -> None:
        if self.s <= 0:
            return
        powers = values * self.s
        if skip is not None:
            powers.masked_fill_(skip, float("-inf"))
        top = powers.amax()
        total = powers.sub_(top).exp_().sum().div_(share).log_().add_(top)
        self.log_sum = float(torch.logaddexp(total, total.new_tensor(self.log_sum)))
        self.n += n

    def result(self) -> float:
        if not self.n:
            return float("nan")
        return (self.log_sum - float(torch.tensor(self.n, dtype=torch.float64).log())) / self.s


def reduced(measure: Measure, mean: float, std: float) -> float:
    """Mean, Std or CoV from a mean and a standard deviation; nan for a CoV whose mean is 0."""
    if isinstance(measure, Std):
        return std
    if isinstance(measure, CoV):
        return std / mean if mean else float("nan")
    return mean


def tiles(n: int, tile: int) -> Iterator[tuple[slice, slice]]:
    """Rows and columns of the tiles of the upper triangle, the diagonal ones among them."""
    runs = [slice(start, min(start + tile, n)) for start in range(0, n, tile)]
    for index, rows in enumerate(runs):
        for columns in runs[index:]:
            yield rows, columns


def _let_malloc_keep_tiles() -> None:
    """Make glibc hold on to freed memory of a tile's size.

    Otherwise it may hand each freed tile back to the system, and the page faults of the next one double a sweep's
    time. Freeing one block of just under 32 MB raises its thresholds for good; elsewhere this does nothing.
    """
    torch.empty(31 << 20, dtype=torch.uint8)
