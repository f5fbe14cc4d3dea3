"""Run the two passes of a collection: class moments of training samples, decisions and loss of validation samples.

A pass collects the slices that no shard in the folder holds; stores/dealing_slices.py divides them among ranks, and
batches.py runs them. Shards that cover the text are folded into the store.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from collapse.collection.accumulators import SavedState, Training, Validation, deciders_of
from collapse.collection.batches import run_slices
from collapse.core import ranks
from collapse.core.progress import Report
from collapse.errors import StoreError, UsageError, counted
from collapse.inputs.language_model import explaining_large_model
from collapse.inputs.source import Phase, Source
from collapse.numerics.devices import explaining_out_of_memory, keep_freed_memory, out_of_memory_message
from collapse.numerics.finite import check_classifier
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.plugin_statistics import PluginStatistics
from collapse.stores.dealing_slices import dealt, slices_of_part
from collapse.stores.folding_shards import (
    StatisticTypes,
    add_layers,
    continuable,
    fold_training,
    fold_validation,
    training_hash,
)
from collapse.stores.identity_differences import differences
from collapse.stores.manifest import OF_VALIDATION, is_store
from collapse.stores.merging import checked_in_order
from collapse.stores.provenance import Clock, device_name, versions
from collapse.stores.request import refuse_if_shards_differ
from collapse.stores.shards import Part, Shard, fields_to_compare, gaps, shards_in
from collapse.stores.store import Store
from collapse.stores.store_folder import locked_beside_parts

log = logging.getLogger("collapse")

NewAccumulator = Callable[[StatisticTypes, SavedState | None], Training | Validation]


@dataclass
class Collection:
    """A running collection; this process holds the lock of the store's folder or, with ``part``, of the part.

    Attributes:
        source: The samples.
        folder: The store's folder; None for a store in memory.
        statistic_types: Plugin statistics to collect.
        batch_size, part: As in :func:`collapse.collect`.
        report: Progress callback, or None.
        clock: Start time of the current pass, for the provenance.
    """

    source: Source
    folder: Path | None
    statistic_types: StatisticTypes
    batch_size: int | str = "auto"
    part: tuple[int, int] | None = None
    report: Report | None = None
    clock: Clock = field(default_factory=Clock)

    def run(self, store: Store | None = None) -> Store | Part:
        """Run the passes that the store does not hold yet, for the layers that lack them; return the store.

        If training slices of other parts are missing, return ``store`` unchanged, or a Part if ``store`` is None. If
        only validation slices are missing, return a store that is trained but not completely validated.
        """
        keep_freed_memory()
        source = self.source
        check_classifier(source.weight, source.bias)
        first = source.train or source.validation  # both use the same model
        remedies = ["--batch-size 1", "fewer chunks (--max-chunks)"] if first is not None and first.is_text else []
        remedies += ["fewer --layers at once"] if len(source.layers) > 1 else []
        doing, (rows, dim) = f"the collection of {source.model['name']}", source.weight.shape
        message = out_of_memory_message(doing, rows, dim, source.device, *remedies)
        if first is not None:
            with explaining_large_model(source.model["name"], source.device):
                first.check()
        with explaining_out_of_memory(message):
            return self._both_passes(store)

    def _both_passes(self, store: Store | None) -> Store | Part:
        source = self.source
        layers = source.layers if store is None else store.lacking("train", source.layers)
        if layers:
            assert source.train is not None  # the training samples are needed
            identity = source.identity if store is None else self._identity_for_next_pass(store)
            shards = self._one_pass(source.train, layers, partial(Training, source, layers), store, identity=identity)
            trained = ranks.on_first_rank(partial(self._fold_if_whole, "train", layers, shards, store))
            if trained is None:
                assert self.folder is not None  # arrays have no parts
                return store or Part(self.folder, shards)
            store, self.clock = trained, Clock()
        assert store is not None  # now it is trained
        # if a text is collected in parts, a later command validates: source.validation is None during training
        layers = store.lacking("validation", source.layers)
        if source.validation is not None and layers:
            identity, trained_hash = self._identity_for_next_pass(store), training_hash(store, layers)
            new = partial(Validation, source, deciders_of(store, source, layers))
            shards = self._one_pass(source.validation, layers, new, store, identity=identity, trained_hash=trained_hash)
            store = ranks.on_first_rank(partial(self._fold_if_whole, "validation", layers, shards, store)) or store
        return store

    def _fold_if_whole(
        self, phase_name: str, layers: Sequence[str], shards: list[Shard], store: Store | None
    ) -> Store | None:
        """Fold the shards of a phase, also those of other parts; return the store, or None while slices are missing."""
        with locked_beside_parts(self.folder, self.part):
            if folded := self._store_folded_by_another(phase_name, layers):
                return folded
            if self.folder is not None and self.part is not None:  # other parts may have written shards meanwhile
                shards = checked_in_order(shards_in(self.folder, phase_name))
            if not shards or gaps(shards):
                return None
            if phase_name == "train":
                if store is None:
                    return fold_training(self.folder, shards, self.statistic_types)
                return add_layers(store, shards, self.statistic_types)
            assert store is not None  # validation needs its class means
            return fold_validation(shards, self.statistic_types, store=store)

    def _store_folded_by_another(self, phase_name: str, layers: Sequence[str]) -> Store | None:
        """Return the store if another part has already folded the shards of this phase and these layers; else None."""
        if self.folder is None or self.part is None or not is_store(self.folder):
            return None
        store = Store.load(self.folder)
        return None if store.lacking(phase_name, layers) else store

    def _identity_for_next_pass(self, store: Store) -> dict[str, Any]:
        """Return the store's identity, but take the fields that describe the validation text from the source.

        Raises:
            StoreError: The identities of store and source differ in a field that does not describe the validation text.
        """
        identity = self.source.identity
        if differ := differences(store.identity, identity, ignoring=OF_VALIDATION):
            raise StoreError(
                f"{self.folder} holds the training pass of another collection, which differs in {'; '.join(differ)}. "
                "Give the same model and options, or another --store"
            )
        kept = {name: value for name, value in store.identity.items() if name not in OF_VALIDATION}
        return kept | {name: identity[name] for name in OF_VALIDATION & identity.keys()}

    def _one_pass(
        self,
        phase: Phase,
        layers: Sequence[str],
        new_accumulator: NewAccumulator,
        store: Store | None,
        *,
        identity: Mapping[str, Any],
        trained_hash: str | None = None,
    ) -> list[Shard]:
        """Collect the slices of this part that no shard in the folder holds; return all shards of the phase, in order.

        The list is empty if another part has meanwhile folded the phase.

        The ranks divide the slices to collect. For each range of adjacent slices, ``new_accumulator`` makes an
        accumulator. If a shard of this part ends where a range begins, the range extends this shard. The shards'
        headers record ``identity`` and, in validation, ``trained_hash``, the hash of the training files. If the store
        already holds this phase for the layer top, this pass adds other layers, and collects only plugin statistics
        that the store has.
        """
        fields: dict[str, Any] = {"identity": identity} | ({} if trained_hash is None else {"trained": trained_hash})
        fields |= {"model": self.source.model, "corpus": self.source.corpus, "coverage": phase.coverage()}
        fields |= {"layers": list(layers)}
        statistic_types = [kind for kind in self.statistic_types if kind.phase == phase.name]
        if store is not None and store.holds(phase.name):
            statistic_types, _ = continuable(statistic_types, store.manifest)
            self._refuse_other_text(store, phase)
        shards = ranks.on_first_rank(partial(self._shards_unless_folded, phase.name, layers))
        if shards is None:  # another part has folded the shards: _fold_if_whole() finds the store and ignores this list
            return []
        for shard in shards:
            differ = differences(fields_to_compare(shard.header), fields_to_compare(fields))
            refuse_if_shards_differ(self.folder, differ)
        slices = fields["coverage"]["slices"]
        window = slices_of_part(slices, self.part)
        # in validation, a part may be empty: its text can have fewer slices
        if self.part and phase is self.source.train and window[0] == window[1]:
            k, n = self.part
            raise UsageError(
                f"--part {k}/{n}: the text has only {counted(slices, 'slice')}; use at most {counted(slices, 'part')}"
            )
        made = []
        for start, stop in dealt(gaps(shards, window), ranks.count())[ranks.rank()]:
            # a run extends this part's shard that ends where the gap begins
            before = next((shard for shard in shards if shard.stop == start and shard.start >= window[0]), None)
            made.append(self._collect_range(phase, statistic_types, new_accumulator, fields, before, start, stop))
        # a shard that was extended has the same start, and replaces the one that was read
        by_start = {each.start: each for each in chain(shards, *ranks.meet(made))}
        return sorted(by_start.values(), key=lambda each: each.start)

    def _shards_unless_folded(self, phase_name: str, layers: Sequence[str]) -> list[Shard] | None:
        """Return the shards of a phase in the folder; None if another part has already folded these shards."""
        with locked_beside_parts(self.folder, self.part):
            if self._store_folded_by_another(phase_name, layers):
                return None
            return [] if self.folder is None else shards_in(self.folder, phase_name)

    def _refuse_other_text(self, store: Store, phase: Phase) -> None:
        """Raise StoreError if the text's tokens differ from the tokens with which the store was collected."""
        held = store.manifest["provenance"] if phase.name == "train" else store.manifest["provenance"]["validation"]
        made, now = held.get("parts", [held])[0], phase.provenance()  # a merged store lists its parts
        if made.get("tokens") != now.get("tokens"):
            raise StoreError(
                f"the tokens of the {phase.name} text changed since {self.folder} was collected, although text and "
                "tokenizer are the same: install the versions of tokenizers and datasets that collapse info STORE shows"
            )

    def _collect_range(
        self,
        phase: Phase,
        statistic_types: StatisticTypes,
        new_accumulator: NewAccumulator,
        fields: Mapping[str, Any],
        before: Shard | None,
        start: int,
        stop: int,
    ) -> Shard:
        """Collect the slices [start, stop) into a shard, and return it.

        If a shard ``before`` is given, which ends at ``start``, the new shard also contains its slices. ``fields`` are
        added to the new shard's header.
        """
        batch = min(phase.batch_units(self.batch_size), phase.slice_units)
        begins = start if before is None else before.start
        if before is not None:
            log.info("%s: resuming after slice %d of %d", phase.name, before.stop, before.slices_in_phase)
            statistic_types, unfit = continuable(statistic_types, before.header)
            for name, why in unfit.items():
                log.warning(
                    "statistic %s is not collected: the interrupted run %s. To collect it, add --recollect", name, why
                )
        accumulator = new_accumulator(statistic_types, None if before is None else before.tensors())
        began = time.perf_counter()

        def save(done: int, batch_now: int) -> Shard:
            header = {**fields, **self._header_fields(phase, accumulator.plugin_statistics, batch_now, before)}
            header["seconds"] = time.perf_counter() - began  # for collapse status
            shard = Shard(phase.name, begins, done, header, held=accumulator.state())
            return shard if self.folder is None else shard.write(self.folder)

        layers, add = fields["layers"], accumulator.add
        return run_slices(phase, start, stop, batch=batch, add=add, save=save, layers=layers, report=self._report)

    def _report(self, what: str, done: int, total: int | None, note: str = "") -> None:
        """Report the progress; raise the error of another rank if one has failed."""
        ranks.raise_others_error()
        if self.report:
            self.report(what, done, total, note)

    def _header_fields(
        self, phase: Phase, plugin_statistics: PluginStatistics, batch: int, before: Shard | None
    ) -> dict[str, Any]:
        """Return the fields of a shard's header for its statistics and provenance."""
        provenance: dict[str, Any] = {
            **self.clock.times(),
            "device": device_name(self.source.device),
            "batch_size": batch,
            "threads": torch.get_num_threads(),
            **phase.provenance(),
            "versions": versions(),
            "command": self.source.command,
        }
        if before is not None:
            provenance["slices_of_earlier_runs"] = before.stop - before.start
        if plugin_statistics.versions:
            provenance["made_by"] = {
                each.name: plugins().owner(type(each).__module__).made_by for each in plugin_statistics
            }
        return {
            "statistics": plugin_statistics.versions,
            "statistics_by": plugin_statistics.makers,
            "provenance": provenance,
        }
