"""Training steps of checkpoints: read from names and revisions, or given; figures against steps."""

import numpy as np
import pytest
from safetensors.numpy import save_file

import collapse
from collapse.core.steps import run_and_step
from collapse.errors import CollapseError
from collapse.measurement.model_names import with_parts
from collapse.measurement.results import Results
from collapse.plugin.figures import numbers_of


@pytest.mark.parametrize(
    ("name", "run", "step"),
    [
        ("step100", "", 100),
        ("owner/name-step0-hf", "owner/name-step0-hf", None),
        ("mine/global_step25", "mine", 25),
        ("footstep100", "footstep100", None),
    ],
)
def test_a_step_is_read_from_the_end_of_a_name(name, run, step):
    assert run_and_step(name) == (run, step)


def test_features_of_one_run_are_a_curve_of_one_corpus(run, tmp_path):
    draw = np.random.default_rng(0)
    labels, classifier = np.arange(60) % 3, draw.normal(size=(3, 4))
    for step in (100, 200):
        tensors = {"train_features": draw.normal(size=(60, 4)), "train_labels": labels, "classifier": classifier}
        save_file(tensors, tmp_path / f"step{step}.safetensors")
    files = [tmp_path / f"step{step}.safetensors" for step in (100, 200)]
    run("measure", *files, "--output", tmp_path / "rows.csv", "--metrics", "nc1.cdnv")
    results = Results.read(tmp_path / "rows.csv")
    assert results.frame()["step"].tolist() == [100, 200]
    drawing = collapse.draw("training", results)
    assert [each["step"] for each in numbers_of(drawing.spec)] == [100, 200]
    assert drawing.notes == ()


def test_a_step_that_is_given_comes_before_that_of_the_name():
    draw = np.random.default_rng(0)
    arrays = {"features": draw.normal(size=(60, 4)), "labels": np.arange(60) % 3}
    for more in ({}, {"classifier": draw.normal(size=(3, 4))}):
        rows = [collapse.measure(**arrays, **more, name=f"mine-step{k}", metrics="nc2") for k in (1, 2)]
        assert [row.step for row in rows] == [1, 2]
        assert collapse.measure(**arrays, **more, step=7, name="mine-step1", metrics="nc2").step == 7
    assert "step" not in Results([collapse.measure(**arrays, metrics="nc2")]).frame()
    assert with_parts(Results(rows).frame())["step"].tolist() == [1, 2]


def test_what_the_figure_of_training_needs_is_said():
    rows = [collapse.measure(features=np.eye(4), labels=[0, 0, 1, 1], name=name, metrics="nc2") for name in ("a", "b")]
    with pytest.raises(CollapseError, match=r"add a column step, or name models .* run/checkpoint-100, run-step100"):
        collapse.draw("training", Results(rows))
