"""Accumulate class moments and plugin statistics; on a GPU, buffer batches until there are many samples."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from collapse.errors import CollapseError
from collapse.numerics.class_moments import ClassMoments
from collapse.numerics.dense_moments import IGNORED, refuse_labels
from collapse.plugin.plugin_statistics import PluginStatistics
from collapse.plugin.statistic import Statistic

_WAITING = 8192
"""Number of samples to buffer on a GPU. Each time that labels are sorted, the CPU must wait for the GPU."""


class BufferedMoments:
    """Accumulate class moments and plugin statistics; on a GPU, buffer batches before adding them.

    Errors for wrong labels and embeddings are raised by :meth:`state`, not by :meth:`add`.

    ``classes`` is the number of classes (None if unknown); ``statistic_types`` are the plugin statistics to fill.
    """

    def __init__(
        self, classes: int | None, dim: int, device: torch.device, statistic_types: Sequence[type[Statistic]]
    ) -> None:
        self.classes, self._statistic_types = classes, statistic_types
        self._moments = ClassMoments(dim, device, PluginStatistics(statistic_types))
        self._batches: list[tuple[Tensor, Tensor]] = []
        self._wrong_labels, self._wrong_label, self._problem = 0, 0, ""

    def add(self, h_Bd: Tensor, y_B: Tensor) -> None:
        """Add a batch of embeddings of any float dtype with their labels."""
        on_cpu = self._moments.device.type == "cpu"
        self._batches.append((h_Bd, y_B) if on_cpu else (h_Bd.clone(), y_B.clone()))
        if on_cpu or sum(len(y) for _, y in self._batches) >= _WAITING:
            self._fill()

    def _fill(self) -> None:
        h_Bd, y_B = (torch.cat(each) for each in zip(*self._batches, strict=True))
        self._batches.clear()
        wrong_B = (y_B < 0) if self.classes is None else (y_B < 0) | (y_B >= self.classes)
        wrong = y_B[wrong_B & (y_B != IGNORED)]
        if len(wrong):
            self._wrong_labels, self._wrong_label = self._wrong_labels + len(wrong), int(wrong[0])
        h_Bd, y_B = h_Bd[~wrong_B], y_B[~wrong_B]
        if not len(y_B) or self._problem:
            return
        try:
            self._moments.add(h_Bd, y_B)
        except CollapseError as error:
            self._problem = str(error)

    def state(self) -> dict[str, Tensor]:
        """Return the classes seen so far, and the statistics, in the form of :meth:`ClassMoments.state`.

        Raises:
            CollapseError: A label was out of range, an embedding was not finite, or a statistic failed.
        """
        if self._batches:
            self._fill()
        refuse_labels(self._wrong_labels, self._wrong_label, self.classes)
        if self._problem:
            raise CollapseError(self._problem)
        return self._moments.state()

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Replace the moments and the statistics by those in ``state``, a result of :meth:`state`."""
        self._moments = ClassMoments.from_state(state, self._moments.device, self._statistic_types)
