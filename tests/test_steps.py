"""Training steps of checkpoints: read from names and revisions, or given; figures against steps."""

import numpy as np
import pytest

import collapse
from collapse.core.steps import run_and_step
from collapse.measurement.model_names import with_parts
from collapse.measurement.results import Results


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


def test_a_step_that_is_given_comes_before_that_of_the_name():
    draw = np.random.default_rng(0)
    arrays = {"features": draw.normal(size=(60, 4)), "labels": np.arange(60) % 3}
    for more in ({}, {"classifier": draw.normal(size=(3, 4))}):
        rows = [collapse.measure(**arrays, **more, name=f"mine-step{k}", metrics="nc2") for k in (1, 2)]
        assert [row.step for row in rows] == [1, 2]
        assert collapse.measure(**arrays, **more, step=7, name="mine-step1", metrics="nc2").step == 7
    assert "step" not in Results([collapse.measure(**arrays, metrics="nc2")]).frame()
    assert with_parts(Results(rows).frame())["step"].tolist() == [1, 2]
