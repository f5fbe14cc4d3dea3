"""Collecting a model's training statistics, against its decoder's bare forward over the same batches.

Both run in one process, in turn, batch by batch of the same packed text: reading, statistics with the covariance and
writing the state are on our side only. A GPT-Neo 4x256 with random weights reads generated stories.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import torch
import transformers

import collapse
from benchmarks.memory import peak_growth
from benchmarks.record import Goal, Record, Row, Table
from collapse.inputs.language_model import LanguageModel
from collapse_zoo.model import build
from collapse_zoo.recipes import Recipe
from collapse_zoo.stories import stories, train_tokenizer, write_stories

_BATCH = 2
_STORY = 80  # tokens of a story, at least


def benchmark(quick: bool) -> Record:
    """Collect with a decoder that also runs each batch bare."""
    length, chunks = (256, 4) if quick else (2_048, 48)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        _make(folder, quick, length, chunks)
        _collect(folder, length, _BATCH)  # packs the text, and warms up
        clock = _Clock()
        with patch.object(LanguageModel, "embeddings", clock.wrapped(LanguageModel.embeddings)):
            store = _collect(folder, length, chunks)
        classes = len(store.tensors("train")["classes"])
        ours = time.perf_counter() - clock.began - clock.bare
        sizes = {"folder": made, "length": length}
        names = ("ours", "bare")
        peaks = [None if quick else peak_growth(f"benchmarks.collect:prepared_{name}", **sizes) for name in names]
    tokens = chunks * length
    rows = [
        Row("bare forward of the decoder", clock.bare, tokens / clock.bare, 1, peaks[1]),
        Row("collection", ours, tokens / ours, clock.bare / ours, peaks[0]),
    ]
    title = f"GPT-Neo {'2x64' if quick else '4x256'}, C = {classes:,}, batches of {_BATCH} × {length:,}"
    return Record(
        "collect",
        "Training statistics of a model, with the covariance, reading and writing.",
        [Table(title, rows, unit="tokens", limit="the bare forward")],
        [] if quick else [Goal("collection over the bare forward", ours / clock.bare, 1.15)],
    )


class _Clock:
    """Runs each batch once more through the bare decoder and takes its time; begins with the first batch."""

    def __init__(self) -> None:
        self.began, self.bare = 0.0, 0.0

    def wrapped(
        self, embeddings: Callable[[LanguageModel, torch.Tensor], torch.Tensor]
    ) -> Callable[[LanguageModel, torch.Tensor], torch.Tensor]:
        """Return the embeddings' function with the bare run after it."""

        @torch.inference_mode()
        def both(loaded: LanguageModel, tokens_BT: torch.Tensor) -> torch.Tensor:
            self.began = self.began or time.perf_counter()
            h = embeddings(loaded, tokens_BT)
            start = time.perf_counter()
            loaded.model.get_decoder()(input_ids=tokens_BT, use_cache=False)
            self.bare += time.perf_counter() - start
            return h

        return both


def _make(folder: Path, quick: bool, length: int, chunks: int) -> None:
    """Write model/, with its tokenizer, and train.jsonl, which has so many chunks or more."""
    sizes = {"depth": 2, "width": 64, "vocabulary": 4_000} if quick else {"depth": 4, "width": 256}
    transformers.utils.logging.disable_progress_bar()
    build(Recipe(**sizes, chunk_length=length, precision="float32")).save_pretrained(folder / "model")
    train_tokenizer(stories(400, seed=1), folder / "model", vocabulary=2_048)
    write_stories(folder / "train.jsonl", chunks * length // _STORY + 1, seed=1)


def _collect(folder: Path, length: int, chunks: int) -> collapse.Store:
    return collapse.collect(
        str(folder / "model"),
        store=folder / f"store-{chunks}",
        text=str(folder / "train.jsonl"),
        chunk_length=length,
        max_chunks=chunks,
        batch_size=_BATCH,
    )


def prepared_ours(folder: str, length: int) -> Callable[[], object]:
    """Return a piece of work whose peak is that of loading a model and collecting a few batches."""
    return lambda: _collect(Path(folder), length, 4 * _BATCH)


def prepared_bare(folder: str, length: int) -> Callable[[], object]:
    """Return a piece of work whose peak is that of the model's forward of one batch."""
    decoder = transformers.AutoModelForCausalLM.from_pretrained(f"{folder}/model").get_decoder()
    tokens_BT = torch.zeros(_BATCH, length, dtype=torch.int64)
    return torch.inference_mode()(lambda: decoder(tokens_BT, use_cache=False))
