"""Fill plugin statistics: one that fails is dropped with a warning, and the collection continues."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from collapse.errors import PluginError
from collapse.plugin.feeding import Feed, merging
from collapse.plugin.guarding import described
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.state import DTYPES, MOST_DIMENSIONS

if TYPE_CHECKING:
    from collapse.plugin.batch import Batch, Side
    from collapse.plugin.statistic import Statistic

log = logging.getLogger("collapse")


class Filled:
    """The statistics of one phase, while they are filled.

    Args:
        statistics: The statistics to fill.
        dropped: Statistics that failed in an earlier run, with the reason.

    Attributes:
        dropped: Why a statistic is no longer filled, by name.
    """

    def __init__(self, statistics: Iterable["Statistic"] = (), dropped: Mapping[str, str] | None = None) -> None:
        self._held = {each.name: each for each in statistics}
        self.dropped = dict(dropped or {})

    def __iter__(self) -> Iterator["Statistic"]:
        return iter(list(self._held.values()))

    def __len__(self) -> int:
        return len(self._held)

    @property
    def versions(self) -> dict[str, int]:
        """Versions of the statistics that are filled."""
        return {name: each.version for name, each in self._held.items()}

    def take(self, make: "Callable[[], Batch]", mine: "Side | None" = None) -> None:
        """Update every statistic with a batch.

        Args:
            make: Makes the batch in memory that nothing else reads; called again if a statistic wrote to it.
            mine: Counts and means before this batch, also in such memory; None in the validation phase.
        """
        feed = Feed(make)
        parts = []
        for each in self:
            with self._costing(each.name, "update"):
                part = type(each)()
                feed.update(part)
                parts.append(part)
        self.merge(Filled(parts), mine or feed.side, feed.side)

    def merge(self, other: "Filled", mine: "Side", theirs: "Side") -> None:
        """Merge other statistics of the same kinds; nothing else may read the memory of the sides."""
        last = [*self][-1:]
        for each in self:
            with self._costing(each.name, "merge"):
                if each.name not in other._held:
                    raise PluginError("it is in one of two sides only")
                with merging(mine, theirs, copy=each not in last) as sides:
                    each.merge(other._held[each.name], *sides)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Return the tensors of each statistic, which are its complete state."""
        found = {}
        for each in self:
            with self._costing(each.name, "tensors"):
                found[each.name] = _whole_state(each)
        return found

    def state(self) -> dict[str, Tensor]:
        """Return the same tensors in a flat dictionary: ``<statistic>/<tensor>``."""
        return {f"{name}/{key}": value for name, held in self.tensors().items() for key, value in held.items()}

    @classmethod
    def begin(cls, kinds: Iterable[type["Statistic"]]) -> "Filled":
        """Create empty statistics."""
        made = cls()
        for kind in kinds:
            with made._costing(kind.name, "__init__"):
                made._held[kind.name] = kind()
        return made

    @classmethod
    def from_state(
        cls,
        state: Mapping[str, Tensor],
        device: str | torch.device,
        kinds: Sequence[type["Statistic"]],
        dropped: Mapping[str, str] | None = None,
    ) -> "Filled":
        """Restore statistics from the result of :meth:`state`."""
        made = cls([], dropped)
        for kind in kinds:
            held = {key.split("/", 1)[1]: value for key, value in state.items() if key.startswith(f"{kind.name}/")}
            with made._costing(kind.name, "from_tensors"):
                made._held[kind.name] = kind.from_tensors({key: value.to(device) for key, value in held.items()})
        return made

    @contextmanager
    def _costing(self, name: str, function: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # a plugin can raise anything
            self._held.pop(name, None)
            drop(self.dropped, name, f"{function}(): {described(error)}")


def drop(dropped: dict[str, str], name: str, reason: str) -> None:
    """Record that this collection does not fill a statistic, and warn about it."""
    dropped[name] = reason
    plugin = plugins().origins.get(("collapse_statistics", name), "(not installed)")
    log.warning("plugin %s: statistic %s is not collected: %s", plugin, name, reason)


def conflict(kind: type["Statistic"], version: int | None, maker: str | None) -> str:
    """Say how a stored statistic's version or distribution conflicts with the installed plugin; "" if it does not.

    Stores of earlier versions do not record the distribution: then it is not compared.
    """
    if version != kind.version:
        return f"filled version {version}, and the plugin installed is at version {kind.version}"
    now = plugins().maker(kind)
    if maker is not None and maker != now:
        return f"filled it by the plugin of {maker}, and the one installed is of {now}"
    return ""


def makers(kinds: Iterable[type["Statistic"]]) -> dict[str, str]:
    """Return the distribution whose plugin fills each statistic, by name."""
    return {kind.name: plugins().maker(kind) for kind in kinds}


def _whole_state(statistic: "Statistic") -> dict[str, Tensor]:
    """Return the tensors of a statistic, after checking that they hold its complete state and can be stored."""
    tensors = dict(statistic.tensors())
    for key, value in tensors.items():
        if not isinstance(key, str) or not key.isprintable() or key == "__metadata__":  # safetensors' own word
            raise PluginError(f"{key!a:.40} cannot name a tensor of a file")
        if not isinstance(value, Tensor):
            raise PluginError(f"{key} is not a tensor")
        if value.layout != torch.strided or value.dtype not in DTYPES or value.dim() > MOST_DIMENSIONS:
            raise PluginError(f"{key} cannot be stored: {value.dtype}, {value.layout}, {value.dim()} dimensions")
    again = type(statistic).from_tensors({key: value.detach() for key, value in tensors.items()})
    before, after = _attributes(statistic), _attributes(again)
    lost = [name for name in sorted({*before, *after}) if not _same(before.get(name), after.get(name))]
    if lost or not _same(tensors, dict(again.tensors())):
        raise PluginError(
            f"its state {', '.join(lost) or 'as a whole'} would be lost: keep it in tensors, "
            "or let tensors() and from_tensors() hold it"
        )
    return {key: value.detach().clone() for key, value in tensors.items()}  # two may be of one memory


def _attributes(statistic: "Statistic") -> dict[str, Any]:
    return dict(getattr(statistic, "__dict__", {}))


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and bool(_equal(a, b.to(a.device)).all())
    if type(a) is not type(b):
        return False
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if type(a).__eq__ is object.__eq__:
        return hasattr(a, "__dict__") and _same(vars(a), vars(b))
    equal = _equal(a, b)
    return bool(equal.all() if hasattr(equal, "all") else equal)


def _equal(a: Any, b: Any) -> Any:
    return (a == b) | ((a != a) & (b != b))  # NaN equals NaN
