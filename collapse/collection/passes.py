"""The two passes of a collection: class moments of training samples, decisions and loss of validation samples."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from collapse.collection.pieces import NOTHING, add_validation, filled_of, joined, means_hash, pieces_of, unlike
from collapse.collection.resuming import find_place, resumable
from collapse.collection.slices import Slices, run_slices
from collapse.collection.trained import build_trained
from collapse.errors import StoreError
from collapse.inputs.language_model import fitting
from collapse.inputs.source import Phase, Source
from collapse.numerics.accumulate import ClassMoments
from collapse.numerics.decisions import Decider, ValidationTally
from collapse.numerics.devices import float64_device
from collapse.numerics.finite import check_classifier
from collapse.numerics.freed_memory import keep_freed_memory
from collapse.numerics.kernel import kernel_for
from collapse.numerics.memory import in_memory, ran_out
from collapse.numerics.statistics import ValidationStatistics
from collapse.plugin.filling import Filled, makers
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.statistic import Statistic
from collapse.progress import Report
from collapse.stores.manifest import OF_VALIDATION, differences, shape_of, spans
from collapse.stores.partial import Partial, Progress
from collapse.stores.provenance import Clock, device_name, versions
from collapse.stores.store import Store
from collapse.threads import waiting

log = logging.getLogger("collapse")


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

    def run(self, store: Store | None = None) -> Store:
        """Do the passes that an existing store lacks, and return the store."""
        keep_freed_memory()
        self._clock, self._earlier = self.source.clock, dict[str, int]()
        self._partial = None if self.folder is None else Partial(self.folder)
        self._checked = False
        if self.source.validation is not None and (store is None or store.state == "trained"):
            kernel_for(torch.empty(0, device=self.source.device))  # compiled once per machine, before the passes
        if store is None:
            assert self.source.train is not None  # without a store there is something to collect
            with self._in_memory(self.source.train, self._home):
                store = self._train(self.source.train)
            self._clock = Clock()
        if store.state == "trained" and self.source.validation is not None:
            with self._in_memory(self.source.validation, self.source.device, shape_of(store.manifest)[0]):
                store = self._validate(store, self.source.validation)
        self.source.check()
        return store

    def _train(self, phase: Phase) -> Store:
        source, slices = self.source, self._cut(phase)
        kinds = [kind for kind in self.kinds if kind.phase == "train"]
        place, state = self._resume(slices, None)
        if place is None:
            moments = ClassMoments(source.weight.shape[1], self._home, Filled.begin(kinds))
        else:
            moments = ClassMoments.from_state(state, self._home, resumable(kinds, place, state))

        def add(h_nd: Tensor, y_n: Tensor, first: int, units: int) -> None:
            moments.add(h_nd, y_n)

        batch = self._run(slices, place, add, moments.state, moments.statistics)
        s = moments.statistics_so_far()
        rows = s.classes.to(source.device)
        head = {"weight": source.weight[rows]} | ({} if source.bias is None else {"bias": source.bias[rows]})
        about = {
            "identity": self._identity({**self._versions("validation"), **s.versions}),
            "model": source.model,
            "corpus": source.corpus,
            "coverage": {"train": phase.coverage([[slices.start, slices.stop]], {}), "validation": None},
        }
        store = build_trained(self.folder, s, head, about=about, provenance=self._provenance(phase, batch, s.versions))
        self._clear()
        return store

    def _validate(self, store: Store, phase: Phase) -> Store:
        source, now = self.source, self._identity(store.identity.get("statistics"))
        validated = store.manifest["coverage"]["validation"] is not None  # else accept any text
        differ = differences(store.identity, now, apart=frozenset() if validated else OF_VALIDATION)
        if differ:
            raise StoreError(
                f"{self.folder} was trained with another model: it differs in {'; '.join(differ)} (there and now)"
            )
        slices = self._cut(phase)
        start, stop = slices.start, slices.stop
        means = means_hash(store)
        covered = store.manifest["coverage"]["validation"]
        if covered and covered["means"] != means:
            log.warning("validation results of other class means are discarded")
            covered = None
        if covered and (covered["chunks"], covered["slice_chunks"]) != (phase.units, slices.length):
            log.warning("validation results of other slices are discarded")
            covered = None
        pieces = pieces_of(store) if covered else []
        if any(a < stop and start < b for (a, b), _ in pieces):
            return self._already_validated(store, pieces, start, stop)
        kinds = [kind for kind in self.kinds if kind.phase == "validation"]
        if pieces:  # keep only the statistics that all parts hold
            kinds = [kind for kind in kinds if not unlike(store, kind)]
        decider = Decider(store.statistics(), source.weight, source.bias, exact_loss=source.exact_loss)
        tally = ValidationTally(decider, Filled.begin(kinds))
        place, saved = self._resume(slices, means)
        if place is not None:
            tally.resume(saved, resumable(kinds, place, saved))

        def add(h_nd: Tensor, y_n: Tensor, first: int, units: int) -> None:
            tally.add(h_nd, y_n, chunks=units, first=first, block_B=phase.blocks(first, first + units))

        batch = self._run(slices, place, add, tally.state, tally.statistics, means)
        if covered:
            before = filled_of(store, [type(each) for each in tally.statistics], self._home)
            tally.statistics.merge(before, NOTHING, NOTHING)
        state = {name: value for name, value in tally.state().items() if "/" not in name}
        pieces = sorted([*pieces, ((start, stop), ValidationStatistics(**state))], key=lambda piece: piece[0])
        about = {
            "identity": _validated(store.identity, source.identity),
            "model": store.manifest["model"],
            "corpus": {**store.manifest["corpus"], "validation": source.corpus["validation"]},
            "coverage": {
                **store.manifest["coverage"],
                "validation": phase.coverage(joined([run for run, _ in pieces]), {"means": means}),
            },
        }
        computed = self._provenance(phase, batch, tally.statistics.versions) | decider.computed_by
        provenance = store.manifest["provenance"] | {"validation": computed}
        made = add_validation(store, pieces, tally.statistics, path=self.folder, about=about, provenance=provenance)
        self._clear()
        return made

    def _already_validated(
        self,
        store: Store,
        pieces: Sequence[tuple[tuple[int, int], ValidationStatistics]],
        start: int,
        stop: int,
    ) -> Store:
        if any(a <= start and stop <= b for a, b in joined([run for run, _ in pieces])):
            self._clear()  # a run was killed after it added the validation
            return store
        done = spans(joined([run for run, _ in pieces]))
        raise StoreError(
            f"{self.folder} already holds validation slices {done}, which overlap {spans([[start, stop]])}: "
            "choose a part beside them, or --recollect"
        )

    @property
    def _home(self) -> torch.device:
        """The device on which statistics accumulate."""
        return float64_device(self.source.device)

    def _in_memory(self, phase: Phase, device: torch.device, classes: int = 0) -> AbstractContextManager[None]:
        """Report that memory ran out in a pass; without ``classes`` as many count as its labels can have."""
        (vocabulary, dim), of_text = self.source.weight.shape, phase.words[0] == "chunk"
        most = min(vocabulary, self._cut(phase).samples)
        remedies = [*["--batch-size 1"] * of_text, *["fewer chunks (--max-chunks)"] * (of_text and not classes)]
        doing = f"the {phase.name} pass of {self.source.model['name']}"
        return in_memory(ran_out(doing, classes or most, dim, device, *remedies, most=not classes))

    def _cut(self, phase: Phase) -> Slices:
        return Slices.cut(phase, batch_size=self.batch_size, part=self.part)

    def _run(
        self,
        slices: Slices,
        place: Progress | None,
        add: Callable[[Tensor, Tensor, int, int], None],
        state: Callable[[], dict[str, Tensor]],
        statistics: Filled,
        means: str | None = None,
    ) -> int:
        source = self.source
        check_classifier(source.weight, source.bias, source.classifier, source.remedy)
        if not self._checked:
            with fitting(source.model["name"], source.device):
                slices.phase.check(slices.first_unit)
            self._checked = True  # the model, which is that of both passes
        return run_slices(
            slices,
            place=place,
            add=add,
            state=state,
            partial=self._partial,
            about=lambda: {
                "identity": self._identity(self._versions()),
                "means": means,
                "made_by": makers(type(each) for each in statistics),
            },
            report=self.report,
        )

    def _resume(self, slices: Slices, means: str | None) -> tuple[Progress | None, dict[str, Tensor]]:
        """Return the progress of an earlier run and its state."""
        if self._partial is None:
            return None, {}
        place = find_place(self._partial, slices, self._identity(None), means)
        if place is None:
            return None, {}
        self._earlier[slices.phase.name] = place.done - place.start
        return place, self._partial.tensors(place)

    def _clear(self) -> None:
        if self._partial is not None:
            self._partial.clear()

    def _identity(self, statistics: Mapping[str, int] | None) -> dict[str, Any]:
        """Return the identity with the versions of these statistics."""
        return {**self.source.identity, **({"statistics": statistics} if self.source.records_statistics else {})}

    def _versions(self, phase: str | None = None) -> dict[str, int]:
        """Return the versions of the requested statistics, of one phase or of both."""
        return {kind.name: kind.version for kind in self.kinds if phase in (None, kind.phase)}

    def _provenance(self, phase: Phase, batch: int, statistics: Iterable[str]) -> dict[str, Any]:
        earlier = self._earlier.get(phase.name)
        more: dict[str, Any] = {"slices_of_earlier_runs": earlier} if earlier else {}
        made_by = {name: plugins().made_by("statistic", name) for name in statistics}
        if made_by:
            more["made_by"] = made_by
        return {
            **self._clock.times(),
            **more,
            "device": device_name(self.source.device),
            "batch_size": batch,
            "threads": torch.get_num_threads(),
            **({"waiting": spins} if (spins := waiting()) else {}),
            **phase.provenance(),
            "versions": versions(),
            "command": self.source.command,
        }


def _validated(held: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the identity of a trained store with what it is validated on now."""
    kept = {name: value for name, value in held.items() if name not in OF_VALIDATION}
    return kept | {name: value for name, value in now.items() if name in OF_VALIDATION}
