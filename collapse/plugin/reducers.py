"""Reducers, which turn many values into one number; for class metrics, pair metrics and plugins.

A reducer holds the state of G groups: every tensor of its state has a leading dimension G. G is 1 for the number in a
row, and C for one value per class. States can be merged in any order. ``__init__`` makes the empty state, with G = 1.

Shapes: G groups, n values per group.
"""

import math
from abc import ABC, abstractmethod
from copy import copy
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

R = TypeVar("R", bound="Reducer")

_CANCELLED = 1e-3  # a difference smaller than this, relative to its terms, has lost more than three digits


class Reducer(ABC):
    """Accumulates values, merges with reducers of the same kind, and gives one number per group.

    Its tensors are its state. Other attributes are parameters; measures with equal parameters share one reducer.
    """

    @abstractmethod
    def add(self, values: Float[Tensor, "G n"]) -> None:
        """Add n finite values per group."""

    @abstractmethod
    def merge(self, other: Any) -> None:
        """Merge another reducer of the same groups into this one."""

    @abstractmethod
    def result(self) -> Float[Tensor, " G"]:
        """Return the number of each group; nan for a group without values."""

    def left_out(self) -> Float[Tensor, " G"] | None:
        """Return how many of the added values the number excludes, such as zeros of a mean logarithm, or None."""
        return None

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for empty reducers of one kind with equal parameters."""
        held = {name: v.tolist() if isinstance(v, Tensor) else v for name, v in vars(self).items()}
        return type(self), repr(sorted(held.items()))

    def of(self: R, groups: int, device: torch.device | str) -> R:
        """Return an empty reducer of this kind for the given number of groups; this one must be empty."""
        return self._with(lambda state: state.to(device).repeat(groups, *(1,) * (state.dim() - 1)))

    def rows(self: R, run: slice) -> R:
        """Return a reducer of some of the groups, which shares the memory of this one."""
        return self._with(lambda state: state[run])

    def put(self, run: slice, part: "Reducer") -> None:
        """Take back some of the groups, where adding replaced their tensors."""
        for name, value in vars(part).items():
            if isinstance(value, Tensor) and value.data_ptr() != getattr(self, name)[run].data_ptr():
                getattr(self, name)[run] = value

    def _with(self: R, change: Any) -> R:
        made = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(made, name, change(value))
        return made


class Moments(Reducer):
    """Number, mean and summed squared deviations, merged by Chan, Golub & LeVeque (1983)."""

    def __init__(self) -> None:
        self.n, self.mean, self.squares = (torch.zeros(1, dtype=torch.float64) for _ in range(3))

    def add(self, values: Float[Tensor, "G n"], sums: Float[Tensor, " G"] | None = None) -> None:
        """Add values; see :class:`Reducer`. ``sums`` are their sums, if they are known."""
        n = torch.full_like(self.n, values.shape[1])
        mean = (values.sum(dim=1, dtype=torch.float64) if sums is None else sums) / n
        self._merge(n, mean, _squares(values, mean).double())

    def merge(self, other: Any) -> None:
        """Merge another reducer; see :class:`Reducer`."""
        self._merge(other.n, other.mean, other.squares)

    def _merge(self, n: Tensor, mean: Tensor, squares: Tensor) -> None:
        total = self.n + n
        share = n / total.clamp(min=1)
        delta = mean - self.mean
        self.squares += squares + delta.square() * self.n * share
        self.mean += delta * share
        self.n += n

    def result(self) -> Float[Tensor, " G"]:
        """The mean."""
        return self.mean.where(self.n > 0, torch.full_like(self.mean, math.nan))

    def std(self) -> Float[Tensor, " G"]:
        """The population standard deviation."""
        return (self.squares / self.n).sqrt()


def _squares(values: Float[Tensor, "G n"], mean: Float[Tensor, " G"]) -> Float[Tensor, " G"]:
    """Return the sums of squared deviations from the means."""
    if len(values) == 1 and values.dtype == torch.float64:  # a dot product takes a fifth of the time
        total = torch.dot(values[0], values[0])
        squares = total - values.shape[1] * mean.square()
        if bool(squares > _CANCELLED * total):
            return squares
    centred = values - mean.to(values).unsqueeze(1)
    return torch.linalg.vecdot(centred, centred) if len(centred) > 1 else torch.dot(centred[0], centred[0]).view(1)


class Logs(Reducer):
    """The mean natural logarithm; values of exactly 0 are skipped and counted."""

    def __init__(self) -> None:
        self.n, self.total, self.zeros = (torch.zeros(1, dtype=torch.float64) for _ in range(3))

    def add(self, values: Float[Tensor, "G n"]) -> None:
        """Add values; see :class:`Reducer`."""
        logs = values.log()
        total, zeros = logs.sum(dim=1, dtype=torch.float64), torch.zeros_like(self.n)
        if not bool((total > -math.inf).all()):  # a zero, or a negative value, whose logarithm is nan
            nothing = values == 0
            total = logs.masked_fill(nothing, 0).sum(dim=1, dtype=torch.float64)
            zeros = nothing.sum(dim=1, dtype=torch.float64)
        self.n += values.shape[1] - zeros
        self.total += total
        self.zeros += zeros

    def merge(self, other: Any) -> None:
        """Merge another reducer; see :class:`Reducer`."""
        self.n += other.n
        self.total += other.total
        self.zeros += other.zeros

    def result(self) -> Float[Tensor, " G"]:
        """Return the mean logarithm."""
        return self.total / self.n

    def left_out(self) -> Float[Tensor, " G"]:
        """Return the number of zeros."""
        return self.zeros


class PowerMean(Reducer):
    """(1/s)·log mean exp(s·x), computed as a running log-sum-exp; nan if s is not positive.

    Args:
        s: The exponent.
    """

    def __init__(self, s: float) -> None:
        self.s = s
        self.n = torch.zeros(1, dtype=torch.float64)
        self.log_sum = torch.full((1,), -math.inf, dtype=torch.float64)

    def add(self, values: Float[Tensor, "G n"]) -> None:
        """Add values; see :class:`Reducer`."""
        powers = values * self.s
        top = powers.amax(dim=1, keepdim=True)
        log_sum = powers.sub_(top).exp_().sum(dim=1).log_() + top.squeeze(1)
        self.n += values.shape[1]
        self.log_sum.copy_(torch.logaddexp(self.log_sum, log_sum.double()))

    def merge(self, other: Any) -> None:
        """Merge another reducer; see :class:`Reducer`."""
        self.n += other.n
        self.log_sum.copy_(torch.logaddexp(self.log_sum, other.log_sum))

    def result(self) -> Float[Tensor, " G"]:
        """The power mean."""
        if self.s <= 0:
            return torch.full_like(self.n, math.nan)
        return (self.log_sum - self.n.log()) / self.s


class Extreme(Reducer):
    """The smallest value, or the largest one.

    Args:
        sign: −1 for the smallest value, 1 for the largest one.
    """

    def __init__(self, sign: int) -> None:
        self.sign = sign
        self.n = torch.zeros(1, dtype=torch.float64)
        self.top = torch.full((1,), -math.inf, dtype=torch.float64)

    def add(self, values: Float[Tensor, "G n"]) -> None:
        """Add values; see :class:`Reducer`."""
        signed = values * self.sign
        self.n += values.shape[1]
        self.top.copy_(torch.maximum(self.top, signed.amax(dim=1).double()))

    def merge(self, other: Any) -> None:
        """Merge another reducer; see :class:`Reducer`."""
        self.n += other.n
        self.top.copy_(torch.maximum(self.top, other.top))

    def result(self) -> Float[Tensor, " G"]:
        """The extreme value."""
        return (self.top * self.sign).where(self.n > 0, torch.full_like(self.top, math.nan))
