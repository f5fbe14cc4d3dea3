"""Define measures, which reduce the values of a metric to one named number, and their limits.

A measure reduces the values of classes or pairs to a *state*: a few numbers, such as a count and a sum, from which the
result is computed. States of different values can be merged in any order. The values are divided into groups, and each
group has its own result. There is one group with all values or, to get one number per class, one group per class.

Shapes: G groups, n values per group, k numbers in the state of a group.

This module does not import torch.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, fields, replace
from inspect import signature
from math import inf, nan
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from collapse.errors import PluginError, near_names
from collapse.plugin.guarding import called, error_line
from collapse.plugin.parameter_names import COLUMNS, OF_LIMITS

if TYPE_CHECKING:
    from torch import Tensor

Limit = int | float | Callable[..., float | None] | None
"""A number, a function with any of the parameters C, d and measured, or None for no limit."""

Scale = int | float | Literal["log"] | None
"""How a value changes if each embedding h is replaced by s·h: a number p if the value is multiplied by sᵖ, "log" if a
multiple of log s is added to the value, None if it changes in another way."""

_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*")
_CANCELLED = 1e-3  # a difference smaller than this, relative to its terms, has lost more than three digits


@dataclass(frozen=True)
class Measure:
    """One named number; a subclass defines how to compute it from the values of a class or pair metric.

    A subclass defines ``empty``, ``state``, ``merge`` and ``result``. Two measures of a metric share one state if they
    have the same methods ``state`` and ``merge``, and equal values in the fields that a subclass adds to ``Measure``.
    A shared state is computed only once.

    Attributes:
        name: Name of the measurement, such as ``nc2.interference``.
        towards: The value at full collapse: a number, a function such as ``lambda C: -1 / (C - 1)``, or None.
        reachable: The value that C classes in d dimensions can reach, if it differs from ``towards``: a number, a
            function, or None.
        reached_by: Which points have the value ``reachable`` if C > d+1, such as "uniform random points"; "" if
            ``reachable`` is only a bound.
        headline: Whether ``collapse measure`` prints the measurement by default. If a property (such as NC1) has no
            headline measurement, the command prints the property's alphabetically first measurement.
    """

    empty: ClassVar[tuple[float, ...]] = ()
    """The k numbers in the state of a group without values."""

    name: str
    _: KW_ONLY
    towards: Limit = None
    reachable: Limit = None
    reached_by: str = ""
    headline: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise PluginError(
                f"{self.name!r} is not a measurement name: use lower-case letters, digits, _ and dots, with a "
                "letter first, such as nc2.norm"
            )
        if self.name in COLUMNS:
            raise PluginError(f"{self.name} is already a column of every table: use a name such as mine.{self.name}")
        for keyword in ("towards", "reachable"):
            limit = getattr(self, keyword)
            for name in signature(limit).parameters if callable(limit) else ():
                if name not in OF_LIMITS:
                    near = near_names(name, OF_LIMITS)
                    raise PluginError(f"{self.name}: the function {keyword}= has an unknown parameter {name!r}; {near}")

    def scale_of(self, scale: Scale) -> float | None:
        """Return the exponent e if multiplying all embeddings h by s multiplies the measurement by s^e, otherwise None.

        ``scale`` says how the values of classes or pairs change, as for :func:`collapse.class_metric`.
        """
        return None if scale is None or isinstance(scale, str) else float(scale)

    def at(self, C: int, d: int) -> "Measure":
        """Return the measure with its parameters set for C classes in d dimensions; most measures have no parameter."""
        return self

    def state(self, values: "Tensor", sums: "Tensor") -> "Tensor":
        """Reduce values to a state of k numbers per group, shape (k, G).

        Args:
            values: Finite values, n for each of G groups, shape (G, n).
            sums: The float64 sum of each group's values, shape (G,).
        """
        raise NotImplementedError

    def merge(self, a: "Tensor", b: "Tensor") -> "Tensor":
        """Return the state of all values from which the states ``a`` and ``b`` were computed, shape (k, G)."""
        return a + b

    def result(self, state: "Tensor") -> "Tensor":
        """Compute each group's result, shape (G,), from a state of shape (k, G); nan for a group without values."""
        raise NotImplementedError

    def skipped(self, state: "Tensor") -> "Tensor":
        """Return, for each group, how many of the group's finite values the measure excludes, shape (G,)."""
        return state.new_zeros(state.shape[1])

    @property
    def key(self) -> tuple[Any, ...]:
        """The key of the measure's state. Two measures of a metric share one state if their keys are equal."""
        own = [each.name for each in fields(self) if each.name not in Measure.__dataclass_fields__]
        return type(self).state, type(self).merge, *(getattr(self, name) for name in own)


class Mean(Measure):
    """The arithmetic mean over classes or pairs.

    Mean, Std and CoV share a state: the number of values, their mean, and their summed squared deviations. States are
    merged as in Chan, Golub & LeVeque (1983).
    """

    empty = (0.0, 0.0, 0.0)

    def state(self, values: "Tensor", sums: "Tensor") -> "Tensor":
        mean = sums / values.shape[1]
        return _rows(sums.new_full(sums.shape, values.shape[1]), mean, _squares(values, mean).double())

    def merge(self, a: "Tensor", b: "Tensor") -> "Tensor":
        (a_n, a_mean, a_squares), (b_n, b_mean, b_squares) = a, b
        n = a_n + b_n
        share, delta = b_n / n.clamp(min=1), b_mean - a_mean
        return _rows(n, a_mean + delta * share, a_squares + (b_squares + delta.square() * a_n * share))

    def result(self, state: "Tensor") -> "Tensor":
        n, mean, _ = state
        return mean.where(n > 0, nan)


class Std(Mean):
    """The population standard deviation (ddof 0) over classes or pairs."""

    def scale_of(self, scale: Scale) -> float | None:
        """Return the exponent as other measures do; 0 for the scale "log": adding a constant does not change a std."""
        return 0.0 if isinstance(scale, str) else super().scale_of(scale)

    def result(self, state: "Tensor") -> "Tensor":
        n, _, squares = state
        return (squares / n).sqrt()


class CoV(Mean):
    """The coefficient of variation, std / mean, with the mean's sign; nan where the mean is 0."""

    def scale_of(self, scale: Scale) -> float | None:
        """Return 0 if h → s·h multiplies all values by a power of s, because std / mean then stays equal; else None."""
        return None if scale is None or isinstance(scale, str) else 0.0

    def result(self, state: "Tensor") -> "Tensor":
        n, mean, squares = state
        return ((squares / n).sqrt() / mean).where(mean != 0, nan)


class _OfLogs(Measure):
    """A measure of logarithms or exponentials of values. It stays equal under h → s·h only if the values stay equal."""

    def scale_of(self, scale: Scale) -> float | None:
        """Return 0 if h → s·h leaves all values, and so the measurement, unchanged (``scale`` is 0); otherwise None."""
        return 0.0 if scale == 0 else None


class MeanLog(_OfLogs):
    """The mean natural logarithm; values of exactly 0 are skipped and counted."""

    empty = (0.0, 0.0, 0.0)

    def state(self, values: "Tensor", sums: "Tensor") -> "Tensor":
        """Return the number of values that are not 0, the sum of their logarithms, and the number of zeros."""
        logs = values.log()
        total, zeros = logs.sum(dim=1, dtype=sums.dtype), sums.new_zeros(len(sums))
        if not bool((total > -inf).all()):  # a zero, or a negative value, whose logarithm is nan
            nothing = values == 0
            total = logs.masked_fill(nothing, 0).sum(dim=1, dtype=sums.dtype)
            zeros = nothing.sum(dim=1, dtype=sums.dtype)
        return _rows(values.shape[1] - zeros, total, zeros)

    def result(self, state: "Tensor") -> "Tensor":
        return state[1] / state[0]

    def skipped(self, state: "Tensor") -> "Tensor":
        """Return the number of zeros."""
        return state[2]


@dataclass(frozen=True)
class LogMeanExp(_OfLogs):
    """(1/s)·log mean exp(s·x) of the values x, computed without overflow.

    It is the logarithm of a power mean of exp(x). The state has the number of values and their log-sum-exp.

    Attributes:
        exponent: s, a number or a function of C and d; the measurement is null if s ≤ 0.
    """

    empty = (0.0, -inf)

    _: KW_ONLY
    exponent: Any = 1.0

    def at(self, C: int, d: int) -> "Measure":
        """Return the measure with its exponent for C classes in d dimensions."""
        return replace(self, exponent=limit_at(self.exponent, C, d) or 0.0)

    def state(self, values: "Tensor", sums: "Tensor") -> "Tensor":
        powers = values * (self.exponent * math.log2(math.e))  # powers of 2: exp2 is up to four times as fast as exp
        top = powers.amax(dim=1, keepdim=True)
        log_sum = powers.sub_(top).exp2_().sum(dim=1).log_() + top.squeeze(1) * math.log(2)
        return _rows(sums.new_full(sums.shape, values.shape[1]), log_sum.double())

    def merge(self, a: "Tensor", b: "Tensor") -> "Tensor":
        return _rows(a[0] + b[0], a[1].logaddexp(b[1]))

    def result(self, state: "Tensor") -> "Tensor":
        n, log_sum = state
        return (log_sum - n.log()) / self.exponent if self.exponent > 0 else n * nan


class Max(Measure):
    """The largest value over classes or pairs."""

    empty = (-inf,)

    def state(self, values: "Tensor", sums: "Tensor") -> "Tensor":
        return values.amax(dim=1).double().unsqueeze(0)

    def merge(self, a: "Tensor", b: "Tensor") -> "Tensor":
        return a.maximum(b)

    def result(self, state: "Tensor") -> "Tensor":
        return state[0].where(state[0].isfinite(), nan)


class Min(Max):
    """The smallest value over classes or pairs."""

    empty = (inf,)

    def state(self, values: "Tensor", sums: "Tensor") -> "Tensor":
        return values.amin(dim=1).double().unsqueeze(0)

    def merge(self, a: "Tensor", b: "Tensor") -> "Tensor":
        return a.minimum(b)


def limit_at(
    limit: Limit, classes: int, dim: int | float, measured: Mapping[str, float | None] | None = None
) -> float | None:
    """Return the value of a limit for C classes in d dimensions.

    ``measured`` is a row's measurements, for a limit that depends on them.

    Raises:
        PluginError: The limit's function raised an exception, or did not return a number.

    >>> limit_at(lambda C: -1 / (C - 1), 5, 2)
    -0.25
    """
    if not callable(limit):
        return None if limit is None else float(limit)
    given = {"C": classes, "d": dim, "measured": measured or {}}
    try:
        value = limit(**{name: given[name] for name in signature(limit).parameters if name in given})
        return None if value is None else float(value)
    except Exception as error:  # a plugin's function
        raise PluginError(f"{called(limit)} failed for C = {classes}, d = {dim}: {error_line(error)}") from error


def _rows(*rows: "Tensor") -> "Tensor":
    import torch

    return torch.stack(rows)


def _squares(values: "Tensor", mean: "Tensor") -> "Tensor":
    """Return the sums of squared deviations from the means, shape (G,)."""
    import torch

    if len(values) == 1 and values.dtype == torch.float64:  # one dot product is five times as fast
        total = torch.dot(values[0], values[0])
        squares = total - values.shape[1] * mean.square()
        if bool(squares > _CANCELLED * total):
            return squares
    centred = values - mean.to(values).unsqueeze(1)
    return torch.linalg.vecdot(centred, centred) if len(centred) > 1 else torch.dot(centred[0], centred[0]).view(1)
