"""Pairs of models that differ in one thing: which are made, what is counted, and what is refused."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from collapse import CollapseError, Results, analyze
from collapse.errors import UsageError


def frame_of(seed=0):
    draw = np.random.default_rng(seed)
    names = [
        f"{depth}x{width}_{epochs}{decay}"
        for depth in (1, 2)
        for width in (16, 32)
        for epochs in ("01", "10")
        for decay in "dL"
    ]
    frame = pd.DataFrame(draw.normal(size=(len(names), 2)), columns=["val_loss", "nc4.agreement"])
    return frame.assign(model=names)


def pair(frame, by="decay", **options):
    return analyze("paired", Results.from_frame(frame), **{"by": by, "columns": "nc4.agreement", **options})


def test_pairs_are_equal_in_everything_else_that_names_say():
    frame = frame_of()
    shuffled = frame.sample(frac=1, random_state=3)
    loss, agreement = pair(shuffled).records()
    change = (
        frame[1::2].reset_index(drop=True)[["val_loss", "nc4.agreement"]]
        - frame[::2].reset_index(drop=True)[["val_loss", "nc4.agreement"]]
    )
    for found, column in ((loss, "val_loss"), (agreement, "nc4.agreement")):
        rises = int((change[column] > 0).sum())
        assert (found["column"], found["pairs"]) == (column, 8)
        assert (found["rises"], found["falls"]) == (rises, 8 - rises)
        assert found["mean"] == pytest.approx(change[column].mean())
        of_architectures = change[column].groupby(np.arange(8) // 2).mean()
        assert found["p"] == pytest.approx(binomtest(int((of_architectures > 0).sum()), 4).pvalue)
        assert found["mean_low"] is None  # of four architectures
    assert loss["better"] == loss["falls"]
    assert loss["r"] is None
    assert agreement["r"] == pytest.approx(np.corrcoef(change.T)[0, 1])
    table = pair(shuffled)
    assert table.title == "decay 0.1 − decay 0.0005, 8 pairs"
    assert "pairs are equal in depth, width, epochs, checkpoint" in table.notes


@pytest.mark.parametrize("tables", [50, pytest.param(2_000, marks=pytest.mark.slow)])
def test_pairs_of_one_architecture_are_not_independent(tables):
    draw, wrong = np.random.default_rng(1), []
    names = [f"{depth}x16_{epochs}{decay}" for depth in range(1, 13) for epochs in ("01", "03", "10") for decay in "dL"]
    for _ in range(tables):
        shared, own = draw.normal(size=(2, 12, 1)), draw.normal(size=(2, 12, 3))
        change = (2 * shared + own).reshape(2, -1)
        values = np.stack([np.zeros_like(change), change], axis=-1).reshape(2, -1)
        frame = pd.DataFrame({"model": names, "val_loss": values[0], "nc4.agreement": values[1]})
        loss, agreement = pair(frame).records()
        r = agreement["r_low"], agreement["r_high"]
        wrong.append(
            [loss["p"] <= 0.05, *(not low <= 0 <= high for low, high in ((loss["mean_low"], loss["mean_high"]), r))]
        )
    print(np.mean(wrong, axis=0))  # noqa: T201  # the run's result
    assert np.mean(wrong, axis=0).max() <= 0.065 + 2.5 * np.sqrt(0.05 * 0.95 / tables)
    assert any("those of the same architecture together (12 units)" in note for note in pair(frame).notes)
    alone = pair(frame[:18].assign(model=[f"2x16_01{decay}{seed:02d}" for seed in range(9) for decay in "dL"]))
    assert alone.records()[0]["mean_low"] is not None  # seeds of one architecture


def test_values_choose_the_pairs_and_their_order():
    frame = frame_of()
    there, back = (pair(frame, values=each).records()[0]["mean"] for each in ("0.0005,0.1", "0.1, 0.0005"))
    assert there == pytest.approx(-back)
    assert pair(frame, by="width", values="16,32").records()[0]["pairs"] == 8
    more = pd.concat([frame, frame[4:8].assign(model=frame["model"].str.replace("x32", "x64"))])
    with pytest.raises(UsageError, match=r"width has 3 values \(16, 32, 64\): name two with --values"):
        pair(more, by="width")


def test_other_columns_can_be_equal():
    frame = frame_of().assign(text=list("ab") * 8, model=[f"m{i}" for i in range(16)], size=np.arange(16) // 2)
    assert pair(frame, by="text", equal="size").records()[0]["pairs"] == 8
    mixed = frame.assign(dtype=["float32", "bfloat16"] * 8)
    with pytest.raises(CollapseError, match=r"two rows .* are equal in dtype: choose rows with --where"):
        pair(mixed, by="text")


def test_a_row_without_a_counterpart_is_counted():
    table = pair(frame_of()[:-1])
    assert table.records()[0]["pairs"] == 7
    assert "1 row without a counterpart left out" in table.notes


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"by": "decoy"}, r"no column is called 'decoy' \(--by\); did you mean decay"),
        ({"by": "decay,width"}, "--by must name one column, got 'decay,width'"),
        ({"values": "0.1"}, "--values must be two different values of decay"),
        ({"values": "0.1,0.2"}, r"--values must be .* it has 0\.0005, 0\.1"),
        ({"values": "0.1,0.1"}, "--values must be"),
        ({"equal": "widht"}, r"no column is called 'widht' \(--equal\)"),
        ({"equal": "width"}, "two rows .* choose rows with --where, or name more columns with --equal"),
        ({"where": "model=1x16*"}, "2 pairs of rows that differ in decay .*: at least 3 are needed"),
    ],
)
def test_what_cannot_be_paired(options, said):
    with pytest.raises(CollapseError, match=said):
        pair(frame_of(), **options)
