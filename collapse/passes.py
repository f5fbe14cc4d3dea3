"""The two passes of a collection: training text into class moments, validation text into decisions and loss."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from collapse.accumulate import ClassMoments, Statistic
from collapse.decisions import Decider, ValidationTally
from collapse.errors import CollapseError, StoreError
from collapse.files import home, sha256_of
from collapse.filling import Filled, makers, resumable
from collapse.finite import check_classifier
from collapse.manifest import differences, is_store, spans
from collapse.models import load_model, load_tokenizer
from collapse.packing import Chunks, pack, tokens_hash
from collapse.partial import Partial, Progress
from collapse.pieces import NOTHING, add_validation, filled_of, joined, means_hash, pieces_of, unlike
from collapse.planning import Plan
from collapse.provenance import Clock, command_line, device_name, versions
from collapse.reporting import Report
from collapse.resuming import find_place
from collapse.slices import Slices, run_slices, samples
from collapse.statistics import ValidationStatistics
from collapse.store import LAYER, Store, build
from collapse.suitability import check_model
from collapse.text import Corpus

log = logging.getLogger("collapse")


@dataclass
class Collection:
    """One collection under way, by the process that holds the store's lock.

    Attributes:
        plan: What to collect.
        folder: The store's folder.
        kinds: Plugin statistics to fill.
        report: Called as report(what, done, total).
    """

    plan: Plan
    folder: Path
    kinds: Sequence[type[Statistic]]
    report: Report | None

    def run(self) -> Store:
        """Do what is left to do, and give the store."""
        self.clock, self.earlier, self.dropped = Clock(), dict[str, int](), dict[str, str]()
        plan, spec, texts = self.plan, self.plan.spec, self.plan.texts
        tokenizer = load_tokenizer(
            plan.tokenizer,
            model_args=spec.model_args if plan.tokenizer is plan.model else None,
            trust_remote_code=spec.trust_remote_code,
        )
        plan.check_code()
        hashed = sha256_of([plan.tokenizer.tokenizer, dict(plan.code)]) if plan.code else plan.tokenizer.tokenizer
        store = Store.load(self.folder) if is_store(self.folder) else None

        def pack_now(corpus: Corpus) -> Chunks:
            return pack(corpus, tokenizer, spec, tokenizer_hash=hashed, cache=home(), progress=self.report)

        training = pack_now(texts.training) if store is None and texts.training else None
        validation = texts.pack_validation(pack_now) if store is not None or spec.part is None else None
        self.validation_name = texts.names["validation"] if validation is not None or spec.part else None
        self.model = load_model(plan.model, spec)
        plan.check_code()
        for chunks in (training, validation):
            if chunks is not None:
                self._check_ids(chunks, tokenizer)
        self.identity = plan.identity | {
            "attention": self.model.attention,
            "head": {"tied": self.model.tied, "bias": self.model.bias is not None},
            "statistics": {kind.name: kind.version for kind in self.kinds},
        }
        if validation is None and spec.part is None:  # an optional split that is not there
            self.identity["validation"] = None
        self.partial = Partial(self.folder)
        if store is None:
            assert training is not None  # without a store the plan has a corpus
            store = self._train(training)
            self.clock = Clock()
        if store.state == "trained" and validation is not None:
            store = self._validate(store, validation)
        return store

    def _check_ids(self, chunks: Chunks, tokenizer: Any) -> None:
        rows = min(self.model.input_rows, len(self.model.weight))
        if max(tokenizer.get_vocab().values(), default=0) < rows:  # ids may be sparse: few tokens, large ids
            return
        # ids of 2³¹ and above are negative in the packed text
        beyond = chunks.tokens.max() if chunks.tokens.min() >= 0 else chunks.tokens.min() + 2**32
        if (largest := int(beyond)) >= rows:
            raise CollapseError(
                f"the text holds token id {largest:,}, but {self.plan.model.name} embeds {rows:,} tokens: "
                f"its tokenizer (of {len(tokenizer):,}) is larger than that; name the right one with --tokenizer"
            )

    def _train(self, chunks: Chunks) -> Store:
        slices = self._cut("train", chunks)
        kinds = [kind for kind in self.kinds if kind.phase == "train"]
        place = self._resume(slices, None)
        if place is None:
            moments = ClassMoments(self.model.dim, self._home, Filled.begin(kinds))
        else:
            state = self.partial.tensors(place)
            moments = ClassMoments.from_state(state, self._home, *resumable(kinds, place, state))

        def add(h_BTd: Tensor, tokens_BT: Tensor) -> None:
            moments.add(*samples(h_BTd, tokens_BT))

        batch = self._run(slices, place, add, moments.state, moments.statistics)
        s = moments.statistics_so_far()
        self.dropped = moments.statistics.dropped
        head = {"weight": self.model.weight[s.classes.to(self.model.device)]}
        if self.model.bias is not None:
            head["bias"] = self.model.bias[s.classes.to(self.model.device)]
        files: dict[str, Mapping[str, Tensor]] = {
            f"{LAYER}/train.safetensors": {
                "classes": s.classes,
                "counts": s.counts,
                "means": s.means,
                "variances": s.variances,
            },
            f"{LAYER}/classifier.safetensors": head,
        }
        files |= {f"{LAYER}/{name}.safetensors": tensors for name, tensors in s.extra.items()}
        assert self.plan.texts.training is not None  # it was packed
        about = {
            "identity": self.identity | {"statistics": self._asked()},
            "model": {
                "name": self.plan.model.name,
                "revision": self.plan.model.revision,
                "n_params": self.model.n_params,
                "vocabulary": len(self.model.weight),
            },
            "corpus": {"name": self.plan.texts.training.name, "validation": self.validation_name},
            "coverage": {"train": slices.coverage([[slices.start, slices.stop]]), "validation": None},
            "statistics": dict(s.versions),
            "statistics_by": dict(s.made_by),
        }
        store = build(self.folder, about, files, provenance=self._provenance("train", chunks, batch))
        self.partial.clear()
        return store

    def _validate(self, store: Store, chunks: Chunks) -> Store:
        now = {**self.identity, "statistics": store.identity["statistics"]}
        if store.manifest["coverage"]["validation"] is None:  # any text may become its validation
            now["validation"] = store.identity["validation"]
        differ = differences(store.identity, now)
        if differ:
            raise StoreError(
                f"{self.folder} was trained with another model: it differs in {'; '.join(differ)} (there and now)"
            )
        slices = self._cut("validation", chunks)
        start, stop = slices.start, slices.stop
        means = means_hash(store)
        covered = store.manifest["coverage"]["validation"]
        if covered and covered["means"] != means:
            log.warning("validation results of other class means are discarded")
            covered = None
        if covered and (covered["chunks"], covered["slice_chunks"]) != (len(chunks), slices.length):
            log.warning("validation results of other slices are discarded")
            covered = None
        pieces = pieces_of(store) if covered else []
        if any(a < stop and start < b for (a, b), _ in pieces):
            return self._already_validated(store, pieces, start, stop)
        kinds = [kind for kind in self.kinds if kind.phase == "validation"]
        if pieces:  # only what all parts hold can be kept
            kinds = [kind for kind in kinds if not unlike(store, kind)]
        tally = ValidationTally(Decider(store.statistics(), self.model.weight, self.model.bias), Filled.begin(kinds))
        place = self._resume(slices, means)
        if place is not None:
            saved = self.partial.tensors(place)
            tally.resume(saved, *resumable(kinds, place, saved))

        def add(h_BTd: Tensor, tokens_BT: Tensor) -> None:
            tally.add(*samples(h_BTd, tokens_BT), chunks=len(tokens_BT))

        batch = self._run(slices, place, add, tally.state, tally.statistics, means)
        if covered:
            before = filled_of(store, [type(each) for each in tally.statistics], self._home)
            tally.statistics.merge(before, NOTHING, NOTHING)
        state = {name: value for name, value in tally.state().items() if "/" not in name}
        pieces = sorted([*pieces, ((start, stop), ValidationStatistics(**state))], key=lambda piece: piece[0])
        self.dropped = tally.statistics.dropped
        coverage = slices.coverage(joined([run for run, _ in pieces])) | {"means": means}
        assert self.plan.texts.validation is not None  # it was packed
        about = {
            "identity": {**store.identity, "validation": self.identity["validation"]},
            "model": store.manifest["model"],
            "corpus": {**store.manifest["corpus"], "validation": self.plan.texts.validation.name},
            "coverage": {**store.manifest["coverage"], "validation": coverage},
        }
        provenance = store.manifest["provenance"] | {"validation": self._provenance("validation", chunks, batch)}
        made = add_validation(store, pieces, tally.statistics, path=self.folder, about=about, provenance=provenance)
        self.partial.clear()
        return made

    def _already_validated(
        self,
        store: Store,
        pieces: Sequence[tuple[tuple[int, int], ValidationStatistics]],
        start: int,
        stop: int,
    ) -> Store:
        if any(a <= start and stop <= b for a, b in joined([run for run, _ in pieces])):
            self.partial.clear()  # of the run that added it, and was killed then
            return store
        done = spans(joined([run for run, _ in pieces]))
        raise StoreError(
            f"{self.folder} already holds validation slices {done}, which overlap {spans([[start, stop]])}: "
            "choose a part beside them, or --recollect"
        )

    @property
    def _home(self) -> torch.device:
        """Where statistics accumulate: beside the model, but for devices without float64."""
        return torch.device("cpu") if self.model.device.type == "mps" else self.model.device

    def _cut(self, phase: str, chunks: Chunks) -> Slices:
        kind = self.model.device.type
        spec = self.plan.spec
        return Slices.cut(phase, chunks, batch_size=spec.batch_size, part=spec.part, device=kind)

    def _run(
        self,
        slices: Slices,
        place: Progress | None,
        add: Callable[[Tensor, Tensor], None],
        state: Callable[[], dict[str, Tensor]],
        statistics: Filled,
        means: str | None = None,
    ) -> int:
        check_classifier(self.model.weight, self.model.bias, "the model's output embedding")
        check_model(self.model, slices.tokens(slices.first_chunk, slices.first_chunk + 1))
        return run_slices(
            slices,
            self.model,
            place=place,
            add=add,
            state=state,
            partial=self.partial,
            about=lambda: {
                "identity": self.identity,
                "means": means,
                "made_by": makers(type(each) for each in statistics),
                "dropped": statistics.dropped,
            },
            report=self.report,
        )

    def _resume(self, slices: Slices, means: str | None) -> Progress | None:
        place = find_place(self.partial, slices, self.identity, means)
        if place is not None:
            self.earlier[slices.phase] = place.done - place.start
        return place

    def _asked(self) -> dict[str, int]:
        """Versions of the statistics asked for, but those that failed."""
        return {kind.name: kind.version for kind in self.kinds if kind.name not in self.dropped}

    def _provenance(self, phase: str, chunks: Chunks, batch: int) -> dict[str, Any]:
        more: dict[str, Any] = {"slices_of_earlier_runs": self.earlier[phase]} if self.earlier.get(phase) else {}
        if self.dropped:
            more["dropped_statistics"] = self.dropped
        return {
            **self.clock.times(),
            **more,
            "device": device_name(self.model.device),
            "batch_size": batch,
            "threads": torch.get_num_threads(),
            "tokens": tokens_hash(chunks),
            "versions": versions(),
            "command": command_line(),
        }
