"""Lend statistics to plugins, one after another, and have each see what was collected.

No plugin sees the caller's statistics: they are copied once, or read once more from the store. Each plugin gets
aliases of the copies, so that it can replace or reshape what it likes; a write into the memory itself is found, fails
the plugin, and the copies are made anew.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from collapse.guarding import Watch, Wrote, contents, differing, reading
from collapse.statistics import EmbeddingStatistics


class Lender:
    """The statistics that plugins are lent.

    Args:
        fresh: Gives the statistics in tensors that nobody else holds.
        needs: What the plugins declare that they read: it is read or computed before the first of them is called.

    Attributes:
        s: The statistics, for our own use.
        renewed: Whether they were made anew after a write. Nobody then knows whether another plugin had written
            to them before, unseen.
    """

    def __init__(self, fresh: Callable[[], EmbeddingStatistics], needs: Iterable[str]) -> None:
        self._fresh, self._needs = fresh, set(needs)
        self.renewed = False
        self._make()

    def renew(self) -> None:
        """Forget what a plugin may have written to."""
        self.renewed = True
        self._make()

    def _make(self) -> None:
        self.s = _mapped(self._fresh(), lambda tensor: tensor)  # plugin statistics stay unread until they are asked for
        for need in self._needs & set(self.s.extra):
            self.s.statistic(need)  # an altered file is no plugin's failure
        if "means" in self._needs:
            settle(self.s)
        tensors = tensors_of(self.s)
        self._watch = Watch(tensors)
        self._before = contents(tensors)

    def call(self, function: Callable[[EmbeddingStatistics], Any]) -> Any:
        """What a plugin's function of the statistics returns.

        Raises:
            Wrote: It wrote to the statistics, which are whole again.
            Exception: Whatever it raised.
        """
        try:
            with reading(self._watch):
                return function(_lent(self.s))
        except Wrote:
            self.renew()
            raise

    def overwritten(self) -> list[str]:
        """Names of the statistics that do not hold what they held, although no version counter says so."""
        return differing(self._before, contents(self._watch.tensors))


def settle(s: EmbeddingStatistics) -> EmbeddingStatistics:
    """Compute every cached property now, so that none is first computed by a plugin."""
    for name, each in vars(EmbeddingStatistics).items():
        if isinstance(each, cached_property):
            getattr(s, name)
    return s


def copied(s: EmbeddingStatistics) -> EmbeddingStatistics:
    """The same in tensors of its own; plugin statistics are copied when they are read."""
    return _mapped(replace(s), torch.clone)


def tensors_of(s: EmbeddingStatistics) -> dict[str, Tensor]:
    """Every tensor of some statistics by name: fields, cached properties, what was read of plugin statistics."""
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
    """Aliases, which share memory and version counters but can be replaced and reshaped at will."""
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
            # what a plugin reads without having declared it is not watched: it gets a copy of its own
            unwatched = isinstance(self._source, _Extra) and name not in self._source.read
            change = torch.clone if unwatched else self._change
            self.read[name] = {
                key: change(value) if isinstance(value, Tensor) else copy.deepcopy(value)
                for key, value in self._source[name].items()
            }
        return self.read[name]

    def __contains__(self, name: object) -> bool:
        return name in self._source

    def __iter__(self) -> Iterator[str]:
        return iter(self._source)

    def __len__(self) -> int:
        return len(self._source)
