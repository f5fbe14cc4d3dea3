"""Fill the statistics of plugins during a pass. If a statistic fails, the run stops, and can be resumed without it."""

from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor

from collapse.errors import PluginError
from collapse.plugin.guarding import call
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.statistic import Batch, Side, Statistic


class PluginStatistics:
    """The statistics that plugins fill during one pass over a text.

    Args:
        statistic_types: Subclasses of Statistic; one empty instance of each is created.
    """

    def __init__(self, statistic_types: Iterable[type[Statistic]] = ()) -> None:
        self._held = {kind.name: kind() for kind in statistic_types}

    def __iter__(self) -> Iterator[Statistic]:
        return iter(self._held.values())

    def __len__(self) -> int:
        return len(self._held)

    @property
    def versions(self) -> dict[str, int]:
        """Version of each statistic, by name."""
        return {name: each.version for name, each in self._held.items()}

    @property
    def makers(self) -> dict[str, str]:
        """Distribution (Python package), file or module of the plugin that fills each statistic, by statistic name."""
        return {name: plugins().owner(type(each).__module__).maker for name, each in self._held.items()}

    def take(self, batch: Batch) -> None:
        """Update every statistic with a batch.

        Raises:
            PluginError: A statistic raises an exception, or writes to the batch.
        """
        for each in self:
            of_batch = type(each)(batch.classes.clone(), batch.h.shape[1])
            try:
                call(of_batch.update, batch)
                of_batch.check(batch.h.shape[1])
            except PluginError as error:
                raise PluginError(
                    f"plugin {plugins().owner(type(each).__module__).name}: statistic {each.name}: {error}. Correct "
                    f"the plugin, or add --without {each.name}, and run the same command again to resume after the "
                    "last saved slice"
                ) from error
            each.merge(of_batch)  # without sides: the batch's deviations already include the term between the means

    def merge(self, other: "PluginStatistics", mine: Side | None = None, theirs: Side | None = None) -> None:
        """Merge each statistic of ``other`` into the statistic of the same name; see :meth:`Statistic.merge`."""
        for each in self:
            each.merge(other._held[each.name], mine, theirs)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Return each statistic's complete state. The tensors are copies: a plugin's own may share memory."""
        return {each.name: {name: x.detach().clone() for name, x in each.tensors().items()} for each in self}

    def state(self) -> dict[str, Tensor]:
        """Return the tensors of :meth:`tensors` in a flat dictionary with keys ``<statistic>/<tensor>``."""
        return {f"{name}/{key}": value for name, held in self.tensors().items() for key, value in held.items()}

    @classmethod
    def from_state(
        cls, state: Mapping[str, Tensor], device: str | torch.device, statistic_types: Iterable[type[Statistic]]
    ) -> "PluginStatistics":
        """Restore statistics from the result of :meth:`state`."""
        made = cls(statistic_types)
        for key, value in state.items():
            name, _, tensor = key.partition("/")
            if tensor and name in made._held:
                setattr(made._held[name], tensor, value.to(device))
        return made


def conflict(kind: type[Statistic], version: int | None, maker: str | None) -> str:
    """Return how the installed plugin differs from the plugin that filled a stored statistic.

    The result is the end of a sentence, or "" if the plugins do not differ. ``version`` and ``maker`` are those of the
    stored statistic. A ``maker`` of None is not compared.
    """
    if version != kind.version:
        return f"has version {version} of it, but the installed plugin has version {kind.version}"
    now = plugins().owner(kind.__module__).maker
    if maker is not None and maker != now:
        return f"filled it with the plugin of {maker}, but the installed plugin is of {now}"
    return ""
