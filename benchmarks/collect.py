"""Collecting a model's training statistics, against its decoder's bare forward over the same batches.

Both run in one process, in turn, batch by batch of the same packed text: reading, statistics with the covariance and
writing the state are on our side only. Without ``--model`` and ``--text``, a GPT-Neo 4x256 with random weights reads
generated stories. Then both passes of a model like those of the demo (both_passes.py).
"""

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

import collapse
from benchmarks import both_passes
from benchmarks.memory import peak_growth
from benchmarks.models import made_in
from benchmarks.options import Options
from benchmarks.record import Goal, Growth, Record, Row, Table
from benchmarks.timing import exponents
from collapse.inputs import text_request
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.language_model import LanguageModel
from collapse.inputs.model_loading import load_model
from collapse.inputs.option import key_value


@dataclass(frozen=True)
class Work:
    """What is collected.

    Attributes:
        model: Folder of the model.
        text: File of the text.
        chunk_length: Tokens of a chunk.
        batch_size: Chunks of a batch.
        model_args: Further arguments for loading the model.
    """

    model: str
    text: str
    chunk_length: int
    batch_size: int
    model_args: Mapping[str, str | bool]

    def load(self) -> LanguageModel:
        """Load the model."""
        spec = CollectionSpec(text=self.text, chunk_length=self.chunk_length, model_args=self.model_args)
        return load_model(text_request.text_request(self.model, spec).model, spec)

    def collect(self, loaded: LanguageModel, chunks: int) -> tuple[int, int]:
        """Collect at most so many chunks with a model that is loaded; return how many they were, and their classes."""
        with (
            tempfile.TemporaryDirectory() as folder,
            patch.object(text_request, "load_model", lambda *_, **__: loaded),
        ):
            store = collapse.collect(
                self.model,
                store=Path(folder) / "store",
                text=self.text,
                chunk_length=self.chunk_length,
                max_chunks=chunks,
                batch_size=self.batch_size,
                model_args=self.model_args,
            )
            return store.manifest["coverage"]["train"]["chunks"], len(store.tensors("train")["classes"])


def benchmark(options: Options) -> Record:
    """Measure the whole text, and its half and quarter for the growth."""
    tokens = 1_024 if options.quick else 98_304
    with tempfile.TemporaryDirectory() as folder:
        work, title = _given(options) if options.model else _made(Path(folder), tokens, options.quick)
        chunks = max(4, tokens // work.chunk_length)
        clock = _Clock(work.load())
        work.collect(clock, min(chunks, work.batch_size))  # packs the text, and warms up
        points: list[tuple[dict[str, int], float]] = []
        for some in (chunks // 4, chunks // 2, chunks):
            clock.bare = 0.0
            start = time.perf_counter()
            read, classes = work.collect(clock, some)
            ours = time.perf_counter() - start - clock.bare
            tokens = read * work.chunk_length
            points.append(({"N": tokens}, ours))
        names = ("ours", "bare")
        peaks = {
            name: None if options.quick else peak_growth(f"benchmarks.collect:prepared_{name}", **vars(work))
            for name in names
        }
    rows = [
        Row("bare forward of the decoder", clock.bare, tokens / clock.bare, 1, peaks["bare"]),
        Row("collection", ours, tokens / ours, clock.bare / ours, peaks["ours"]),
    ]
    title = f"{title}, C = {classes:,}, batches of {work.batch_size} × {work.chunk_length:,}"
    table = Table(title, rows, unit="tokens", limit=f"the bare forward, with the attention {clock.attention}")
    tables, goals = [table], list[Goal]()
    if not options.model:  # the goals were set for these sizes
        both, share = both_passes.measured(quick=options.quick)
        tables.append(both)
        goals += [Goal("collection over the bare forward", ours / clock.bare, 1.15), share]
    return Record(
        f"collect-{Path(options.model).name}" if options.model else "collect",  # beside the file of the usual model
        "Training statistics of a model, with the covariance, reading and writing.",
        tables,
        [] if options.quick else goals,
        [Growth("collection", "time", exponents(points))],
        [f"collection of {tokens:,} tokens"],
    )


def _given(options: Options) -> tuple[Work, str]:
    model_args = dict(key_value(each, "--model-arg") for each in options.model_args)
    assert options.model
    assert options.text
    work = Work(options.model, options.text, options.chunk_length, options.batch_size, model_args)
    return work, Path(options.model).name


def _made(folder: Path, tokens: int, quick: bool) -> tuple[Work, str]:
    depth, width, vocabulary, length = (2, 64, 4_000, 256) if quick else (4, 256, 50_257, 2_048)
    made_in(folder, depth=depth, width=width, vocabulary=vocabulary, chunk_length=length, chunks=tokens // length)
    work = Work(str(folder / "model"), str(folder / "train.jsonl"), length, 2, {})
    return work, f"GPT-Neo {depth}x{width}"


class _Clock(LanguageModel):
    """The loaded model, which runs each batch once more through the bare decoder and takes its time."""

    def __init__(self, loaded: LanguageModel) -> None:
        super().__init__(loaded.model, loaded.weight, loaded.bias, loaded.input_rows, loaded.attention)
        self.bare = 0.0

    @torch.inference_mode()
    def embeddings(self, tokens_BT: torch.Tensor) -> torch.Tensor:
        """Return the embeddings, and time the bare decoder."""
        h = super().embeddings(tokens_BT)
        start = time.perf_counter()
        self.model.get_decoder()(input_ids=tokens_BT, use_cache=False)
        self.bare += time.perf_counter() - start
        return h


def prepared_ours(**arguments: Any) -> Callable[[], object]:
    """Return a piece of work whose peak is that of collecting a few batches with a model that is loaded."""
    work = Work(**arguments)
    loaded = work.load()
    return lambda: work.collect(loaded, 4 * work.batch_size)


def prepared_bare(**arguments: Any) -> Callable[[], object]:
    """Return a piece of work whose peak is that of the model's forward of one batch."""
    work = Work(**arguments)
    loaded = work.load()
    tokens_BT = torch.zeros(work.batch_size, work.chunk_length, dtype=torch.int64)
    return lambda: loaded.embeddings(tokens_BT)
