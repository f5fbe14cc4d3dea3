"""Pairs of models that differ in one thing: which pairs are formed, their numbers, and errors."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from collapse import CollapseError, Results, analyze

NAMES = ["".join(each) for each in itertools.product("12", ["x16_", "x32_"], ["01", "10"], "dL")]


def frame_of():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(16, 2)), columns=["val_loss", "nc4.agreement"])
    return frame.assign(model=NAMES)


def pair(frame, by="decay", **options):
    return analyze("paired", Results.from_frame(frame), **{"by": by, "columns": "nc4.agreement", **options})


def test_pairs_are_equal_in_everything_else_that_names_say():
    frame = frame_of()
    table = pair(frame.sample(frac=1, random_state=3))
    loss, agreement = table.records()
    columns = ["val_loss", "nc4.agreement"]
    change = frame[1::2].reset_index(drop=True)[columns] - frame[::2].reset_index(drop=True)[columns]
    for found, column in ((loss, "val_loss"), (agreement, "nc4.agreement")):
        rises = int((change[column] > 0).sum())
        assert (found["column"], found["pairs"]) == (column, 8)
        assert (found["rises"], found["falls"]) == (rises, 8 - rises)
        assert found["mean"] == pytest.approx(change[column].mean())
        of_architectures = change[column].groupby(np.arange(8) // 2).mean()
        assert found["p"] == pytest.approx(binomtest(int((of_architectures > 0).sum()), 4).pvalue)
        assert found["mean_low"] is None  # of four architectures
    assert (loss["better"], loss["r"]) == (loss["falls"], None)
    assert agreement["r"] == pytest.approx(np.corrcoef(change.T)[0, 1])
    assert table.title == "decay 0.1 − decay 0.0005, 8 pairs"
    assert "pairs are equal in depth, width, epochs, checkpoint" in table.notes
    back = pair(frame, values="0.1, 0.0005").records()[0]
    assert back["mean"] == pytest.approx(-loss["mean"])
    lone = pair(frame[:-1])
    assert lone.records()[0]["pairs"] == 7
    assert "1 row without a counterpart excluded" in lone.notes


@pytest.mark.parametrize("tables", [50, pytest.param(2_000, marks=pytest.mark.slow)])
def test_pairs_of_one_architecture_are_not_independent(tables):
    draw, wrong = np.random.default_rng(1), []
    names = [f"{depth}x16_{epochs}{decay}" for depth in range(1, 13) for epochs in ("01", "03", "10") for decay in "dL"]
    for _ in range(tables):
        shared, own = draw.normal(size=(2, 12, 1)), draw.normal(size=(2, 12, 3))
        change = (2 * shared + own).reshape(2, -1)
        values = np.stack([np.zeros_like(change), change], axis=-1).reshape(2, -1)
        table = pair(pd.DataFrame({"model": names, "val_loss": values[0], "nc4.agreement": values[1]}))
        loss, other = table.records()
        misses = [not other[f"{name}_low"] <= 0 <= other[f"{name}_high"] for name in ("mean", "r")]
        wrong.append([loss["p"] <= 0.05, *misses])
    assert np.mean(wrong, axis=0).max() <= 0.065 + 2.5 * np.sqrt(0.05 * 0.95 / tables)
    assert any("jackknife of the pairs of the 12 architectures" in note for note in table.notes)


def test_other_columns_can_be_equal():
    frame = frame_of().assign(text=list("ab") * 8, model=[f"m{i}" for i in range(16)], size=np.arange(16) // 2)
    assert pair(frame, by="text", equal="size").records()[0]["pairs"] == 8
    mixed = frame.assign(dtype=["float32", "bfloat16"] * 8)
    with pytest.raises(CollapseError, match=r"several rows .* are equal in dtype, .* choose rows with --where"):
        pair(mixed, by="text")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"by": "decay,width"}, "--by must name one column, got 'decay,width'"),
        ({"values": "0.1,0.3"}, r"--values 0\.1,0\.3: column decay has no value 0\.3; choose two of 0\.0005, 0\.1"),
        ({"where": "decay=0.1"}, r"decay has only the value 0\.1: give a table with two values, or another column"),
        ({"values": "0.1"}, r"decay has 2 values \(0\.0005, 0\.1\): choose two with --values"),
        ({"equal": "width"}, "several rows .* choose rows with --where, or name more columns with --equal"),
        ({"where": "model=1x16*"}, "only 2 pairs of rows differ in decay .*: give a table with at least 3"),
    ],
)
def test_what_cannot_be_paired(options, said):
    with pytest.raises(CollapseError, match=said):
        pair(frame_of(), **options)
