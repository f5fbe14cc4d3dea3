"""One sweep over tiles of class pairs, for every pair metric at once.

The C×C grid is never formed: the upper triangle is walked tile by tile, one Gram product of centred means a tile, from
which every field is derived at most once and shared. Mean and std are merged over tiles as (n, mean, M2).

Shapes: a tile has R rows and S columns, each a run of classes; d dimensions.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from collapse.errors import CollapseError
from collapse.metrics import CoV, LogMeanExp, MeanLog, Measure, Metric, Over, Std
from collapse.statistics import EmbeddingStatistics

# Below this share of ‖a‖² + ‖b‖², a squared distance taken from a Gram product has lost too many digits.
_REDO = {torch.float64: 1e-6, torch.float32: 1e-2}
# A distance below this share of the largest ‖μ‖ is rounding of the embeddings themselves.
_ROUNDING = {"float64": 2.0**-51, "float32": 2.0**-22, "float16": 2.0**-9, "bfloat16": 2.0**-7}
_GATHER = 1 << 21  # numbers gathered at a time when distances are redone


@dataclass(frozen=True)
class Points:
    """What a sweep knows of each class, in the sweep's dtype, computed once."""

    statistics: EmbeddingStatistics
    means: Float[Tensor, "C d"]
    sqnorms: Float[Tensor, " C"]
    inverse_norms: Float[Tensor, " C"]
    variances: Float[Tensor, " C"]
    projections: Float[Tensor, " C"]
    uncentred_inverse_norms: Float[Tensor, " C"]
    global_sqnorm: float
    rounding: float

    @classmethod
    def of(cls, s: EmbeddingStatistics, dtype: torch.dtype) -> "Points":
        """Prepare the centred means of a store for a sweep."""
        means_Cd = s.centred_means
        projections_C = means_Cd @ s.global_mean  # ⟨μ_c − μ̄, μ̄⟩: turns centred products into uncentred ones
        uncentred_norms_C = s.means.norm(dim=1)
        rounding = _ROUNDING.get(s.dtype, _ROUNDING["float32"]) * float(uncentred_norms_C.max())
        return cls(
            statistics=s,
            means=means_Cd.to(dtype),
            sqnorms=torch.linalg.vecdot(means_Cd, means_Cd).to(dtype),
            inverse_norms=_inverse(s.norms).to(dtype),
            variances=s.variances.to(dtype),
            projections=projections_C.to(dtype),
            uncentred_inverse_norms=_inverse(uncentred_norms_C).to(dtype),
            global_sqnorm=float(s.global_mean @ s.global_mean),
            rounding=rounding**2,
        )


class Pair:
    """One tile of class pairs as a pair metric sees it. Fields are shared: never write to one.

    Attributes:
        gram: ⟨μ_c − μ̄, μ_c′ − μ̄⟩, shape (R, S).
        diagonal: Whether rows and columns are the same classes.
        close_pairs: Once ``sqdist`` is known, pairs closer than the rounding of the embeddings, but not equal.
    """

    def __init__(self, points: Points, rows: slice, columns: slice, gram: Tensor) -> None:
        self._points = points
        self._rows, self._columns = rows, columns
        self.gram = gram
        self.diagonal = rows.start == columns.start
        self.close_pairs = 0

    def rows(self, name: str) -> Tensor:
        """The raw block of a per-class tensor for this tile's rows: means (centred), variances, counts, ..."""
        return self._block(name, self._rows)

    def columns(self, name: str) -> Tensor:
        """The raw block of a per-class tensor for this tile's columns."""
        return self._block(name, self._columns)

    def _block(self, name: str, run: slice) -> Tensor:
        if name == "means":
            return self._points.means[run]
        if name == "norms":
            return self._points.statistics.norms[run].to(self.gram.dtype)
        value = getattr(self._points.statistics, name)[run]
        return value.to(self.gram.dtype) if value.is_floating_point() else value

    @property
    def norms(self) -> tuple[Tensor, Tensor]:
        """‖μ_c − μ̄‖ of rows (R, 1) and columns (1, S)."""
        return self.rows("norms").unsqueeze(1), self.columns("norms").unsqueeze(0)

    @property
    def counts(self) -> tuple[Tensor, Tensor]:
        """N_c of rows (R, 1) and columns (1, S)."""
        return self.rows("counts").unsqueeze(1), self.columns("counts").unsqueeze(0)

    @cached_property
    def variance_sum(self) -> Tensor:
        """σ_c² + σ_c′²."""
        variances = self._points.variances
        return variances[self._rows].unsqueeze(1) + variances[self._columns]

    @cached_property
    def sqdist(self) -> Tensor:
        """‖μ_c − μ_c′‖², exactly 0 where the two means are equal."""
        sqnorms, means = self._points.sqnorms, self._points.statistics.means
        rows, columns = sqnorms[self._rows].unsqueeze(1), sqnorms[self._columns]
        sqdist = (rows + columns).sub_(self.gram, alpha=2)
        redo = _REDO[sqdist.dtype]
        least = sqdist.amin()
        if least < redo * (rows.amax() + columns.amax()):
            self._redo(sqdist, sqdist < redo * (rows + columns), lambda index: means[index])  # uncentred: no digit lost
        if least < 2 * self._points.rounding:
            close = int(((sqdist > 0) & (sqdist < self._points.rounding)).sum())
            self.close_pairs = close // 2 if self.diagonal else close
        return sqdist

    @cached_property
    def distance(self) -> Tensor:
        """‖μ_c − μ_c′‖."""
        return self.sqdist.sqrt()

    @cached_property
    def cosine(self) -> Tensor:
        """⟨u_c, u_c′⟩; 0 where a centred mean is zero."""
        inverse = self._points.inverse_norms
        return (self.gram * inverse[self._rows].unsqueeze(1)).mul_(inverse[self._columns])

    @cached_property
    def unit_sqdist(self) -> Tensor:
        """‖u_c − u_c′‖² of unit centred means, exactly 0 where the directions are equal."""
        points = self._points
        return self._unit(self.cosine, lambda i: points.means[i] * points.inverse_norms[i].unsqueeze(1))

    @cached_property
    def uncentred_unit_sqdist(self) -> Tensor:
        """The same for μ_c/‖μ_c‖, not centred. No second product: ⟨μ, μ′⟩ follows from the centred one."""
        points = self._points
        inverse = points.uncentred_inverse_norms
        rows = (points.projections[self._rows] + points.global_sqnorm).unsqueeze(1)
        product = (rows + points.projections[self._columns]).add_(self.gram)
        cosine = product.mul_(inverse[self._rows].unsqueeze(1)).mul_(inverse[self._columns])
        return self._unit(cosine, lambda i: (points.statistics.means[i] * inverse[i].unsqueeze(1)).to(cosine.dtype))

    def _unit(self, cosine: Tensor, unit: Callable[[Tensor], Tensor]) -> Tensor:
        sqdist = torch.rsub(cosine, 2, alpha=2)
        redo = 2 * _REDO[sqdist.dtype]
        if sqdist.amin() < redo:
            self._redo(sqdist, sqdist < redo, unit)
        return sqdist

    def _redo(self, sqdist: Tensor, close: Tensor, points: Callable[[Tensor], Tensor]) -> None:
        """Replace the marked squared distances by those of direct differences."""
        if self.diagonal:
            close.fill_diagonal_(False)
            sqdist.fill_diagonal_(0)
        pairs = close.nonzero()
        for some in pairs.split(max(1, _GATHER // self._points.means.shape[1])):
            delta = points(some[:, 0] + self._rows.start) - points(some[:, 1] + self._columns.start)
            sqdist[some[:, 0], some[:, 1]] = torch.linalg.vecdot(delta, delta).to(sqdist.dtype)

    def left_out(self, over: Over) -> Bool[Tensor, "R S"] | None:
        """The pairs that a metric declared over ``over`` leaves out, or None where there are none."""
        equal = zero = None
        points = self._points
        if over == "distinct":
            equal = self.sqdist
        elif over == "distinct_directions":
            equal, zero = self.unit_sqdist, points.inverse_norms
        elif over == "distinct_uncentred_directions":
            equal, zero = self.uncentred_unit_sqdist, points.uncentred_inverse_norms
        elif over == "directions":
            zero = points.inverse_norms
        masks = []
        if equal is not None and equal.amin() <= 0:
            masks.append(equal <= 0)
        if zero is not None and (zero[self._rows].amin() == 0 or zero[self._columns].amin() == 0):
            masks.append((zero[self._rows] == 0).unsqueeze(1) | (zero[self._columns] == 0))
        return torch.stack(masks).any(dim=0) if masks else None


@dataclass(frozen=True)
class Sweep:
    """What one sweep gives.

    Attributes:
        metrics: For each metric its measures, or the exception that its function raised.
        close_pairs: Pairs of unequal means closer than the embeddings' rounding, counted where ``sqdist`` is used.
    """

    metrics: list["Swept | Exception"]
    close_pairs: int


@dataclass(frozen=True)
class Swept:
    """What a sweep gives for one pair metric.

    Attributes:
        values: The measures taken, by measurement name; nan where no pair was left.
        left_out: Pairs left out, by measurement name (only where there are any).
        mean, std: Of the pair function itself.
        rows: Mean over the other classes, shape (C,); nan for a class without a pair.
    """

    values: dict[str, float]
    left_out: dict[str, int]
    mean: float
    std: float
    rows: Float[Tensor, " C"]


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
    """
    tile = tile or (512 if s.means.device.type == "cpu" else 4096)
    _let_malloc_keep_tiles()
    points = Points.of(s, dtype)
    tallies: list[_Tally | Exception] = [_Tally(s, metric, measures, dtype) for metric, measures in wanted]
    gram = torch.empty(tile * tile, dtype=dtype, device=s.means.device)
    close_pairs = 0
    tiles = list(_tiles(s.n_classes, tile))
    for done, (rows, columns) in enumerate(tiles):
        a_Rd, b_Sd = points.means[rows], points.means[columns]
        out = gram[: len(a_Rd) * len(b_Sd)].view(len(a_Rd), len(b_Sd))
        pair = Pair(points, rows, columns, torch.mm(a_Rd, b_Sd.T, out=out))
        for index, tally in enumerate(tallies):
            if isinstance(tally, Exception):
                continue
            try:
                tally.add(pair, rows, columns)
            except Exception as error:  # a plugin's function: it costs its own measurements only
                tallies[index] = error
        close_pairs += pair.close_pairs
        if progress:
            progress("sweeping pairs", done + 1, len(tiles))
    return Sweep([each if isinstance(each, Exception) else each.result() for each in tallies], close_pairs)


class _Tally:
    """Running (n, mean, M2), row sums and the rarer sums of one pair metric."""

    def __init__(self, s: EmbeddingStatistics, metric: Metric, measures: Sequence[Measure], dtype: torch.dtype) -> None:
        self.s, self.metric, self.measures = s, metric, measures
        self.n, self.mean, self.squares = 0, 0.0, 0.0
        self.left_out = 0
        self.row_sums = torch.zeros(s.n_classes, dtype=torch.float64, device=s.means.device)
        self.row_missing = torch.zeros_like(self.row_sums)
        self.log_n, self.log_sum, self.zeros = 0, 0.0, 0
        self.powers = {
            m.name: _PowerMean(m.exponent(s.n_classes, s.dim)) for m in measures if isinstance(m, LogMeanExp)
        }
        self.takes_logs = any(isinstance(m, MeanLog) for m in measures)

    def add(self, pair: Pair, rows: slice, columns: slice) -> None:
        values = self.metric.function(pair)
        if not isinstance(values, Tensor) or values.shape != pair.gram.shape:
            shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise CollapseError(f"a pair metric must return a tile of shape {tuple(pair.gram.shape)}, not {shape}")
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
        return Swept(values, left_out, mean, std, self.row_sums / pairs)


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


def _tiles(n: int, tile: int) -> Iterator[tuple[slice, slice]]:
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


def _inverse(norms: Tensor) -> Tensor:
    return torch.where(norms > 0, 1 / norms, torch.zeros_like(norms))
