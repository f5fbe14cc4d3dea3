"""Lend statistics to plugins, one after another, so that each sees the unchanged statistics.

No plugin gets the caller's statistics: they are copied once, or read again from the store. A write into their memory,
which the tensors' version counters show, fails the plugin, and they are read again for the next one.
"""

from collections import ChainMap
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass, replace
from functools import cached_property
from typing import Any

from torch import Tensor

from collapse.numerics.statistics import EmbeddingStatistics
from collapse.plugin.asking import written_derived
from collapse.plugin.guarding import Watch, Wrote, reading


class Lender:
    """The statistics that are lent to plugins.

    Args:
        fresh: Returns the statistics in tensors that nothing else refers to.
        needs: The declared needs of the plugins, which are read or computed before the first plugin is called.

    Attributes:
        s: The statistics.
    """

    def __init__(self, fresh: Callable[[], EmbeddingStatistics], needs: Iterable[str]) -> None:
        self._fresh, self._needs = fresh, set(needs)
        self.renew()

    def renew(self) -> None:
        """Replace the statistics, to which a plugin has written."""
        s = self._fresh()
        # read now, so that an altered file is not reported as a plugin's failure
        read = {
            need: {key: each.clone() for key, each in s.statistic(need).items()} for need in self._needs & {*s.extra}
        }
        self.s = replace(s, extra=ChainMap(read, s.extra))  # type: ignore[arg-type]  # it is only read
        if "means" in self._needs:
            settle(self.s)
        self._watch = Watch(tensors_of(self.s, self._needs))

    def call(self, function: Callable[[EmbeddingStatistics], Any]) -> Any:
        """Call a plugin's function with the statistics, and return its result.

        Raises:
            Wrote: It wrote to the statistics, which have been replaced.
            Exception: Any exception of the function.
        """
        try:
            with reading(self._watch):
                value = function(self.s)
            if written := written_derived(self.s):
                raise Wrote(written)
            return value
        except Wrote:
            self.renew()
            raise


def settle(s: EmbeddingStatistics) -> EmbeddingStatistics:
    """Compute every cached property now, so that no plugin computes one first."""
    for name, each in vars(EmbeddingStatistics).items():
        if isinstance(each, cached_property):
            getattr(s, name)
    return s


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


def tensors_of(s: EmbeddingStatistics, needs: Iterable[str] = ()) -> dict[str, Tensor]:
    """Return all tensors of the statistics by name: fields, cached properties, and the plugin statistics needed."""
    found: dict[str, Tensor] = {}
    for name, value in vars(s).items():
        if isinstance(value, Tensor):
            found[name] = value
        elif is_dataclass(value):
            found |= {f"{name}.{key}": each for key, each in vars(value).items() if isinstance(each, Tensor)}
    for name in set(needs) & set(s.extra):
        found |= {f"{name}.{key}": each for key, each in s.extra[name].items() if isinstance(each, Tensor)}
    return found
