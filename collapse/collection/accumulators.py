"""Accumulate, for each layer, class moments in the training pass, and decisions and loss in the validation pass."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from collapse.inputs.source import Source
from collapse.numerics.class_moments import ClassMoments, Labels
from collapse.numerics.decisions import Decider, ValidationTally
from collapse.numerics.devices import float64_device
from collapse.numerics.finite import NotFinite
from collapse.plugin.plugin_statistics import PluginStatistics
from collapse.stores.folding_shards import StatisticTypes
from collapse.stores.layer_names import TOP, joined_states, state_of
from collapse.stores.store import Store

SavedState = Mapping[str, Tensor]


class Training:
    """Accumulate class moments of adjacent training slices.

    If ``top`` is one of the layers, the state also has the head's row for each class. The argument ``state`` is the
    result of :meth:`state` in the run to resume; None for a new run.
    """

    def __init__(
        self, source: Source, layers: Sequence[str], statistic_types: StatisticTypes, state: SavedState | None
    ) -> None:
        self.source, self.device = source, float64_device(source.device)
        self.moments: dict[str, ClassMoments] = {}
        for layer in layers:
            if state is None:
                made = ClassMoments(source.weight.shape[1], self.device, PluginStatistics(statistic_types))
            else:
                made = ClassMoments.from_state(state_of(layer, state), self.device, statistic_types)
            self.moments[layer] = made
            made.scratch = self.moments[layers[0]].scratch  # all layers share the memory of the first
        # only the versions are read, which are the same for all layers
        self.plugin_statistics = self.moments[layers[0]].plugin_statistics

    def add(self, h: Mapping[str, Tensor], y_n: Tensor, *_: int) -> None:
        """Add samples: embeddings by layer, and labels. The further arguments of :meth:`Validation.add` are ignored."""
        labels = Labels.of(y_n, self.device)
        for layer, moments in self.moments.items():
            with _naming(layer):
                moments.add(h[layer], labels)

    def state(self) -> dict[str, Tensor]:
        """Return everything needed to resume the pass or to fold its shards."""
        state = joined_states({layer: moments.state() for layer, moments in self.moments.items()})
        if TOP in self.moments:
            rows = state["classes"].to(self.source.device)
            state["weight"] = self.source.logits.scaled(self.source.weight[rows].cpu())
            if self.source.bias is not None:
                state["bias"] = self.source.logits.scaled(self.source.bias[rows].cpu())
        return state


class Validation:
    """Accumulate decisions and loss of adjacent validation slices; inner layers use the logit lens (norm and head)."""

    def __init__(
        self, source: Source, deciders: Mapping[str, Decider], statistic_types: StatisticTypes, state: SavedState | None
    ) -> None:
        phase = source.validation
        assert phase is not None
        self.lens, self.tallies = source.lens, dict[str, ValidationTally]()
        for layer, decider in deciders.items():
            made = ValidationTally(decider, PluginStatistics(statistic_types), phase.blocks, phase.kept)
            if state is not None:
                made.resume(state_of(layer, state), statistic_types)
            self.tallies[layer] = made
        self.plugin_statistics = next(iter(self.tallies.values())).plugin_statistics  # as in Training

    def add(self, h: Mapping[str, Tensor], y_n: Tensor, first: int, units: int) -> None:
        """Add the samples of adjacent units (chunks of a text, or blocks of rows).

        ``first`` is the index of the first unit, and ``units`` is the number of units.
        """
        for layer, tally in self.tallies.items():
            with _naming(layer):
                tally.add(h[layer], y_n, first, units, None if layer == TOP else self._through_lens(h[layer]))

    @torch.inference_mode()
    def _through_lens(self, h_nd: Tensor) -> Tensor:
        assert self.lens is not None  # otherwise inner layers are not validated
        return self.lens(h_nd)

    def state(self) -> dict[str, Tensor]:
        """Return everything needed to resume the pass or to fold its shards."""
        return joined_states({layer: tally.state() for layer, tally in self.tallies.items()})


def deciders_of(store: Store, source: Source, layers: Iterable[str]) -> dict[str, Decider]:
    """Return a :class:`Decider` for each layer, from the store's class means; all deciders use the same head."""
    exact = source.exact_loss
    top = Decider(store.statistics(), source.weight, source.bias, logits=source.logits, exact_loss=exact)
    return {layer: top if layer == TOP else top.of_layer(store.statistics(layer)) for layer in layers}


@contextmanager
def _naming(layer: str) -> Iterator[None]:
    """Add the name of an inner layer to the error for an embedding that is not finite."""
    try:
        yield
    except NotFinite as error:
        if layer != TOP:
            error.wrong += f" in layer {layer}"
        raise
