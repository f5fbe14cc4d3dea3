"""The values that parameters of metrics ask for: each computed once, and lent to all plugins.

No plugin gets the caller's statistics: they are copied, or read again from the store. A write into their memory, which
the tensors' version counters show, fails the plugin; everything derived is dropped, and the statistics are read again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from collapse.numerics.statistics import EmbeddingStatistics
from collapse.plugin.guarding import Failed, Shared, call
from collapse.plugin.metrics import Metric, Noted
from collapse.plugin.parameters import Asked, asked

_LARGE = ("unit_means", "centred_rows")
"""Values of C × d numbers that are computed again for each function: to keep them would cost more than that."""

_ATTRIBUTES = {"ids": "classes", "C": "n_classes", "d": "dim"}


@dataclass(frozen=True)
class Chunks:
    """Totals of the validation chunks, each a number of float64: what a standard error is differentiated through.

    Attributes:
        samples: Validation samples.
        agreements: Of these, those for which the linear and the nearest-class-centre rule predict the same class.
        hits: Of these, those that the argmax over the whole vocabulary predicts correctly.
        loss: Sum of cross-entropy over the whole vocabulary, in nats.
    """

    samples: Float[Tensor, ""]
    agreements: Float[Tensor, ""]
    hits: Float[Tensor, ""]
    loss: Float[Tensor, ""]


class Values:
    """The values that functions ask for, computed when they are first asked for.

    Args:
        fresh: Returns the statistics in tensors that nothing else refers to.
        totals: Totals of the validation chunks in place of those of the statistics, shape (4,).

    Attributes:
        s: The statistics.
        shared: The tensors that were lent.
    """

    def __init__(self, fresh: Callable[[], EmbeddingStatistics], totals: Tensor | None = None) -> None:
        self._fresh, self._totals = fresh, totals
        self.renew()

    def renew(self) -> None:
        """Read the statistics again, and drop what was derived from them, after a plugin has written to them."""
        self.s, self.shared = self._fresh(), Shared()
        self._held: dict[str, Any] = {}
        self._found: dict[Callable[..., Any], Any] = {}

    def value(self, function: Callable[..., Any]) -> Any:
        """Return the value of a function of the plugin; a :class:`Noted` if it, or what it asks for, has a remark.

        Raises:
            Failed: It failed, or one that it asks for; if one wrote to the statistics, they have been replaced.
        """
        if function not in self._found:
            try:
                self._found[function] = self._call(function)
            except Failed as error:
                if error.wrote:
                    self.renew()
                    error.wrote = False  # those that asked for it fail too, and need not read again
                self._found[function] = error
            self.shared.add(getattr(function, "__name__", "a function's value"), self._found[function])
        found = self._found[function]
        if isinstance(found, Failed):
            raise found
        return found

    def _call(self, function: Callable[..., Any]) -> Any:
        given = {each.name: self.argument(each, keep=each.name not in _LARGE) for each in asked(function)}
        lacking = next((each for each in given.values() if isinstance(each, Noted) and each.value is None), None)
        if lacking is not None:
            return lacking
        remarks = [each for each in given.values() if isinstance(each, Noted)]
        plain = {name: each.value if isinstance(each, Noted) else each for name, each in given.items()}
        return with_remarks(call(function, plain, self.shared), remarks)

    def argument(self, each: Asked, *, keep: bool = True) -> Any:
        """Return the value of one parameter; without ``keep``, one that is not held already is not kept."""
        if each.kind == "function":
            return self.value(each.target)
        if each.name not in self._held:
            if not keep:
                return self._read(each)
            self._held[each.name] = self._read(each)
            self.shared.add(each.name, self._held[each.name])
        return self._held[each.name]

    def _read(self, each: Asked) -> Any:
        if each.kind == "statistic":
            if each.optional and not self.s.has(each.name):
                return None
            return {name: tensor.clone() for name, tensor in self.s.statistic(each.name).items()}
        if each.name == "chunks":
            return self._chunks()
        return getattr(self.s, _ATTRIBUTES.get(each.name, each.name))

    def _chunks(self) -> Chunks | None:
        if self.s.validation is None:
            return None
        totals = self.s.validation.block_totals[:, :4].sum(dim=0) if self._totals is None else self._totals
        return Chunks(*totals.unbind())

    def influence(self, metric: Metric) -> Float[Tensor, " S"] | None:
        """Return the influence of each validation chunk, or group of them, on a metric's number; None if it has none.

        That of a chunk is the derivative of the number in the chunk's weight, times N/(N − n) · (1 − 1/S) of its n
        samples: so a ratio's is (S − 1)/S times what leaving out the chunk changes (the jackknife).

        Raises:
            Failed: A function failed.
        """
        if callable(metric.standard_error):
            found = self.value(metric.standard_error)
            return _checked(metric.standard_error, found)
        assert self.s.validation is not None  # as it has chunks
        blocks_S4 = self.s.validation.block_totals[:, :4]
        totals = blocks_S4.sum(dim=0).requires_grad_()
        with torch.enable_grad():
            found = Values(lambda: self.s, totals).value(metric.function)
            found = found.value if isinstance(found, Noted) else found
        if found is None:
            return None
        if not isinstance(found, Tensor) or not found.requires_grad:
            raise Failed(metric.function, "standard_error=True needs a number made of chunks by operations of torch")
        (slope,) = torch.autograd.grad(found, totals)
        n_S, blocks = blocks_S4[:, 0], len(blocks_S4)
        change_S = blocks_S4 @ slope
        return change_S * n_S.sum() / (n_S.sum() - n_S) * (1 - 1 / blocks) if blocks > 1 else change_S


def with_remarks(value: Any, remarks: Sequence[Noted]) -> Any:
    """Return a value with the remarks on what it was computed from."""
    if not remarks or (isinstance(value, Noted) and value.value is None):
        return value
    own = [value] if isinstance(value, Noted) else []
    text = "; ".join(dict.fromkeys(each.text for each in [*remarks, *own]))
    return Noted(value.value if isinstance(value, Noted) else value, text, remarks[0].kind)


def values_of(s: EmbeddingStatistics) -> Values:
    """Return the values of bare statistics, which are copied."""
    return Values(lambda: copied(s))


def copied(s: EmbeddingStatistics) -> EmbeddingStatistics:
    """Return a copy with its own tensors; those of plugin statistics are copied when they are lent."""

    def own(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.detach().clone()
        if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{each.name: own(getattr(value, each.name)) for each in fields(value)})
        return value

    made: EmbeddingStatistics = own(s)
    return made


def as_number(function: Callable[..., Any], value: Any) -> int | float:
    """Convert what a function returned to a number; a whole number stays an int."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63:
        return value
    try:
        return float(value.detach() if isinstance(value, Tensor) else value)
    except Exception as error:  # a text, a tensor of several numbers, …
        raise Failed(function, f"it must return a number, not {_kind(value)}") from error


def as_tensor(function: Callable[..., Any], value: Any, like: Tensor, shape: Sequence[int]) -> Tensor:
    """Convert what a function returned to a tensor of a shape, with the device and dtype of another one."""
    real = isinstance(value, Tensor) and not value.is_complex() and value.layout == torch.strided
    if not real or value.shape != torch.Size(shape):
        raise Failed(function, f"it must return a tensor of shape {tuple(shape)}, not {_kind(value)}")
    converted: Tensor = value.detach().to(like)
    return converted


def _checked(function: Callable[..., Any], found: Any) -> Tensor:
    if not isinstance(found, Tensor) or found.dim() != 1 or not bool(found.isfinite().all()):
        raise Failed(function, f"it must return the finite influence of each group, shape (S,), not {_kind(found)}")
    return found.detach().to("cpu", torch.float64, copy=True)


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{tuple(value.shape)}, {str(value.dtype).removeprefix('torch.')}"
    return f"{type(value).__name__} {value!r:.40}"
