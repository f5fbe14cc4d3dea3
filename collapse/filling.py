"""Plugin statistics while they are filled: one that fails is dropped with a warning, and the collection goes on."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from collapse.errors import PluginError
from collapse.feeding import Feed, merging
from collapse.guarding import Guest, described
from collapse.plugin_manager import plugins

if TYPE_CHECKING:
    from collapse.accumulate import Batch, Side, Statistic
    from collapse.partial import Progress

log = logging.getLogger("collapse")

_MOST_DIMENSIONS = 8
_DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
)


class Filled:
    """The statistics of one phase, while they are filled.

    Args:
        statistics: Those to fill.
        dropped: Those of an earlier run that failed, and why.

    Attributes:
        dropped: Why a statistic is no longer filled, by name.
    """

    def __init__(self, statistics: Iterable["Statistic"] = (), dropped: Mapping[str, str] | None = None) -> None:
        self._held = {each.name: each for each in statistics}
        self.dropped = dict(dropped or {})
        self._seen = False

    def __iter__(self) -> Iterator["Statistic"]:
        return iter(list(self._held.values()))

    def __len__(self) -> int:
        return len(self._held)

    @property
    def versions(self) -> dict[str, int]:
        """Versions of the statistics that are filled."""
        return {name: each.version for name, each in self._held.items()}

    def take(self, make: "Callable[[], Batch]", mine: "Side | None" = None) -> None:
        """Take in a batch.

        Args:
            make: Makes the batch in memory that nothing else reads; called again where a statistic wrote to it.
            mine: Counts and means before this batch, in such memory too; None in the validation phase.
        """
        feed = Feed(make, closely=not self._seen or len(self) > 1)  # one alone can spoil its own numbers only
        self._seen = True
        parts = []
        for each in self:
            with self._costing(each.name, "update"):
                part = type(each)()
                feed.update(part)
                parts.append(part)
        self.merge(Filled(parts), mine or feed.side, feed.side)

    def merge(self, other: "Filled", mine: "Side", theirs: "Side") -> None:
        """Take in other statistics of the same kinds; nothing else may read the memory of the sides."""
        last = [*self][-1:]
        for each in self:
            with self._costing(each.name, "merge"):
                if each.name not in other._held:
                    raise PluginError("it is in one of two sides only")
                with merging(mine, theirs, copy=each not in last) as sides:
                    each.merge(other._held[each.name], *sides)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """The tensors of each statistic, which are its whole state."""
        found = {}
        for each in self:
            with self._costing(each.name, "tensors"):
                found[each.name] = _whole_state(each)
        return found

    def state(self) -> dict[str, Tensor]:
        """The same in one level: ``<statistic>/<tensor>``."""
        return {f"{name}/{key}": value for name, held in self.tensors().items() for key, value in held.items()}

    @classmethod
    def begin(cls, kinds: Iterable[type["Statistic"]]) -> "Filled":
        """Empty statistics."""
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
        """The statistics that gave :meth:`state`."""
        made = cls([], dropped)
        for kind in kinds:
            held = {key.split("/", 1)[1]: value for key, value in state.items() if key.startswith(f"{kind.name}/")}
            with made._costing(kind.name, "from_tensors"):
                made._held[kind.name] = kind.from_tensors({key: value.to(device) for key, value in held.items()})
        return made

    @contextmanager
    def _costing(self, name: str, function: str) -> Iterator[None]:
        try:
            with Guest():
                yield
        except Exception as error:  # a plugin may do anything
            self._held.pop(name, None)
            drop(self.dropped, name, f"{function}(): {described(error)}")


def drop(dropped: dict[str, str], name: str, reason: str) -> None:
    """Note that a statistic is not filled by this collection, and warn of it."""
    dropped[name] = reason
    plugin = plugins().origins.get(("collapse_statistics", name), "(not installed)")
    log.warning("plugin %s: statistic %s is not collected: %s", plugin, name, reason)


def resumable(
    kinds: Sequence[type["Statistic"]], place: "Progress", state: Mapping[str, Tensor]
) -> tuple[list[type["Statistic"]], dict[str, str]]:
    """Which statistics a resumed phase goes on filling, and why it drops the others: those not filled from its start.

    Args:
        kinds: The phase's statistics as they are wanted now.
        place: How far the earlier run came.
        state: Its tensors.
    """
    dropped, alive = dict(place.dropped), []
    held = {key.split("/")[0] for key in state if "/" in key}
    versions = place.identity.get("statistics") or {}
    for name in sorted(held - {kind.name for kind in kinds} - set(dropped)):
        drop(dropped, name, "it is no longer asked for")
    for kind in kinds:
        if kind.name in dropped:
            continue
        if kind.name not in held:
            drop(dropped, kind.name, "the earlier run, which is resumed, did not fill it")
            continue
        differ = conflict(kind, versions.get(kind.name), place.made_by.get(kind.name))
        if differ:
            drop(dropped, kind.name, f"the earlier run, which is resumed, {differ}")
        else:
            alive.append(kind)
    return alive, dropped


def conflict(kind: type["Statistic"], version: int | None, maker: str | None) -> str:
    """Why what was filled as a version, by a distribution's plugin, is not what the installed one fills; "" if it is.

    Stores of earlier versions do not say whose plugin filled a statistic: that is not compared.
    """
    if version != kind.version:
        return f"filled version {version}, and the plugin installed is at version {kind.version}"
    now = plugins().maker(kind)
    if maker is not None and maker != now:
        return f"filled it by the plugin of {maker}, and the one installed is of {now}"
    return ""


def makers(kinds: Iterable[type["Statistic"]]) -> dict[str, str]:
    """Whose plugin fills each statistic, by name."""
    return {kind.name: plugins().maker(kind) for kind in kinds}


def _whole_state(statistic: "Statistic") -> dict[str, Tensor]:
    """The tensors of a statistic, which must hold all of its state and be such as a file can hold."""
    tensors = dict(statistic.tensors())
    for key, value in tensors.items():
        if not isinstance(key, str) or not key.isprintable() or key == "__metadata__":  # safetensors' own word
            raise PluginError(f"{key!a:.40} cannot name a tensor of a file")
        if not isinstance(value, Tensor):
            raise PluginError(f"{key} is no tensor")
        if value.layout != torch.strided or value.dtype not in _DTYPES or value.dim() > _MOST_DIMENSIONS:
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
    return (a == b) | ((a != a) & (b != b))  # NaN is as it was
