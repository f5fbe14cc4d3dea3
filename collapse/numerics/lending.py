"""Lend statistics to plugins, one after another, so that each sees the unchanged statistics.

No plugin gets the caller's statistics: they are copied once, or read again from the store. Each plugin gets aliases of
the copies, so that it can replace or reshape its tensors. A write into the memory itself is detected: the plugin fails,
and new copies are made.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from collapse.numerics.statistics import EmbeddingStatistics
from collapse.plugin.guarding import Watch, Wrote, contents, differing, reading


class Lender:
    """The statistics that are lent to plugins.

    Args:
        fresh: Returns the statistics in tensors that nothing else refers to.
        needs: The declared needs of the plugins, which are read or computed before the first plugin is called.

    Attributes:
        s: The statistics, for our own use.
        renewed: Whether they were replaced after a write. An earlier write without a version counter is then unknown.
    """

    def __init__(self, fresh: Callable[[], EmbeddingStatistics], needs: Iterable[str]) -> None:
        self._fresh, self._needs = fresh, set(needs)
        self.renewed = False
        self._make()

    def renew(self) -> None:
        """Replace the copies, to which a plugin may have written."""
        self.renewed = True
        self._make()

    def _make(self) -> None:
        self.s = _mapped(self._fresh(), lambda tensor: tensor)  # plugin statistics are not read before first use
        for need in self._needs & set(self.s.extra):
            self.s.statistic(need)  # now, so that an altered file is not reported as a plugin's failure
        if "means" in self._needs:
            settle(self.s)
        tensors = tensors_of(self.s)
        self._watch = Watch(tensors)
        self._before = contents(tensors)

    def call(self, function: Callable[[EmbeddingStatistics], Any]) -> Any:
        """Call a plugin's function with the statistics, and return its result.

        Raises:
            Wrote: It wrote to the statistics, which have been restored.
            Exception: Any exception of the function.
        """
        try:
            with reading(self._watch):
                return function(_lent(self.s))
        except Wrote:
            self.renew()
            raise

    def overwritten(self) -> list[str]:
        """Return the names of the statistics whose content changed, also if no version counter shows it."""
        return differing(self._before, contents(self._watch.tensors))


def settle(s: EmbeddingStatistics) -> EmbeddingStatistics:
    """Compute every cached property now, so that no plugin computes one first."""
    for name, each in vars(EmbeddingStatistics).items():
        if isinstance(each, cached_property):
            getattr(s, name)
    return s


def copied(s: EmbeddingStatistics) -> EmbeddingStatistics:
    """Return a copy with its own tensors; plugin statistics are copied when they are read."""
    return _mapped(replace(s), torch.clone)


def tensors_of(s: EmbeddingStatistics) -> dict[str, Tensor]:
    """Return all tensors of the statistics by name: fields, cached properties, and plugin statistics read so far."""
    found: dict[str, Tensor] = {}
    for name, value in vars(s).items():
        if isinstance(value, Tensor):
            found[name] = value
        elif is_dataclass(value):
            found |= {f"{name}.{key}": each for key, each in vars(value).items() if isinstance(each, Tensor)}
    read = s.extra.read if isinstance(s.extra, _Extra) else s.extra
    for name, tensors in read.items():
        found |= {f"{name}.{key}": each for key, each in tensors.items() if isinstance(each, Tensor)}
    return found


def _lent(s: EmbeddingStatistics) -> EmbeddingStatistics:
    """Return aliases, which share memory and version counters but can be replaced and reshaped."""
    return _mapped(s, Tensor.detach)


def _mapped(s: Any, change: Callable[[Tensor], Tensor]) -> Any:
    made = copy.copy(s)
    for name, value in vars(s).items():
        if isinstance(value, Tensor):
            vars(made)[name] = change(value)
        elif is_dataclass(value):
            vars(made)[name] = _mapped(value, change)
        elif name == "extra":
            vars(made)[name] = _Extra(value, change)
    return made


class _Extra(Mapping[str, Any]):
    """Plugin statistics with their tensors changed when they are first read."""

    def __init__(self, source: Mapping[str, Any], change: Callable[[Tensor], Tensor]) -> None:
        self.read: dict[str, dict[str, Any]] = {}
        self._source, self._change = source, change

    def __getitem__(self, name: str) -> dict[str, Any]:
        if name not in self.read:
            # a statistic that a plugin reads without declaring it is not watched, so the plugin gets its own copy
            held, change = self._source, self._change
            if isinstance(held, _Extra) and name not in held.read:
                held, change = held._source, torch.clone  # past the lender's tensors, which all would share
            self.read[name] = {
                key: change(value) if isinstance(value, Tensor) else copy.deepcopy(value)
                for key, value in held[name].items()
            }
        return self.read[name]

    def __contains__(self, name: object) -> bool:
        return name in self._source

    def __iter__(self) -> Iterator[str]:
        return iter(self._source)

    def __len__(self) -> int:
        return len(self._source)
