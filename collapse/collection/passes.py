"""The two passes of a collection: class moments of training samples, decisions and loss of validation samples.

A pass collects the slices that no shard of the folder holds. Shards that cover the text are folded into the store.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from collapse.collection.folding import fold_training, fold_validation, training_hash, usable
from collapse.collection.request import part_of, refuse_unlike
from collapse.collection.slices import Slices, run_slices
from collapse.core.progress import Report
from collapse.errors import StoreError
from collapse.inputs.language_model import fitting
from collapse.inputs.source import Phase, Source
from collapse.numerics.accumulate import ClassMoments
from collapse.numerics.decisions import Decider, ValidationTally
from collapse.numerics.devices import float64_device
from collapse.numerics.finite import check_classifier
from collapse.numerics.freed_memory import keep_freed_memory
from collapse.numerics.memory import in_memory, ran_out
from collapse.plugin.filling import Filled, makers
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.statistic import Statistic
from collapse.stores.manifest import OF_VALIDATION, differences, shape_of
from collapse.stores.provenance import Clock, device_name, versions
from collapse.stores.shards import Part, Shard, gaps, intact_shards
from collapse.stores.store import Store

log = logging.getLogger("collapse")

Add = Callable[[Tensor, Tensor, int, int], None]


@runtime_checkable
class Tally(Protocol):
    """What a pass accumulates: class moments, or decisions and losses."""

    statistics: Filled

    def state(self) -> dict[str, Tensor]:
        """Return the complete state, from which the tally is restored exactly."""


Begin = Callable[[Sequence[type[Statistic]], Mapping[str, Tensor] | None], tuple[Tally, Add]]
Complete = Callable[[dict[str, Tensor]], dict[str, Tensor]]


@dataclass
class Collection:
    """A running collection; this process holds the store's lock.

    Attributes:
        source: The samples.
        folder: The store's folder; None for a store in memory.
        kinds: Plugin statistics to fill.
        batch_size, part: As of :func:`collapse.collect`.
        report: Called as report(what, done, total).
    """

    source: Source
    folder: Path | None
    kinds: Sequence[type[Statistic]]
    batch_size: int | str = "auto"
    part: tuple[int, int] | None = None
    report: Report | None = None
    _clock: Clock = field(default_factory=Clock, init=False)
    _checked: bool = field(default=False, init=False)

    def run(self, store: Store | None = None) -> Store | Part:
        """Do the passes that an existing store lacks; return the store, or the part if slices are still missing."""
        keep_freed_memory()
        source, self._clock = self.source, self.source.clock
        if store is None:
            assert source.train is not None  # without a store there is something to collect
            with self._in_memory(source.train, self._home):
                shards = self._train(source.train)
                if missing(shards):
                    assert self.folder is not None  # arrays are collected whole
                    return Part(self.folder, shards)
                store = fold_training(self.folder, shards, self.kinds)
            self._clock = Clock()
        if store.state == "trained" and source.validation is not None:
            with self._in_memory(source.validation, source.device, shape_of(store.manifest)[0]):
                shards = self._validate(store, source.validation)
                store = store if missing(shards) else fold_validation(self.folder, store, shards, self.kinds)
        return store

    def _train(self, phase: Phase) -> list[Shard]:
        weight, bias = self.source.weight, self.source.bias

        def begin(kinds: Sequence[type[Statistic]], state: Mapping[str, Tensor] | None) -> tuple[Tally, Add]:
            if state is None:
                moments = ClassMoments(weight.shape[1], self._home, Filled.begin(kinds))
            else:
                moments = ClassMoments.from_state(state, self._home, kinds)
            return moments, lambda h_nd, y_n, first, units: moments.add(h_nd, y_n)

        def with_head(state: dict[str, Tensor]) -> dict[str, Tensor]:
            rows = state["classes"].to(weight.device)
            return {**state, "weight": weight[rows].cpu(), **({} if bias is None else {"bias": bias[rows].cpu()})}

        return self._pass(phase, {"identity": self.source.identity}, begin, with_head)

    def _validate(self, store: Store, phase: Phase) -> list[Shard]:
        source = self.source
        differ = differences(store.identity, source.identity, apart=OF_VALIDATION)
        if differ:
            raise StoreError(
                f"{self.folder} was trained with another model: it differs in {'; '.join(differ)} (there and now)"
            )
        decider = Decider(store.statistics(), source.weight, source.bias, exact_loss=source.exact_loss)

        def begin(kinds: Sequence[type[Statistic]], state: Mapping[str, Tensor] | None) -> tuple[Tally, Add]:
            tally = ValidationTally(decider, Filled.begin(kinds))
            if state is not None:
                tally.resume(state, kinds)

            def add(h_nd: Tensor, y_n: Tensor, first: int, units: int) -> None:
                tally.add(h_nd, y_n, chunks=units, first=first, block_B=phase.blocks(first, first + units))

            return tally, add

        of_training = {name: value for name, value in store.identity.items() if name not in OF_VALIDATION}
        identity = of_training | {name: value for name, value in source.identity.items() if name in OF_VALIDATION}
        return self._pass(phase, {"identity": identity, "trained": training_hash(store)}, begin, dict)

    def _pass(
        self,
        phase: Phase,
        about: Mapping[str, Any],
        begin: Begin,
        complete: Complete,
    ) -> list[Shard]:
        """Collect the slices of this part that no shard of the folder holds.

        Args:
            phase: The samples.
            about: What its shards are of, beside what all shards of the source have in common.
            begin: Returns a tally, empty or restored from a state, and the function that adds samples to it.
            complete: Returns what a shard holds for a tally's state.

        Returns:
            All shards of the phase, in the order of their slices.
        """
        about = {"model": self.source.model, "corpus": self.source.corpus, "coverage": phase.coverage(), **about}
        shards = [] if self.folder is None else intact_shards(self.folder, phase.name)
        for shard in shards:
            refuse_unlike(self.folder, shard, about)
        check_classifier(self.source.weight, self.source.bias, self.source.classifier, self.source.remedy)
        for start, stop in gaps(shards, part_of(about["coverage"]["slices"], self.part)):
            before = next((shard for shard in shards if shard.stop == start), None)
            made = self._run(Slices(phase, start, stop), before, about, begin, complete)
            shards = sorted([*(each for each in shards if each is not before), made], key=lambda each: each.start)
        return shards

    def _run(
        self, slices: Slices, before: Shard | None, about: Mapping[str, Any], begin: Begin, complete: Complete
    ) -> Shard:
        """Collect slices into a shard, which extends the one before them if there is one; see :meth:`_pass`."""
        phase = slices.phase
        self._check(slices)
        batch = first_batch = min(phase.batch_units(self.batch_size), phase.slice_units)
        kinds, start = [kind for kind in self.kinds if kind.phase == phase.name], slices.start
        if before is not None:
            log.info("%s: resuming after slice %d of %d", phase.name, before.stop, before.slices)
            kinds, start = _resumed(before, kinds), before.start
            if before.about["first_batch"] == first_batch:  # else another batch size is asked for now
                batch = int(before.about["batch_size"])
        tally, add = begin(kinds, None if before is None else before.tensors())
        made: list[Shard] = []

        def save(done: int, batch: int) -> None:
            state = complete(tally.state())
            more = self._about(phase, tally, batch, before) | {"batch_size": batch, "first_batch": first_batch}
            shard = Shard(phase.name, start, done, {**about, **more}, held=state)
            made[:] = [shard if self.folder is None else shard.write(self.folder)]

        run_slices(slices, batch=batch, add=add, save=save, report=self.report)
        return made[0]

    def _check(self, slices: Slices) -> None:
        """Check once that the definitions apply to the embeddings."""
        if not self._checked:
            with fitting(self.source.model["name"], self.source.device):
                slices.phase.check(slices.first_unit)
            self._checked = True  # the model, which is that of both passes

    @property
    def _home(self) -> torch.device:
        """The device on which statistics accumulate."""
        return float64_device(self.source.device)

    def _in_memory(self, phase: Phase, device: torch.device, classes: int = 0) -> AbstractContextManager[None]:
        """Report that memory ran out in a pass; without ``classes`` as many count as its labels can have."""
        (vocabulary, dim), of_text = self.source.weight.shape, phase.words[0] == "chunk"
        window = part_of(phase.coverage()["slices"], self.part)
        most = min(vocabulary, Slices(phase, *window).samples)
        remedies = [*["--batch-size 1"] * of_text, *["fewer chunks (--max-chunks)"] * (of_text and not classes)]
        doing = f"the {phase.name} pass of {self.source.model['name']}"
        return in_memory(ran_out(doing, classes or most, dim, device, *remedies, most=not classes))

    def _about(self, phase: Phase, tally: Tally, batch: int, before: Shard | None) -> dict[str, Any]:
        """Return what a shard records of its statistics and of how it was made."""
        filled = tally.statistics
        made_by = {name: plugins().made_by("statistic", name) for name in filled.versions}
        provenance = {
            **self._clock.times(),
            **({"slices_of_earlier_runs": before.stop - before.start} if before else {}),
            **({"made_by": made_by} if made_by else {}),
            "device": device_name(self.source.device),
            "batch_size": batch,
            "threads": torch.get_num_threads(),
            **phase.provenance(),
            "versions": versions(),
            "command": self.source.command,
        }
        statistics_by = makers(type(each) for each in filled)
        return {"statistics": filled.versions, "statistics_by": statistics_by, "provenance": provenance}


def _resumed(before: Shard, kinds: Sequence[type[Statistic]]) -> list[type[Statistic]]:
    """Return the statistics that continue those of a shard, and warn of the others."""
    fit, unfit = usable(kinds, before)
    for name, why in unfit.items():
        log.warning("statistic %s is not collected: the earlier run, which is resumed, %s", name, why)
    return fit


def missing(shards: Sequence[Shard]) -> bool:
    """Whether shards of a phase do not cover its text."""
    return not shards or bool(gaps(shards, (0, shards[0].slices)))
