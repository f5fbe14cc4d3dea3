"""Slices through a model that records what it is given: every chunk once and in order, whatever happens in between."""

import math

import numpy as np
import pytest
import torch

from collapse.collection.slices import run_slices
from collapse.errors import CollapseError
from collapse.inputs.language_model import LanguageModel
from collapse.inputs.packing import Chunks
from collapse.inputs.text_source import TextPhase

LENGTH = 4  # T


def text(chunks: int) -> Chunks:
    """Chunk k holds 10 k, 10 k + 1, and so on."""
    return Chunks((10 * np.arange(chunks)[:, None] + np.arange(LENGTH)).astype("<i4"))


class Recorder(LanguageModel):
    """Notes the chunks of each batch; memory is out above ``fits`` of them."""

    def embeddings(self, tokens_BT):
        if len(tokens_BT) > self.model["fits"]:
            raise self.model["error"]
        self.model["seen"].append((tokens_BT[:, 0] // 10).tolist())
        return tokens_BT.unsqueeze(2).float()


def recorder(fits=10**9, error=None) -> Recorder:
    return Recorder({"fits": fits, "error": error or MemoryError(), "seen": []}, torch.zeros(1, 1), None, 1, "none")


def of(phase, chunks, model=None) -> TextPhase:
    return TextPhase(phase, text(chunks), model or recorder())


def run(phase, start, stop, batch=3, add=None, told=None) -> list[tuple[int, int]]:
    """Run slices, and return where the state was saved: slices done and batch size."""
    saved = []
    run_slices(
        phase,
        start,
        stop,
        batch=batch,
        add=add or (lambda *given: None),
        save=lambda done, size: saved.append((done, size)),
        report=told,
    )
    return saved


@pytest.fixture
def slices_of_3(monkeypatch):
    """Slices of three chunks, whatever the length of the text."""
    monkeypatch.setattr("collapse.inputs.text_source.slice_length", lambda chunks, length: 3)


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize(("start", "stop"), [(0, 4), (1, 3), (3, 4)])
def test_every_chunk_goes_through_once_and_no_batch_crosses_a_slice(slices_of_3, monkeypatch, batch, start, stop):
    monkeypatch.setattr("collapse.collection.slices._SHARE", math.inf)
    model, told = recorder(), []
    saved = run(of("train", 11, model), start, stop, batch, told=lambda *words: told.append(words))
    assert saved == [(index, batch) for index in range(start + 1, stop + 1)]
    seen = model.model["seen"]
    chunks = list(range(3 * start, min(3 * stop, 11)))
    assert [each for some in seen for each in some] == chunks
    for some in seen:
        assert len(some) <= batch
        assert len({each // 3 for each in some}) == 1
    assert sum(len(some) < batch for some in seen) <= stop - start  # only at the end of a slice
    done = np.cumsum([len(some) for some in seen]).tolist()
    assert told == [("collecting train", each, len(chunks)) for each in done]


def test_a_state_is_saved_again_after_twenty_times_its_own_time(slices_of_3, caplog, monkeypatch):
    """By a clock on which a slice takes a second, and its state 0.14 of one."""
    now = 0.0

    def save(done, batch):
        nonlocal now
        now += 0.14

    def add(h_nd, y_n, first, chunks):
        nonlocal now
        now += 1.0

    monkeypatch.setattr("collapse.collection.slices.time.perf_counter", lambda: now)
    caplog.set_level("DEBUG", logger="collapse")
    run_slices(of("train", 36), 0, 12, batch=3, add=add, save=save)
    assert [int(each.split()[2]) for each in caplog.messages if " slice " in each] == [1, 4, 7, 10, 12]


@pytest.mark.parametrize(
    "error",
    [MemoryError(), torch.OutOfMemoryError("CUDA"), RuntimeError("DefaultCPUAllocator: can't allocate memory: 1 GB")],
)
def test_where_memory_runs_out_batches_are_halved_and_no_chunk_is_lost(caplog, monkeypatch, error):
    monkeypatch.setattr("collapse.inputs.text_source.slice_length", lambda chunks, length: 8)
    model = recorder(3, error)
    assert run(of("train", 17, model), 0, 3, 8)[-1] == (3, 2)
    assert [each for some in model.model["seen"] for each in some] == list(range(17))
    assert [each for each in caplog.messages if "memory ran out" in each] == [
        "memory ran out: going on with batches of 4 chunks",
        "memory ran out: going on with batches of 2 chunks",
    ]
    narrow = recorder(1, error)
    assert run(of("train", 17, narrow), 0, 3, 8)[-1] == (3, 1)
    assert narrow.model["seen"] == [[chunk] for chunk in range(17)]
    with pytest.raises(CollapseError, match="memory ran out with a single chunk"):
        run(of("train", 17, recorder(0, error)), 0, 3, 8)
