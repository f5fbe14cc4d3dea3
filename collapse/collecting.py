"""Model × chunks → store: one pass over the training text, one over the validation text, in slices.

A slice is a fixed run of chunks, the unit of work and of resuming: after each one the state is written, and a
killed run goes on from there to the same bytes.
"""

import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from collapse.accumulate import ClassMoments, NotFinite, Statistic
from collapse.decisions import Decider, ValidationTally
from collapse.errors import CollapseError, StoreError, UsageError
from collapse.features import collect_features, is_features_file
from collapse.files import home, locked
from collapse.merging import NOTHING, add_validation, joined, means_hash, pieces_of
from collapse.models import check_dtype, load_model, load_tokenizer
from collapse.packing import Chunks, pack
from collapse.partial import Partial, Progress
from collapse.planning import Plan, first_batch, part_of, plan_collection, slice_length
from collapse.plugin_manager import plugins
from collapse.statistics import ValidationStatistics
from collapse.store import LAYER, MANIFEST, Store, build, differences, is_store, now, spans
from collapse.text import Corpus

log = logging.getLogger("collapse")

Report = Callable[[str, int, int | None], None]


def collect(
    model: str | Path,
    *,
    store: str | Path | None = None,
    text: str | Sequence[str] | None = None,
    validation_text: str | Sequence[str] | None = None,
    split: str = "train",
    validation_split: str = "validation",
    text_column: str = "text",
    tokenizer: str | None = None,
    revision: str | None = None,
    dtype: str = "float32",
    device: str = "auto",
    chunk_length: int | None = None,
    max_chunks: int | None = None,
    batch_size: int | str = "auto",
    shards: int = 2,
    eos_between: bool = False,
    model_args: Mapping[str, Any] | None = None,
    trust_remote_code: bool = False,
    without: Sequence[str] = (),
    part: tuple[int, int] | None = None,
    deterministic: bool = False,
    recollect: bool = False,
    progress: Report | None = None,
) -> Store:
    """Collect a model's embedding statistics into a store, or open the store that already holds them.

    Args:
        model: A local folder, a Hub id (``repo@revision``), or a features file.
        store: Folder of the store; None for the local cache, where it is found again by what it holds.
        text: Training text: files or globs (.txt, .jsonl, .parquet), or a Hub data set; None for the one that the
            model's card names.
        validation_text: The same for validation; None for the data set's validation split, if it has one.
        split, validation_split, text_column: Of a data set.
        tokenizer: Another tokenizer than the model's own.
        revision: Of a Hub model.
        dtype: In which the model runs; float32 as in the paper.
        device: "auto", "cpu", "cuda", ...
        chunk_length: T, tokens a chunk; None for min(2048, the model's limit).
        max_chunks: At most this many chunks of each text.
        batch_size: Chunks a batch, or "auto": halved when memory runs out.
        shards: Contiguous shards of the text before grouping (the paper's preprocessing used 2 workers).
        eos_between: Put the tokenizer's end-of-text token after each text.
        model_args: Passed to transformers' ``from_pretrained`` of config, model and tokenizer.
        trust_remote_code: Whether code of the model's repository may run.
        without: Names of plugin statistics not to fill, such as "covariance".
        part: (k, n): only the k-th of n shares of the slices; merge them with :func:`collapse.merge`.
        deterministic: Ask torch for deterministic algorithms (on CUDA, for byte-identical reruns).
        recollect: Collect anew even where a store is there.
        progress: Called as progress(what, done, total).

    Returns:
        The store: complete, trained but not validated (no validation text), or a part.

    Raises:
        UsageError: An option is wrong, or no corpus is known.
        StoreError: The folder holds a store of something else; the fields and both values are named.
        CollapseError: Something cannot be found, read, loaded or written, or an embedding is not finite.
    """
    check_dtype(dtype)
    known = plugins().statistics
    for name in without:
        if name not in known:
            raise UsageError(f"no statistic is called {name!r}; there are {', '.join(sorted(known)) or 'none'}")
    if batch_size != "auto" and (not isinstance(batch_size, int) or batch_size < 1):
        raise UsageError(f"--batch-size {batch_size} makes no sense: give a number of chunks, or auto")
    kinds = [kind for name, kind in sorted(known.items()) if name not in without]
    if is_features_file(model):
        return _features(Path(model), Path(store) if store else None, kinds)
    there = Store.load(store) if store and is_store(store) else None
    plan = plan_collection(
        str(model),
        there=there.identity if there else None,
        text=text,
        validation_text=validation_text,
        split=split,
        validation_split=validation_split,
        text_column=text_column,
        tokenizer=tokenizer,
        revision=revision,
        chunk_length=chunk_length,
        shards=shards,
        eos_between=eos_between,
        max_chunks=max_chunks,
        dtype=dtype,
        model_args=model_args,
    )
    folder = Path(store) if store else plan.cached
    done = None if recollect else _finished(folder, plan, part)
    if done is not None:
        return done
    _refuse_other_folder(folder)
    with locked(folder):
        done = None if recollect else _finished(folder, plan, part)  # another process may have finished it just now
        if done is not None:
            return done
        if recollect:
            (folder / MANIFEST).unlink(missing_ok=True)
            Partial(folder).clear()
        work = _Work(plan, folder, kinds, batch_size, part, progress)
        return work.run(device=device, trust_remote_code=trust_remote_code, deterministic=deterministic)


def _features(path: Path, folder: Path | None, kinds: Sequence[type[Statistic]]) -> Store:
    made = collect_features(path, kinds=kinds)
    if folder is None:
        return made
    if is_store(folder):
        have = Store.load(folder).check()
        if have.digest != made.digest:
            differ = differences(have.identity, made.identity) or ["its statistics"]
            raise StoreError(
                f"{folder} holds another store, which differs in {'; '.join(differ)}: choose another --store"
            )
        return have
    _refuse_other_folder(folder)
    with locked(folder):
        return made.save(folder)


def _refuse_other_folder(folder: Path) -> None:
    if folder.is_file():
        raise StoreError(f"{folder} is a file: a store is a folder; choose another --store")
    if not folder.is_dir() or is_store(folder) or (folder / "partial").is_dir():
        return
    strange = sorted(each.name for each in folder.iterdir() if each.name not in (LAYER, ".lock"))
    if strange:
        raise StoreError(
            f"{folder} holds other things than a store ({', '.join(strange[:3])}): "
            "choose an empty or a new folder for --store"
        )


def _finished(folder: Path, plan: Plan, part: tuple[int, int] | None) -> Store | None:
    """The store in a folder, if it holds what is asked for; None if there is work to do on it or none is there."""
    if not is_store(folder):
        return None
    store = Store.load(folder).check()
    known_later = {"attention", "head", "statistics"}
    adopts = {"validation"} if store.identity["validation"] is None else set()
    differ = [
        each
        for each in differences(store.identity, plan.identity)
        if each.split(".")[0].split(":")[0] not in known_later | adopts
    ]
    if differ:
        raise StoreError(
            f"{folder} holds another store, which differs in {'; '.join(differ)} (there and now): "
            "choose another --store"
        )
    if store.state == "complete":
        return store
    if store.state == "part":
        train = store.manifest["coverage"]["train"]
        if part is not None and [list(part_of(train["slices"], part))] == train["done"]:
            return store
        raise StoreError(
            f"{folder} holds {store.covered()}: collect other parts into other stores, "
            "then: collapse merge STORE… --store DIR"
        )
    if plan.validation is None or (plan.optional_validation and store.manifest["corpus"]["validation"] is None):
        return store
    return None


@dataclass
class _Work:
    """One collection under way, holding the store's lock."""

    plan: Plan
    folder: Path
    kinds: Sequence[type[Statistic]]
    batch_size: int | str
    part: tuple[int, int] | None
    report: Report | None

    def run(self, *, device: str, trust_remote_code: bool, deterministic: bool) -> Store:
        self.started = now()
        plan = self.plan
        tokenizer = load_tokenizer(plan.tokenizer, model_args=plan.model_args, trust_remote_code=trust_remote_code)
        store = Store.load(self.folder) if is_store(self.folder) else None
        training = self._pack(plan.corpus, tokenizer) if store is None and plan.corpus else None
        validation = self._pack_validation(tokenizer) if store is not None or self.part is None else None
        self.model = load_model(
            plan.model,
            dtype=plan.dtype,
            device=device,
            model_args=plan.model_args,
            trust_remote_code=trust_remote_code,
            deterministic=deterministic,
        )
        for chunks in (training, validation):
            if chunks is not None:
                self._check_ids(chunks, tokenizer)
        self.identity = plan.identity | {
            "attention": self.model.attention,
            "head": {"tied": self.model.tied, "bias": self.model.bias is not None},
            "statistics": {kind.name: kind.version for kind in self.kinds},
        }
        self.partial = Partial(self.folder)
        if store is None:
            assert training is not None  # without a store the plan has a corpus
            store = self._train(training)
        if store.state == "trained" and validation is not None:
            store = self._validate(store, validation)
        return store

    def _pack(self, corpus: Corpus, tokenizer: Any) -> Chunks:
        return pack(
            corpus,
            tokenizer,
            chunk_length=self.plan.chunk_length,
            tokenizer_hash=self.plan.tokenizer.tokenizer,
            shards=self.plan.shards,
            eos_between=self.plan.eos_between,
            max_chunks=self.plan.max_chunks,
            cache=home(),
            progress=self.report,
        )

    def _pack_validation(self, tokenizer: Any) -> Chunks | None:
        if self.plan.validation is None:
            return None
        try:
            return self._pack(self.plan.validation, tokenizer)
        except UsageError:
            if not self.plan.optional_validation:
                raise
            log.info(
                "%s has no split %r: nc4 and val_* will be null",
                self.plan.validation.name,
                self.plan.validation.split,
            )
            return None

    def _check_ids(self, chunks: Chunks, tokenizer: Any) -> None:
        rows = min(self.model.input_rows, len(self.model.weight))
        if len(tokenizer) <= rows:
            return
        largest = int(chunks.tokens.max())
        if largest >= rows:
            raise CollapseError(
                f"the text holds token id {largest:,}, but {self.plan.model.name} embeds {rows:,} tokens: "
                f"its tokenizer (of {len(tokenizer):,}) is larger than that; name the right one with --tokenizer"
            )

    def _train(self, chunks: Chunks) -> Store:
        length = slice_length(len(chunks), self._fixed_batch, chunks.chunk_length)
        slices = -(-len(chunks) // length)
        start, stop = part_of(slices, self.part)
        kinds = [kind for kind in self.kinds if kind.phase == "train"]
        place = self._resume("train", start, stop, None)
        if place is None:
            moments = ClassMoments(self.model.dim, self._home, [kind() for kind in kinds])
        else:
            moments = ClassMoments.from_state(self.partial.tensors(place), self._home, kinds)
        self.model.check_head(_tokens(chunks, start * length, start * length + 1))

        def add(h_BTd: Tensor, tokens_BT: Tensor) -> None:
            moments.add(*_samples(h_BTd, tokens_BT))

        batch = self._slices("train", chunks, length, (start, stop), place, add, moments.state)
        s = moments.statistics_so_far()
        names = {kind.name: kind.version for kind in kinds}
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
        assert self.plan.corpus is not None  # it was packed
        validation = self.plan.validation
        about = {
            "identity": self.identity,
            "model": {
                "name": self.plan.model.name,
                "revision": self.plan.model.revision,
                "n_params": self.model.n_params,
                "vocabulary": len(self.model.weight),
            },
            "corpus": {"name": self.plan.corpus.name, "validation": validation.name if validation else None},
            "coverage": {"train": _coverage(chunks, length, slices, [[start, stop]]), "validation": None},
            "statistics": names,
        }
        store = build(self.folder, about, files, provenance=self._provenance(batch))
        self.partial.clear()
        return store

    def _validate(self, store: Store, chunks: Chunks) -> Store:
        differ = differences(store.identity, {**self.identity, "statistics": store.identity["statistics"]})
        differ = [
            each for each in differ if not (each.startswith("validation:") and store.identity["validation"] is None)
        ]
        if differ:
            raise StoreError(
                f"{self.folder} was trained with another model: it differs in {'; '.join(differ)} (there and now)"
            )
        length = slice_length(len(chunks), self._fixed_batch, chunks.chunk_length)
        slices = -(-len(chunks) // length)
        start, stop = part_of(slices, self.part)
        means = means_hash(store)
        covered = store.manifest["coverage"]["validation"]
        if covered and covered["means"] != means:
            log.warning("validation results of other class means are discarded")
            covered = None
        pieces = pieces_of(store) if covered else []
        if any(a < stop and start < b for (a, b), _ in pieces):
            return self._already_validated(store, pieces, start, stop)
        kinds = [kind for kind in self.kinds if kind.phase == "validation"]
        if pieces:  # only what all parts hold can be kept
            kinds = [kind for kind in kinds if store.manifest["statistics"].get(kind.name) == kind.version]
        tally = ValidationTally(
            Decider(store.statistics(), self.model.weight, self.model.bias), [kind() for kind in kinds]
        )
        place = self._resume("validation", start, stop, means)
        if place is not None:
            tally.resume(self.partial.tensors(place))
        self.model.check_head(_tokens(chunks, start * length, start * length + 1))

        def add(h_BTd: Tensor, tokens_BT: Tensor) -> None:
            tally.add(*_samples(h_BTd, tokens_BT), chunks=len(tokens_BT))

        batch = self._slices("validation", chunks, length, (start, stop), place, add, tally.state, means)
        state = {name: value for name, value in tally.state().items() if "/" not in name}
        pieces = sorted([*pieces, ((start, stop), ValidationStatistics(**state))], key=lambda piece: piece[0])
        statistics = {each.name: each for each in tally.statistics}
        for name, statistic in statistics.items():
            if covered:
                before = type(statistic).from_tensors(store.tensors(name))
                statistic.merge(before, NOTHING, NOTHING)
        coverage = _coverage(chunks, length, slices, joined([run for run, _ in pieces])) | {"means": means}
        assert self.plan.validation is not None  # it was packed
        versions = store.manifest["statistics"] | {kind.name: kind.version for kind in kinds}
        about = {
            "identity": {**store.identity, "validation": self.identity["validation"], "statistics": versions},
            "model": store.manifest["model"],
            "corpus": {**store.manifest["corpus"], "validation": self.plan.validation.name},
            "coverage": {**store.manifest["coverage"], "validation": coverage},
            "statistics": versions,
        }
        provenance = store.manifest["provenance"] | {"validation": self._provenance(batch)}
        made = add_validation(store, pieces, statistics, path=self.folder, about=about, provenance=provenance)
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
            return store
        done = spans(joined([run for run, _ in pieces]))
        raise StoreError(
            f"{self.folder} already holds validation slices {done}, which overlap {spans([[start, stop]])}: "
            "choose a part beside them, or --recollect"
        )

    @property
    def _fixed_batch(self) -> int | None:
        return self.batch_size if isinstance(self.batch_size, int) else None

    @property
    def _home(self) -> torch.device:
        """Where statistics accumulate: beside the model, but for devices without float64."""
        return torch.device("cpu") if self.model.device.type == "mps" else self.model.device

    def _resume(self, phase: str, start: int, stop: int, means: str | None) -> Progress | None:
        place = self.partial.read()
        if place is None:
            return None
        if place.phase != phase:  # its store was finished before the state could be removed
            self.partial.clear()
            return None
        if place.means != means:
            log.warning("validation results of other class means are discarded")
            self.partial.clear()
            return None
        self.partial.check(place, self.identity, start, stop)
        log.info("%s: going on after slice %d of %d", phase, place.done, stop)
        return place

    def _slices(
        self,
        phase: str,
        chunks: Chunks,
        length: int,
        part: tuple[int, int],
        place: Progress | None,
        add: Callable[[Tensor, Tensor], None],
        state: Callable[[], dict[str, Tensor]],
        means: str | None = None,
    ) -> int:
        """Run the slices that are left, writing the state after each; returns the batch size in use."""
        start, stop = part
        first = self._fixed_batch or first_batch(len(chunks), chunks.chunk_length, self.model.device.type)
        batch = place.batch_size if place else min(first, length)
        begin, end = start * length, min(stop * length, len(chunks))
        for index in range(place.done if place else start, stop):
            clock = time.perf_counter()
            low, high = index * length, min((index + 1) * length, len(chunks))
            position = low
            while position < high:
                tokens = _tokens(chunks, position, min(position + batch, high))
                try:
                    h_BTd = self.model.embeddings(tokens)
                except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
                    batch = _halved(batch, error)
                    continue
                try:
                    add(h_BTd, tokens)
                except NotFinite as error:
                    chunk, sample = divmod(error.row, chunks.chunk_length - 1)
                    raise CollapseError(
                        f"the embedding of sample {sample} of {phase} chunk {position + chunk} is NaN or infinite: "
                        f"nothing was stored of it; try --dtype float32, and check the model's weights"
                    ) from error
                position += len(tokens)
                if self.report:
                    self.report(f"collecting {phase}", position - begin, end - begin)
            self.partial.write(
                state(),
                phase=phase,
                start=start,
                done=index + 1,
                stop=stop,
                batch_size=batch,
                identity=self.identity,
                means=means,
            )
            rate = (high - low) * chunks.chunk_length / (time.perf_counter() - clock)
            log.info(
                "%s: slice %d of %d done, chunks %d–%d, %s tokens/s",
                phase,
                index + 1,
                stop,
                low,
                high - 1,
                f"{rate:,.0f}",
            )
        return batch

    def _provenance(self, batch: int) -> dict[str, Any]:
        import transformers

        import collapse

        return {
            "started": self.started,
            "finished": now(),
            "device": _device_name(self.model.device),
            "batch_size": batch,
            "threads": torch.get_num_threads(),
            "versions": {
                "collapse": collapse.__version__,
                "torch": torch.__version__,
                "transformers": transformers.__version__,
                "python": sys.version.split()[0],
            },
            "command": _command(),
        }


def _command() -> str | None:
    """The command line without absolute paths, which are nobody else's business; None in a notebook or script."""
    program = Path(sys.argv[0])
    if program.name != "collapse" and program.parts[-2:] != ("collapse", "__main__.py"):
        return None
    return " ".join(["collapse", *(Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:])])


def _tokens(chunks: Chunks, start: int, stop: int) -> Tensor:
    return torch.from_numpy(chunks.tokens[start:stop].astype("int64"))


def _samples(h_BTd: Tensor, tokens_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Each position's embedding with the token that follows it: T−1 samples a chunk."""
    return h_BTd[:, :-1].reshape(-1, h_BTd.shape[-1]), tokens_BT[:, 1:].reshape(-1)


def _halved(batch: int, error: BaseException) -> int:
    out_of_memory = isinstance(error, torch.OutOfMemoryError | MemoryError) or "allocate memory" in str(error)
    if not out_of_memory:
        raise error
    if batch == 1:
        raise CollapseError(
            "memory ran out with a single chunk: lower --chunk-length, or use --dtype bfloat16 or --device cpu"
        ) from error
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    log.warning("memory ran out: going on with batches of %d chunks", batch // 2)
    return batch // 2


def _coverage(chunks: Chunks, length: int, slices: int, done: list[list[int]]) -> dict[str, Any]:
    return {"chunks": len(chunks), "slice_chunks": length, "slices": slices, "done": done}


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
