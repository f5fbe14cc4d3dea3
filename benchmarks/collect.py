"""Collecting a model's training statistics, against its decoder's bare forward over batches of the same sizes.

Reading, statistics with the covariance and writing are on our side only. A GPT-Neo 4x256 with random weights reads
generated stories.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import transformers

import collapse
from benchmarks.record import Record
from benchmarks.timing import in_turn, peak_growth
from collapse_zoo.fast_gpt_neo import prepare
from collapse_zoo.model import build
from collapse_zoo.recipes import Recipe
from collapse_zoo.stories import stories, train_tokenizer, write_stories

_BATCH = 2
_STORY = 80  # tokens of a story, at least


def benchmark(quick: bool) -> Record:
    """Collect, and run the decoder alone, in turn."""
    length, chunks = (256, 4) if quick else (2_048, 24)
    record = Record("collect", "Training statistics of a model, with the covariance, reading and writing.")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        _make(folder, quick, length, chunks)
        works = {"bare forward of the decoder": bare(made, length, chunks), "collection": ours(made, length, chunks)}
        times = in_turn(works, 1 if quick else 2)
        sizes = {"folder": made, "length": length, "chunks": 4 * _BATCH}
        functions = {} if quick else dict(zip(works, (bare, ours), strict=True))
        peaks = {work: peak_growth(function, **sizes) for work, function in functions.items()}
        classes = len(collapse.load(folder / "store").tensors("train")["classes"])
    title = f"GPT-Neo {'2x64' if quick else '4x256'}, C = {classes:,}, {chunks} chunks of {length:,}"
    limit = "bare forward of the decoder"
    record.add(title, times, amount=chunks * length, unit="tokens", limit=limit, peaks=peaks)
    return record


def _make(folder: Path, quick: bool, length: int, chunks: int) -> None:
    """Write model/, with its tokenizer, and train.jsonl, which has so many chunks or more."""
    sizes = {"depth": 2, "width": 64, "vocabulary": 4_000} if quick else {"depth": 4, "width": 256}
    transformers.utils.logging.disable_progress_bar()
    build(Recipe(**sizes, chunk_length=length, precision="float32")).save_pretrained(folder / "model")
    train_tokenizer(stories(400, seed=1), folder / "model", vocabulary=2_048)
    write_stories(folder / "train.jsonl", chunks * length // _STORY + 1, seed=1)


def ours(folder: str, length: int, chunks: int) -> Callable[[], object]:
    """Return a collection of so many chunks, which begins anew each time."""
    return lambda: collapse.collect(
        f"{folder}/model",
        store=f"{folder}/store",
        text=f"{folder}/train.jsonl",
        chunk_length=length,
        max_chunks=chunks,
        batch_size=_BATCH,
        recollect=True,
    )


def bare(folder: str, length: int, chunks: int) -> Callable[[], object]:
    """Return the model's forward passes of so many chunks."""
    decoder = transformers.AutoModelForCausalLM.from_pretrained(f"{folder}/model").get_decoder()
    prepare(decoder)
    tokens_BT = torch.zeros(_BATCH, length, dtype=torch.int64)

    @torch.inference_mode()
    def run() -> None:
        for _ in range(chunks // _BATCH):
            decoder(input_ids=tokens_BT, use_cache=False)

    return run
