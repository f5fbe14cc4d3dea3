"""Reducers of distributions: counts per bin, and quantiles."""

import math
import struct
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from collapse.plugin.reducers import Reducer

EXACT = 1 << 22
"""Number of values up to which :class:`Sketch` keeps each value; beyond it, counts per bin."""


_DROPPED_BITS = 43  # of a float64's 52 fraction bits: the relative width of a bin is 2⁻⁹


_HALF_BINS = 1 << (63 - _DROPPED_BITS)


_MAGNITUDE = (1 << 63) - 1


class Bins(Reducer):
    """Weight of the values in each bin between ascending edges, below the first and above the last.

    Args:
        edges: e_0 < e_1 < …; bin i holds e_i ≤ x < e_{i+1}.
    """

    by_class = False

    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges = edges
        self.weights = torch.zeros(1, len(edges) + 1, dtype=torch.float64)
        self.nans = torch.zeros(1, dtype=torch.float64)

    def add(self, values: Float[Tensor, "1 n"], weights: Float[Tensor, "1 n"] | None = None) -> None:
        """Add values; see :class:`Reducer`."""
        weights = torch.ones_like(values) if weights is None else weights
        edges = torch.tensor(self.edges, dtype=values.dtype, device=values.device)
        bins = torch.bucketize(values, edges, right=True)
        self.weights += torch.bincount(bins.flatten(), weights.flatten().double(), minlength=len(self.edges) + 1)
        self.nans += weights[values.isnan()].sum()

    def merge(self, other: Any) -> None:
        """Merge another reducer; see :class:`Reducer`."""
        self.weights += other.weights
        self.nans += other.nans

    def result(self) -> Float[Tensor, " G"]:
        """Return the share of the values between the first and the last edge; nan if a value is nan."""
        share = self.weights[:, 1:-1].sum(dim=1) / self.weights.sum(dim=1)
        return share.where(self.nans == 0, torch.full_like(share, math.nan))

    def counts(self) -> Float[Tensor, " bins"]:
        """Return the weight of the values in each bin."""
        return self.weights[0, 1:-1]


class Sketch(Reducer):
    """The distribution of values, for quantiles.

    Up to 4,194,304 values are kept. Beyond that, they are counted in bins of relative width 2⁻⁹, so that a quantile has
    a relative error of at most 0.1 %. The result does not depend on the order of the values.
    """

    by_class = False

    def __init__(self) -> None:
        self.values = torch.zeros(1, 0, dtype=torch.float64)
        self.weights = torch.zeros(1, 0, dtype=torch.float64)
        self.binned = torch.zeros(1, 0, dtype=torch.float64)

    def add(self, values: Float[Tensor, "1 n"], weights: Float[Tensor, "1 n"] | None = None) -> None:
        """Add values; see :class:`Reducer`."""
        weights = torch.ones_like(values) if weights is None else weights
        kept = weights != 0
        self._take(values[kept].double(), weights[kept].double())

    def merge(self, other: Any) -> None:
        """Merge another reducer; see :class:`Reducer`."""
        if other.binned.shape[1]:
            self._bin()
            self.binned = self.binned + other.binned
        self._take(other.values[0], other.weights[0])

    def result(self) -> Float[Tensor, " G"]:
        """Return the median."""
        return self.quantile(0.5)

    def quantile(self, q: float) -> Float[Tensor, " G"]:
        """Return the smallest value that a share q of the weight does not exceed; nan if empty or if a value is nan."""
        if self.binned.shape[1]:
            self._bin()
            weights = self.binned[0]
            if bool(weights[:_MINUS_INFINITY].any()) or bool(weights[_INFINITY + 1 :].any()):
                return weights.new_full((1,), math.nan)
            return weights.new_tensor([_of_bin(int(_first_reaching(weights, q)))])
        values, order = self.values[0].sort()
        if not len(values) or bool(values[-1].isnan()):
            return self.values.new_full((1,), math.nan)
        return values[_first_reaching(self.weights[0][order], q)].reshape(1)

    def _take(self, values: Tensor, weights: Tensor) -> None:
        self.values = torch.cat([self.values, values.unsqueeze(0)], dim=1)
        self.weights = torch.cat([self.weights, weights.unsqueeze(0)], dim=1)
        if self.values.shape[1] > EXACT:
            self._bin()

    def _bin(self) -> None:
        bins = torch.bincount(_bins_of(self.values[0]), self.weights[0], minlength=2 * _HALF_BINS)
        self.binned = bins.unsqueeze(0) + (self.binned if self.binned.shape[1] else 0)
        self.values, self.weights = self.values[:, :0], self.weights[:, :0]


def _first_reaching(weights: Tensor, q: float) -> Int[Tensor, ""]:
    below = weights.cumsum(dim=0)
    wanted = (below[-1] * q * (1 - 1e-15)).clamp(min=torch.finfo(torch.float64).tiny)
    return torch.searchsorted(below, wanted).clamp(max=len(weights) - 1)


def _bins_of(values: Float[Tensor, " n"]) -> Int[Tensor, " n"]:
    """Return the bin index of each value, ascending with it: sign, exponent and the first nine fraction bits."""
    bits = values.view(torch.int64)
    return ((bits ^ ((bits >> 63) & _MAGNITUDE)) >> _DROPPED_BITS) + _HALF_BINS


def _of_bin(place: int) -> float:
    """Return the middle of a bin, within 2⁻¹⁰ (relative) of all its values, or the infinity that the bin holds."""
    if place in (_INFINITY, _MINUS_INFINITY):
        return math.inf if place == _INFINITY else -math.inf
    if place in (_HALF_BINS, _HALF_BINS - 1):  # 0 and what is too small to tell from it
        return 0.0
    ordered = ((place - _HALF_BINS) << _DROPPED_BITS) + (1 << (_DROPPED_BITS - 1))
    return float(struct.unpack("<d", struct.pack("<q", ordered if ordered >= 0 else ordered ^ _MAGNITUDE))[0])


_MINUS_INFINITY, _INFINITY = _bins_of(torch.tensor([-math.inf, math.inf], dtype=torch.float64)).tolist()
