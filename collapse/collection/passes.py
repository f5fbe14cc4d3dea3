"""The two passes of a collection: class moments of training samples, decisions and loss of validation samples.

A pass collects the slices that no shard in the folder holds. Shards that cover the text are folded into the store.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from collapse.collection.running_slices import run_slices
from collapse.core.progress import Report
from collapse.errors import StoreError, UsageError, counted
from collapse.inputs.language_model import explaining_large_model
from collapse.inputs.source import Phase, Source
from collapse.numerics.class_moments import ClassMoments
from collapse.numerics.decisions import Decider, ValidationTally
from collapse.numerics.devices import explaining_out_of_memory, float64_device, keep_freed_memory, out_of_memory_message
from collapse.numerics.finite import check_classifier
from collapse.plugin.filling import Filled
from collapse.plugin.plugin_manager import plugins
from collapse.stores.folding import Kinds, fold_training, fold_validation, ordered, training_hash, usable
from collapse.stores.manifest import OF_VALIDATION, differences, is_store, shape_of
from collapse.stores.missing_slices import gaps, part_of
from collapse.stores.provenance import Clock, device_name, versions
from collapse.stores.request import refuse_if_shards_differ
from collapse.stores.shards import Part, Shard, fields_to_compare, shards_in
from collapse.stores.store import Store
from collapse.stores.store_folder import Alone

log = logging.getLogger("collapse")

State = Mapping[str, Tensor]
NewAccumulator = Callable[[Kinds, State | None], "Training | ValidationTally"]


class Training:
    """Accumulate a run of the training pass: class moments, and the head's rows of the classes that occur.

    Args:
        source: The samples.
        kinds: Plugin statistics to collect.
        state: The state of an earlier run to resume, or None.
    """

    def __init__(self, source: Source, kinds: Kinds, state: State | None) -> None:
        self.source, device = source, float64_device(source.device)
        if state is None:
            self.moments = ClassMoments(source.weight.shape[1], device, Filled(kinds))
        else:
            self.moments = ClassMoments.from_state(state, device, kinds)
        self.filled = self.moments.filled

    def add(self, h_nd: Tensor, y_n: Tensor, *_: int) -> None:
        """Add samples; the numbers of their units are ignored."""
        self.moments.add(h_nd, y_n)

    def state(self) -> dict[str, Tensor]:
        """Return everything needed to resume the pass or to fold its shards."""
        state = self.moments.state()
        rows = state["classes"].to(self.source.device)
        state["weight"] = self.source.weight[rows].cpu()
        if self.source.bias is not None:
            state["bias"] = self.source.bias[rows].cpu()
        return state


def new_validation(phase: Phase, decider: Decider, kinds: Kinds, state: State | None) -> ValidationTally:
    """Return the accumulator of a run of the validation pass; ``kinds`` and ``state`` are as in :class:`Training`."""
    tally = ValidationTally(decider, Filled(kinds), phase.blocks, phase.kept)
    if state is not None:
        tally.resume(state, kinds)
    return tally


@dataclass
class Collection:
    """A running collection; this process holds the lock of the store or of its part.

    Attributes:
        source: The samples.
        folder: The store's folder; None for a store in memory.
        kinds: Plugin statistics to collect.
        batch_size, part: As in :func:`collapse.collect`.
        alone: A context in which no other part changes the folder.
        report: Called as report(what, done, total).
    """

    source: Source
    folder: Path | None
    kinds: Kinds
    batch_size: int | str = "auto"
    part: tuple[int, int] | None = None
    alone: Alone = nullcontext
    report: Report | None = None
    _clock: Clock = field(init=False)

    def run(self, store: Store | None = None) -> Store | Part:
        """Run the passes that an existing store lacks; return the store.

        While training slices are missing, return the part; while validation slices are missing, the trained store.
        """
        keep_freed_memory()
        source, self._clock = self.source, self.source.clock
        check_classifier(source.weight, source.bias, source.classifier_words, source.remedy)
        if (first := source.train or source.validation) is not None:  # both use the same model
            with explaining_large_model(source.model["name"], source.device):
                first.check()
        if store is None:
            assert source.train is not None  # without a store, the training samples are needed
            with self._explaining_out_of_memory(source.train):
                shards = self._pass(source.train, partial(Training, source), identity=source.identity)
                store = self._folded("train", shards, partial(fold_training, self.folder, kinds=self.kinds))
                if store is None:
                    assert self.folder is not None  # arrays have no parts
                    return Part(self.folder, shards)
            self._clock = Clock()
        if store.state == "trained" and source.validation is not None:
            fields = {"identity": self._identity_beside(store), "trained": training_hash(store)}
            with self._explaining_out_of_memory(source.validation, shape_of(store.manifest)[0]):
                decider = Decider(store.statistics(), source.weight, source.bias, exact_loss=source.exact_loss)
                shards = self._pass(source.validation, partial(new_validation, source.validation, decider), **fields)
                fold = partial(fold_validation, self.folder, store, kinds=self.kinds)
                store = self._folded("validation", shards, fold) or store
        return store

    def _folded(self, phase: str, shards: list[Shard], fold: Callable[[list[Shard]], Store]) -> Store | None:
        """Fold the shards of a phase, also those of other parts; return None while slices are missing."""
        with self.alone():
            if self.folder is not None and self.part is not None:
                if self._is_folded(phase):
                    return Store.load(self.folder)
                shards = ordered(shards_in(self.folder, phase))
            return None if gaps(shards) else fold(shards)

    def _is_folded(self, phase: str) -> bool:
        """Whether another part has meanwhile folded a phase."""
        done = Store.load(self.folder).state if self.folder and self.part and is_store(self.folder) else None
        return done == "complete" or (done == "trained" and phase == "train")

    def _identity_beside(self, store: Store) -> dict[str, Any]:
        """Return the identity for the validation of a trained store; raise StoreError if it is of another model."""
        identity = self.source.identity
        if differ := differences(store.identity, identity, apart=OF_VALIDATION):
            raise StoreError(
                f"{self.folder} holds the training pass of another collection, which differs in {'; '.join(differ)}. "
                "Give the same model and options, or another --store"
            )
        kept = {name: value for name, value in store.identity.items() if name not in OF_VALIDATION}
        return kept | {name: identity[name] for name in OF_VALIDATION & identity.keys()}

    def _pass(self, phase: Phase, new_accumulator: NewAccumulator, **fields: Any) -> list[Shard]:
        """Collect the slices of this part that no shard in the folder holds; return all shards of the phase, in order.

        Each run fills one gap, with a ``new_accumulator`` for its statistics and state. Headers also have ``fields``.
        """
        fields |= {"model": self.source.model, "corpus": self.source.corpus, "coverage": phase.coverage()}
        with self.alone():
            if self._is_folded(phase.name):
                return []
            shards = [] if self.folder is None else shards_in(self.folder, phase.name)
        for shard in shards:
            differ = differences(fields_to_compare(shard.header), fields_to_compare(fields))
            refuse_if_shards_differ(self.folder, differ)
        slices = fields["coverage"]["slices"]
        window = part_of(slices, self.part)
        if self.part and phase is self.source.train and window[0] == window[1]:
            k, n = self.part
            raise UsageError(
                f"--part {k}/{n}: the text has only {counted(slices, 'slice')}; use at most {counted(slices, 'part')}"
            )
        for start, stop in gaps(shards, window):  # a run extends this part's shard that ends where the gap begins
            before = next((shard for shard in shards if shard.stop == start and shard.start >= window[0]), None)
            made = self._run(phase, new_accumulator, fields, before, start, stop)
            shards = sorted([*(each for each in shards if each is not before), made], key=lambda each: each.start)
        return shards

    def _run(
        self,
        phase: Phase,
        new_accumulator: NewAccumulator,
        fields: Mapping[str, Any],
        before: Shard | None,
        start: int,
        stop: int,
    ) -> Shard:
        """Collect the slices from ``start`` to ``stop`` into a new shard, or into the shard ``before`` them."""
        batch = first_batch = min(phase.batch_units(self.batch_size), phase.slice_units)
        kinds = [kind for kind in self.kinds if kind.phase == phase.name]
        begins = start if before is None else before.start
        if before is not None:
            log.info("%s: resuming after slice %d of %d", phase.name, before.stop, before.slices)
            kinds, unfit = usable(kinds, before)
            for name, why in unfit.items():
                log.warning("statistic %s is not collected: the earlier run that is resumed %s", name, why)
            if before.header["first_batch"] == first_batch:  # otherwise another batch size is requested now
                batch = int(before.header["batch_size"])
        accumulator = new_accumulator(kinds, None if before is None else before.tensors())

        def save(done: int, batch_now: int) -> Shard:
            made = self._made(phase, accumulator.filled, batch_now, before)
            header = {**fields, **made, "batch_size": batch_now, "first_batch": first_batch}  # resuming reads the sizes
            shard = Shard(phase.name, begins, done, header, held=accumulator.state())
            return shard if self.folder is None else shard.write(self.folder)

        return run_slices(phase, start, stop, batch=batch, add=accumulator.add, save=save, report=self.report)

    def _explaining_out_of_memory(self, phase: Phase, classes: int = 0) -> AbstractContextManager[None]:
        """Report that memory ran out in a pass; without ``classes``, the message gives the largest possible number."""
        vocabulary, dim = self.source.weight.shape
        most = classes or min(vocabulary, phase.n_samples)
        doing = f"the {phase.name} pass of {self.source.model['name']}"
        remedies = ["--batch-size 1"] if phase.is_text else []
        if phase.is_text and not classes:  # in the training pass, fewer chunks also mean fewer classes
            remedies.append("fewer chunks (--max-chunks)")
        message = out_of_memory_message(doing, most, dim, self.source.device, *remedies, most=not classes)
        return explaining_out_of_memory(message)

    def _made(self, phase: Phase, filled: Filled, batch: int, before: Shard | None) -> dict[str, Any]:
        """Return what a shard's header says of its statistics and its provenance."""
        provenance: dict[str, Any] = {
            **self._clock.times(),
            "device": device_name(self.source.device),
            "batch_size": batch,
            "threads": torch.get_num_threads(),
            **phase.provenance(),
            "versions": versions(),
            "command": self.source.command,
        }
        if before is not None:
            provenance["slices_of_earlier_runs"] = before.stop - before.start
        if filled.versions:
            provenance["made_by"] = {each.name: plugins().owner(type(each).__module__).made_by for each in filled}
        return {"statistics": filled.versions, "statistics_by": filled.makers, "provenance": provenance}
