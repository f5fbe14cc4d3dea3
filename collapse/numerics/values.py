"""Compute the values of the parameters of plugin functions; each value is computed once and shared by all plugins.

Plugins never get the caller's tensors. If a plugin's function writes to a shared tensor, which plugin/guarding.py
detects, all other metrics are evaluated again.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from collapse.numerics.statistics import EmbeddingStatistics
from collapse.numerics.validation_totals import ValidationTotals
from collapse.plugin.guarding import Failed, call
from collapse.plugin.metrics import Noted
from collapse.plugin.parameters import Asked, asked

_LARGE = ("unit_means", "centred_rows")
"""Values of shape (C, d) that are computed again for each function, because keeping them would take too much memory.

The pair sweep keeps them, because every tile needs them.
"""

_ATTRIBUTES = {"ids": "classes", "C": "n_classes", "d": "dim"}


class Values:
    """The values of the parameters of plugin functions. Each value is computed at its first use.

    Args:
        s: The statistics, in tensors that nothing else uses.
        totals: Totals over the validation text, shape (4,), which replace those in ``s``. Plugin functions get them as
            their parameter ``chunks`` (a historical name).
    """

    def __init__(self, s: EmbeddingStatistics, totals: Tensor | None = None) -> None:
        self.s = s
        self._held: dict[str, Any] = {} if totals is None else {"chunks": ValidationTotals(*totals.unbind())}
        self._found: dict[Callable[..., Any], Any] = {}

    def value(self, function: Callable[..., Any]) -> Any:
        """Return a plugin function's value.

        The result is a :class:`Noted` if this value or the value of a parameter has a remark.

        Raises:
            Failed: The function, or another function that is its parameter, failed.
        """
        if function not in self._found:
            try:
                found = call_by_names(function, lambda each: self.argument(each, keep=each.name not in _LARGE))
            except Failed as error:
                found = error
            self._found[function] = found
        if isinstance(self._found[function], Failed):
            raise self._found[function]
        return self._found[function]

    def argument(self, each: Asked, *, keep: bool = True) -> Any:
        """Return the value of one parameter; without ``keep``, a newly computed value is not stored."""
        if each.kind == "function":
            return self.value(each.target)
        if each.name in self._held:
            return self._held[each.name]
        found = self._read(each)
        if keep:
            self._held[each.name] = found
        return found

    @torch.no_grad()
    def _read(self, each: Asked) -> Any:
        if each.kind == "statistic":
            if each.optional and not self.s.has(each.name):
                return None
            return MappingProxyType({name: x.clone() for name, x in self.s.statistic(each.name).items()})
        if each.name != "chunks":
            return getattr(self.s, _ATTRIBUTES.get(each.name, each.name))
        if self.s.validation is None:
            return None
        return ValidationTotals(*self.s.validation.block_totals[:, :4].sum(dim=0).unbind())


def call_by_names(function: Callable[..., Any], argument: Callable[[Asked], Any]) -> Any:
    """Call a function with the values of its parameters, and add the remarks on these values to its result.

    ``argument`` returns the value of a parameter, with its remark if it has one. If a value is missing, return only the
    remark that says why.

    Raises:
        Failed: The function raised an exception.
        Wrote: The function wrote to a shared value.
    """
    given = {each.name: argument(each) for each in asked(function)}
    remarks = [each for each in given.values() if isinstance(each, Noted)]
    for remark in remarks:
        if remark.value is None:
            return remark
    value = call(function, **{name: plain(each) for name, each in given.items()})
    if not remarks:
        return value
    if isinstance(value, Noted):
        if value.value is None:
            return value
        remarks.append(value)
    text = "; ".join(dict.fromkeys(each.text for each in remarks))
    return Noted(plain(value), text, remarks[0].kind)


def plain(value: Any) -> Any:
    """Return a value without its remark."""
    return value.value if isinstance(value, Noted) else value


def remarked(given: Any, value: Any) -> Any:
    """Return ``value``, with the remark of ``given`` if ``given`` has one."""
    return Noted(value, given.text, given.kind) if isinstance(given, Noted) else value


def values_of(s: EmbeddingStatistics) -> Values:
    """Return a Values object for a copy of the given statistics."""
    return Values(copied(s))


@torch.no_grad()
def copied(s: EmbeddingStatistics) -> EmbeddingStatistics:
    """Return a copy with its own tensors; tensors of plugin statistics are copied when a function gets them."""
    return replace(deepcopy(replace(s, extra={})), extra=s.extra)


def as_number(function: Callable[..., Any], value: Any) -> int | float:
    """Convert what a function returned to a number; an int stays an int if it fits into 64 bits.

    Raises:
        Failed: ``value`` is not a number.
    """
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63:
        return value
    try:
        return float(value.detach() if isinstance(value, Tensor) else value)
    except Exception as error:  # a text, a tensor of several numbers, …
        raise Failed(function, f"it must return a number, not {kind_of(value)}") from error


def as_tensor(function: Callable[..., Any], value: Any, like: Tensor, shape: Sequence[int]) -> Tensor:
    """Return a tensor that a function returned, with the device and dtype of ``like`` and without its gradient.

    Raises:
        Failed: ``value`` is not a real tensor of this shape.
    """
    if not isinstance(value, Tensor) or value.is_complex() or value.shape != torch.Size(shape):
        raise Failed(function, f"it must return a tensor of shape {tuple(shape)}, not {kind_of(value)}")
    converted: Tensor = value.detach().to(like)
    return converted


def kind_of(value: Any) -> str:
    """Describe a returned value of the wrong kind, for a message."""
    if isinstance(value, Tensor):
        return f"{tuple(value.shape)}, {str(value.dtype).removeprefix('torch.')}"
    return f"{type(value).__name__} {value!r:.40}"
