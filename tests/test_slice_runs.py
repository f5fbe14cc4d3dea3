"""Running slices, with a model that records its batches: when states are saved, and what happens without memory."""

import numpy as np
import pytest
import torch

from collapse.collection.batches import run_slices
from collapse.errors import CollapseError
from collapse.inputs.chunk_files import Chunks
from collapse.inputs.language_model import LanguageModel
from collapse.inputs.text_source import TextPhase


class Recorder(LanguageModel):
    """Records the chunks of each batch; memory runs out for more than ``fits`` chunks."""

    def embeddings_by_layer(self, tokens_BT, names, stop):
        if len(tokens_BT) > self.model["fits"]:
            raise self.model["error"]
        self.model["seen"] += (tokens_BT[:, 0] // 10).tolist()
        return {layer: tokens_BT[:, :stop].unsqueeze(2).float() for layer in names}


@pytest.fixture
def phase(monkeypatch):
    """Return a function that makes samples of a text in slices, and the list of chunks that their model has seen."""

    def phase(chunks, per_slice, fits=10**9, error=None):
        monkeypatch.setattr("collapse.inputs.text_source.slice_length", lambda *_: per_slice)
        model = Recorder({"fits": fits, "error": error, "seen": []}, torch.zeros(1, 1), None, 1, "none")
        text = Chunks((10 * np.arange(chunks)[:, None] + np.arange(4)).astype("<i4"), np.arange(chunks) * 4, "")
        return TextPhase("train", text, model), model.model["seen"]

    return phase


def test_a_state_is_saved_again_after_a_hundred_times_its_own_time(phase, caplog, monkeypatch):
    """By a clock on which a slice takes a second, and its state 0.028 of one."""
    now = 0.0

    def take(seconds):
        nonlocal now
        now += seconds

    monkeypatch.setattr("collapse.collection.batches.time.perf_counter", lambda: now)
    caplog.set_level("DEBUG", logger="collapse")
    samples, _ = phase(36, 3)
    run_slices(samples, 0, 12, batch=3, add=lambda *_: take(1.0), save=lambda *_: take(0.028))
    assert [int(each.split()[2]) for each in caplog.messages if " slice " in each] == [1, 4, 7, 10, 12]


@pytest.mark.parametrize(
    "error",
    [MemoryError(), torch.OutOfMemoryError("CUDA"), RuntimeError("DefaultCPUAllocator: can't allocate memory: 1 GB")],
)
def test_where_memory_runs_out_batches_are_halved_and_no_chunk_is_lost(phase, caplog, error):
    for fits, used in ((3, 2), (1, 1)):
        samples, seen = phase(17, 8, fits, error)
        assert run_slices(samples, 0, 3, batch=8, add=lambda *_: None, save=lambda *done: done) == (3, used)
        assert seen == list(range(17))
    sizes = [each.split("batches of ")[1] for each in caplog.messages if "memory ran out: continuing" in each]
    assert sizes == ["4 chunks", "2 chunks", "4 chunks", "2 chunks", "1 chunks"]
    samples, _ = phase(17, 8, 0, error)
    with pytest.raises(CollapseError, match="memory ran out with a single chunk"):
        run_slices(samples, 0, 3, batch=8, add=lambda *_: None, save=lambda *_: None)
