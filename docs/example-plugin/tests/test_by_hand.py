"""Each number once by hand. The laws are checked by the pytest plugin that pyproject.toml names."""

import math

import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from collapse_example.calibration import Calibration, calibration_error
from collapse_example.command import rarest
from collapse_example.longest import Longest, longest
from collapse_example.ranking import ranking
from collapse_example.spread import dimensions

import collapse
from collapse.testing import statistics_of, value


def collected():
    h = torch.tensor([[3.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, 2.0]])
    y = torch.tensor([0, 0, 1, 1])
    kinds = [Longest, Calibration]
    return collapse.collect_arrays(h, y, torch.eye(2), validation_features=h, validation_labels=y, statistics=kinds)


def test_a_cross_has_two_dimensions():
    assert value(dimensions, statistics_of([[1.0, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0]])) == pytest.approx(2)


def test_distances_of_a_square():
    s = statistics_of([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    row = collapse.measure(s, metrics=["spread"])
    assert row.measurements["spread.nearest"] == pytest.approx(1)
    assert row.measurements["spread.distance"] == pytest.approx((4 + 2 * math.sqrt(2)) / 6)


def test_the_longest_of_each_class():
    assert value(longest, collected().statistics()).tolist() == pytest.approx([1.5, 1.0])


def test_calibration():
    sure = [math.exp(x) / (math.exp(x) + 1) for x in (3, 1, 2, 2)]  # all decided rightly
    assert value(calibration_error, collected().statistics()) == pytest.approx(1 - sum(sure) / 4)


def test_the_analysis():
    frame = pd.DataFrame({"model": ["a", "b", "c"], "val_loss": [3.0, 1.0, 2.0]})
    assert ranking(collapse.Results.from_frame(frame), top=2).rows == [["b", 1.0], ["c", 2.0]]


def test_the_command(tmp_path):
    collected().save(tmp_path / "store")
    done = CliRunner().invoke(rarest, [str(tmp_path / "store"), "--top", "1"])
    assert done.exit_code == 0
    assert "samples" in done.output
