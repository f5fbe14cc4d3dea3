"""Fill plugin statistics. One that raises stops the run, which can be resumed without it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from collapse.errors import PluginError
from collapse.plugin.guarding import Watch, described, reading
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.state import DTYPES

if TYPE_CHECKING:
    from collapse.plugin.batch import Batch, Side
    from collapse.plugin.statistic import Statistic


class Filled:
    """The statistics of one phase, while they are filled.

    Every function raises PluginError if a statistic raises, or writes to a tensor that it may only read.

    Args:
        statistics: The statistics to fill.
    """

    def __init__(self, statistics: Iterable["Statistic"] = ()) -> None:
        self._held = {each.name: each for each in statistics}

    def __iter__(self) -> Iterator["Statistic"]:
        return iter(self._held.values())

    def __len__(self) -> int:
        return len(self._held)

    @property
    def versions(self) -> dict[str, int]:
        """Versions of the statistics that are filled."""
        return {name: each.version for name, each in self._held.items()}

    def take(self, batch: "Batch", mine: "Side | None" = None) -> None:
        """Update every statistic with a batch.

        Args:
            batch: The batch, in memory that the next one reuses.
            mine: Counts and means before this batch; None in the validation phase.
        """
        parts = []
        for each in self:
            with _running(each.name, "update", batch=batch):
                part = type(each)()
                part._begin(batch)
                part.update(batch)
                _check_kept(part, batch)
                part._check(batch)
                parts.append(part)
        theirs = batch.side
        self.merge(Filled(parts), mine or theirs, theirs)

    def merge(self, other: "Filled", mine: "Side", theirs: "Side") -> None:
        """Merge other statistics of the same kinds."""
        for each in self:
            with _running(each.name, "merge", mine=mine, theirs=theirs):
                each.merge(other._held[each.name], mine, theirs)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Return the tensors of each statistic, which are its complete state."""
        found = {}
        for each in self:
            with _running(each.name, "tensors"):
                found[each.name] = {key: _storable(key, value) for key, value in each.tensors().items()}
        return found

    def state(self) -> dict[str, Tensor]:
        """Return the same tensors in a flat dictionary: ``<statistic>/<tensor>``."""
        return {f"{name}/{key}": value for name, held in self.tensors().items() for key, value in held.items()}

    @classmethod
    def begin(cls, kinds: Iterable[type["Statistic"]]) -> "Filled":
        """Create empty statistics."""
        return cls([_made(kind, "__init__", kind) for kind in kinds])

    @classmethod
    def from_state(
        cls, state: Mapping[str, Tensor], device: str | torch.device, kinds: Sequence[type["Statistic"]]
    ) -> "Filled":
        """Restore statistics from the result of :meth:`state`."""
        made = []
        for kind in kinds:
            held = {key.split("/", 1)[1]: each for key, each in state.items() if key.startswith(f"{kind.name}/")}
            held = {key: value.to(device) for key, value in held.items()}
            made.append(_made(kind, "from_tensors", partial(kind.from_tensors, held)))
        return cls(made)


def conflict(kind: type["Statistic"], version: int | None, maker: str | None) -> str:
    """Say how a stored statistic's version or distribution conflicts with the installed plugin; "" if it does not."""
    if version != kind.version:
        return f"filled version {version}, and the plugin installed is at version {kind.version}"
    now = plugins().maker(kind)
    if maker is not None and maker != now:
        return f"filled it by the plugin of {maker}, and the one installed is of {now}"
    return ""


def makers(kinds: Iterable[type["Statistic"]]) -> dict[str, str]:
    """Return the distribution whose plugin fills each statistic, by name."""
    return {kind.name: plugins().maker(kind) for kind in kinds}


@contextmanager
def _running(name: str, function: str, **read: "Batch | Side") -> Iterator[None]:
    """Run a statistic's function, which may only read the tensors of ``read``."""
    tensors = {
        f"{holder}.{field}": value
        for holder, each in read.items()
        for field, value in vars(each).items()
        if isinstance(value, Tensor)
    }
    try:
        with reading(Watch(tensors)):
            yield
    except Exception as error:  # a plugin can raise anything
        plugin = plugins().origins.get(("statistic", name), "(not installed)")
        raise PluginError(
            f"plugin {plugin}: statistic {name}: {function}(): {described(error)}. Correct the plugin, or collect "
            f"without the statistic (--without {name}); the same command then goes on after the last slice written"
        ) from error


def _made(kind: type["Statistic"], function: str, make: Callable[[], "Statistic"]) -> "Statistic":
    with _running(kind.name, function):
        return make()


def _check_kept(statistic: "Statistic", batch: "Batch") -> None:
    """Raise PluginError if a statistic keeps a tensor of the batch, whose memory the next batch overwrites."""
    reused = {tensor.untyped_storage().data_ptr() for tensor in (batch.h, batch.deviations)}
    for name, value in vars(statistic).items():
        if isinstance(value, Tensor) and not value.is_sparse and value.untyped_storage().data_ptr() in reused:
            raise PluginError(f"its {name} lies in the batch, which the next one overwrites: keep a copy (x.clone())")


def _storable(key: str, value: Tensor) -> Tensor:
    """Return a copy of a tensor of a statistic, since two of its tensors may share memory."""
    if not isinstance(value, Tensor) or value.layout != torch.strided or value.dtype not in DTYPES:
        what = f"{value.dtype}, {value.layout}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise PluginError(f"{key} cannot be stored: it is {what}")
    return value.detach().clone()
