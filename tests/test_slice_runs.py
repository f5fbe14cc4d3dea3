"""Slices through a model that records what it is given: every chunk once and in order, whatever happens in between."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from collapse.collection.slices import Slices, run_slices
from collapse.errors import CollapseError
from collapse.inputs.language_model import LanguageModel
from collapse.inputs.packing import Chunks
from collapse.inputs.text_source import TextPhase
from collapse.numerics.finite import NotFinite
from collapse.stores.partial import Partial, Progress

LENGTH = 4  # T
SPANS = [(1, 0, 2), (2, 3, 5), (3, 6, 8), (4, 9, 10)]  # of slices of 3 chunks


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


def run(slices, folder, place=None, add=None, told=None, state=None) -> int:
    counted = torch.zeros(1)

    def count(h_nd, y_n, first, chunks):
        counted.add_(chunks)

    return run_slices(
        slices=slices,
        place=place,
        add=add or count,
        state=state or (lambda: {"counted": counted}),
        partial=Partial(folder),
        about=lambda: {"identity": {"a": 1}, "means": None, "made_by": {}},
        report=told,
    )


@pytest.mark.parametrize(
    ("chunks", "batch_size", "part", "expected"),
    [
        (40, 2, None, (4, 0, 10, 2)),
        (40, 1, None, (4, 0, 10, 1)),
        (40, 7, None, (4, 0, 10, 4)),
        (40, "auto", None, (4, 0, 10, 4)),
        (39, 2, (2, 3), (4, 3, 6, 2)),
        (41, 2, (3, 3), (4, 7, 11, 2)),
        (1, "auto", None, (1, 0, 1, 1)),
    ],
)
def test_a_text_is_cut_whatever_the_batch_size(chunks, batch_size, part, expected):
    slices = Slices.cut(of("train", chunks), batch_size=batch_size, part=part)
    assert (slices.length, slices.start, slices.stop, slices.first_batch) == expected
    assert slices.first_unit == expected[0] * expected[1]
    number = -(-chunks // slices.length)
    assert slices.phase.coverage([[0, 1]], {}) == {
        "chunks": chunks,
        "slice_chunks": slices.length,
        "slices": number,
        "done": [[0, 1]],
    }


def test_long_texts_begin_with_small_batches_on_a_cpu():
    phase = TextPhase("train", Chunks(np.zeros((10_000, 512), dtype="<i4")), recorder())
    assert Slices.cut(phase, batch_size="auto", part=None).first_batch == 4
    phase.model.weight = phase.model.weight.to("meta")  # a device that is no CPU
    assert Slices.cut(phase, batch_size="auto", part=None).first_batch == 32


def test_tokens_are_those_of_the_chunks():
    tokens = of("train", 9).tokens(3, 5)
    assert tokens.dtype == torch.int64
    assert tokens.tolist() == [[30, 31, 32, 33], [40, 41, 42, 43]]


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize(("start", "stop"), [(0, 4), (1, 3), (3, 4)])
def test_every_chunk_goes_through_once_and_no_batch_crosses_a_slice(tmp_path, batch, start, stop):
    model, told = recorder(), []
    slices = Slices(of("train", 11, model), 3, start, stop, batch)
    assert run(slices, tmp_path, told=lambda *words: told.append(words)) == batch
    seen = model.model["seen"]
    chunks = list(range(3 * start, min(3 * stop, 11)))
    assert [each for some in seen for each in some] == chunks
    for some in seen:
        assert len(some) <= batch
        assert len({each // 3 for each in some}) == 1
    assert sum(len(some) < batch for some in seen) <= stop - start  # only at the end of a slice
    done = np.cumsum([len(some) for some in seen]).tolist()
    assert told == [("collecting train", each, len(chunks)) for each in done]
    state = json.loads((tmp_path / "partial" / "state.json").read_text())
    assert {name: state[name] for name in ("start", "done", "stop", "chunks", "slice_chunks", "first_batch")} == {
        "start": start,
        "done": stop,
        "stop": stop,
        "chunks": 11,
        "slice_chunks": 3,
        "first_batch": batch,
    }
    assert state["identity"] == {"a": 1}
    assert Partial(tmp_path).tensors(Partial(tmp_path).read())["counted"].item() == len(chunks)


def test_the_state_is_written_after_slices_and_gone_on_with(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("collapse.collection.slices._SHARE", math.inf)
    model, written = recorder(), []
    slices = Slices(of("train", 11, model), 3, 0, 4, 2)
    caplog.set_level("DEBUG", logger="collapse")

    def add(h_nd, y_n, first, chunks):
        state = Partial(tmp_path).read()
        written.append((int(y_n[0]) // 10, state.done, state.file))
        if len(written) == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(slices, tmp_path, add=add)
    assert written == [
        *((0, 0, ""), (2, 0, "")),
        *((3, 1, "train-1-1.safetensors"), (5, 1, "train-1-1.safetensors")),
        *((6, 2, "train-1-2.safetensors"), (8, 2, "train-1-2.safetensors")),
    ]
    model.model["seen"].clear()
    run(slices, tmp_path, Partial(tmp_path).read())
    assert model.model["seen"] == [[6, 7], [8], [9, 10]]
    said = [each.rpartition(", ")[0] for each in caplog.messages if " slice " in each]
    assert said == [f"train: slice {n} of 4 done, chunks {low}–{high}" for n, low, high in SPANS]
    assert {file.name for file in (tmp_path / "partial").iterdir()} == {"state.json", "train-1-4.safetensors"}


def test_a_state_is_written_again_after_twenty_times_its_own_time(tmp_path, caplog, monkeypatch):
    """By a clock on which a slice takes a second, and its state 0.14 of one."""
    now = 0.0

    def state():
        nonlocal now
        now += 0.14
        return {"counted": torch.zeros(1)}

    def add(h_nd, y_n, first, chunks):
        nonlocal now
        now += 1.0

    monkeypatch.setattr("collapse.collection.slices.time.perf_counter", lambda: now)
    caplog.set_level("DEBUG", logger="collapse")
    run(Slices(of("train", 36), 3, 0, 12, 3), tmp_path, add=add, state=state)
    said = [int(each.split()[2]) for each in caplog.messages if " slice " in each]
    assert said == [1, 4, 7, 10, 12]
    assert Partial(tmp_path).read().done == 12
    spans = [each.split("chunks ")[1].split(",")[0] for each in caplog.messages if " slice " in each]
    ends = [0, *(3 * each for each in said)]
    assert spans == [f"{low}–{high - 1}" for low, high in pairwise(ends)]


@pytest.mark.parametrize(
    "error",
    [MemoryError(), torch.OutOfMemoryError("CUDA"), RuntimeError("DefaultCPUAllocator: can't allocate memory: 1 GB")],
)
def test_where_memory_runs_out_batches_are_halved_and_no_chunk_is_lost(tmp_path, caplog, error):
    model = recorder(3, error)
    assert run(Slices(of("train", 17, model), 8, 0, 3, 8), tmp_path) == 2
    assert [each for some in model.model["seen"] for each in some] == list(range(17))
    assert [each for each in caplog.messages if "memory ran out" in each] == [
        "memory ran out: going on with batches of 4 chunks",
        "memory ran out: going on with batches of 2 chunks",
    ]
    assert Partial(tmp_path).read().batch_size == 2
    narrow = recorder(1, error)
    assert run(Slices(of("train", 17, narrow), 8, 0, 3, 8), tmp_path) == 1
    assert narrow.model["seen"] == [[chunk] for chunk in range(17)]
    with pytest.raises(CollapseError, match="memory ran out with a single chunk"):
        run(Slices(of("train", 17, recorder(0, error)), 8, 0, 3, 8), tmp_path)


def test_other_errors_of_a_model_are_its_own(tmp_path):
    with pytest.raises(RuntimeError, match="shapes"):
        run(Slices(of("train", 5, recorder(1, RuntimeError("shapes"))), 2, 0, 3, 2), tmp_path)


def test_what_is_not_finite_is_named_by_its_chunk_and_sample(tmp_path):
    def add(h_nd, y_n, first, chunks):
        if 7 in (y_n // 10).tolist():
            raise NotFinite(5, "NaN")

    with pytest.raises(CollapseError, match="the embedding of sample 2 of validation chunk 7 is NaN: nothing"):
        run(Slices(of("validation", 11), 4, 0, 3, 2), tmp_path, add=add)


def test_a_sample_is_a_position_and_the_token_behind_it():
    rows, labels = of("train", 3).samples(1, 3)
    assert labels.tolist() == [11, 12, 13, 21, 22, 23]
    assert rows.tolist() == [[10], [11], [12], [20], [21], [22]]
    assert of("train", 3).labels(1, 3).tolist() == labels.tolist()


CUT = {"chunks": 11, "slice_chunks": 3, "first_batch": 2, "made_by": {}}


def progress(**other) -> Progress:
    known = {"phase": "train", "start": 0, "done": 2, "stop": 4, "batch_size": 2, "identity": {"a": 1}, "means": None}
    return Progress(**{**known, "file": "train-1-2.safetensors", "entry": {}, **CUT, **other})


@pytest.mark.parametrize(
    ("batch_size", "asked", "first_batch", "expected"),
    [(1, 2, 2, 1), (1, 3, 2, 3), (9, 2, 2, 3)],
)
def test_a_resumed_run_keeps_the_batch_size_that_memory_allowed(tmp_path, batch_size, asked, first_batch, expected):
    model = recorder()
    slices = Slices(of("train", 11, model), 3, 0, 4, asked)
    assert run(slices, tmp_path, progress(batch_size=batch_size, first_batch=first_batch)) == expected
    assert model.model["seen"][0] == list(range(6, 6 + expected))
