"""Training and the demo, at a small size."""

import pytest

import collapse
from collapse.errors import UsageError
from collapse_zoo.demo import TESTED, demo
from collapse_zoo.runs import Run

SMALL = {"widths": (16, 32), "seeds": (0, 1), "n_stories": 200, "steps": 40}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    phases: list[str] = []
    made = demo(folder, **SMALL, progress=lambda what, *_: phases.append(what))
    for model in range(1, 5):  # the progress tells which of how many
        for what in ("training", "collecting train", "collecting validation", "sweeping pairs"):
            assert any(phase.startswith(f"{model} of 4: {what}") for phase in phases)
    return *made, folder


def test_the_demo_trains_collects_measures_and_tests(small):
    rows, analysis, folder = small
    assert [row.model for row in rows] == ["2x16-s0", "2x16-s1", "2x32-s0", "2x32-s1"]
    for row in rows:
        nulls = {name for name, value in row.measurements.items() if value is None}
        assert nulls <= {"nc2.interference_debiased"}  # which noise decides in so short a text
    assert len(collapse.Results.read(folder / "results.csv")) == 4
    assert sorted(row[0] for row in analysis.rows) == sorted(TESTED)
    lines = Run(folder / "models" / "2x32-s0").state()["log_history"]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses[-1] < losses[0]


def test_a_second_run_uses_finished_work_again(small):
    *_, folder = small
    weights = folder / "models" / "2x16-s0" / "model.safetensors"
    (folder / "text" / "validation.jsonl").unlink()  # as after a kill before it was written
    (folder / "tokenizer" / "tokenizer_config.json").unlink()
    before, results = weights.stat().st_mtime_ns, (folder / "results.csv").read_bytes()
    demo(folder, **SMALL)
    assert weights.stat().st_mtime_ns == before
    assert (folder / "results.csv").read_bytes() == results


def test_a_folder_of_the_users_own_is_refused(tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "train.jsonl").write_text("mine")
    with pytest.raises(UsageError, match="holds files that the demo did not write: choose another --output"):
        demo(tmp_path, n_stories=40, widths=(), seeds=())
    assert [each.name for each in tmp_path.rglob("*")] == ["text", "train.jsonl"]
