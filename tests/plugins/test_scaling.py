"""Power laws: known exponents are found, other sizes are held fixed, and notes name what cannot be fitted."""

import numpy as np
import pandas as pd
import pytest

from collapse import CollapseError, Results, analyze

EXPONENTS = {"width": -0.5, "depth": -0.25, "epochs": -0.125}


def frame_of(noise=0.0):
    """Models of every size; loss ∝ width^−½ · depth^−¼ · epochs^−⅛, times a factor for each decay."""
    draw, rows = np.random.default_rng(0), []
    for depth in (1, 2, 4):
        for width in (16, 32, 64):
            for epochs, decay, level in ((1, "d", 1.0), (1, "L", 1.5), (10, "d", 1.0), (10, "L", 1.5)):
                loss = level * width**-0.5 * depth**-0.25 * epochs**-0.125 * np.exp(noise * draw.normal())
                rows.append({"model": f"{depth}x{width}_{epochs:02d}{decay}", "val_loss": loss, "nc1.cdnv": loss**2})
    return pd.DataFrame(rows)


def fit(frame, **options):
    return analyze("scaling", Results.from_frame(frame), **options)


def test_exponents_are_found():
    found = {(row["column"], row["size"]): row["exponent"] for row in fit(frame_of()).records()}
    for size, exponent in EXPONENTS.items():
        assert found.pop(("val_loss", size)) == pytest.approx(exponent)
        assert found.pop(("nc1.cdnv", size)) == pytest.approx(2 * exponent)
    assert not found


def test_intervals_hold_the_truth_and_shrink_with_the_noise():
    wide, narrow = (fit(frame_of(noise)).records() for noise in (0.05, 0.005))
    for loud, quiet in zip(wide[:3], narrow[:3], strict=True):
        assert loud["low"] - 0.01 < EXPONENTS[loud["size"]] < loud["high"] + 0.01
        assert quiet["high"] - quiet["low"] < 0.3 * (loud["high"] - loud["low"])
    assert any("jackknife of architectures" in note for note in fit(frame_of(0.05)).notes)
    two = frame_of(0.05).loc[lambda frame: frame["model"].str.match("1x(16|32)")]
    assert {row["low"] for row in fit(two).records() if row["size"] == "width"} == {None}


def test_epochs_take_the_last_checkpoint_of_each_run():
    frame = frame_of()
    half = frame[frame["model"].str.contains("_10")].assign(model=lambda f: f["model"] + "@4", val_loss=9.0)
    found = fit(pd.concat([frame, half]), columns="val_loss").records()
    (epochs,) = [row for row in found if row["size"] == "epochs"]
    assert (epochs["rows"], epochs["exponent"]) == (36, pytest.approx(-0.125))
    first = frame.assign(model=frame["model"].str.replace("_01", "_03") + "@0")  # no run's last checkpoint
    assert {row["size"] for row in fit(first, columns="val_loss").records()} == {"width", "depth"}


def test_a_table_without_names_has_its_own_sizes():
    table = fit(pd.DataFrame({"dim": [8, 16, 32, 64], "nc1.cdnv": [8.0, 4.0, 2.0, 1.0]}))
    assert [(row["size"], row["exponent"]) for row in table.records()] == [("dim", pytest.approx(-1))]
    assert "dim: nothing held fixed; intervals: jackknife of rows, Student's t" in table.notes


def test_what_cannot_be_fitted_is_said():
    frame = frame_of().assign(x=[-1.0, 1.0] * 18)
    assert "not fitted: x (zero, or of both signs)" in fit(frame, columns="nc1.cdnv,x").notes
    with pytest.raises(CollapseError, match="no power law can be fitted"):
        fit(frame, columns="x")
    with pytest.raises(CollapseError, match="no power law can be fitted: none of the columns width, "):
        fit(frame[["val_loss", "nc1.cdnv"]])


def test_a_curved_law_is_told_and_a_straight_one_is_not():
    frame = frame_of(0.02)
    width = frame["model"].str.extract(r"x(\d+)")[0].astype(float)
    table = fit(frame.assign(bent=np.exp(-np.log(width) + 0.3 * np.log(width / 32) ** 2)), columns="val_loss,bent")
    straight, bent = (
        next(row for row in table.records() if row["column"] == name and row["size"] == "width")
        for name in ("val_loss", "bent")
    )
    assert straight["curvature_low"] < 0 < straight["curvature_high"]
    assert bent["curvature"] == pytest.approx(0.3)
    half = 0.3 * np.log(2)  # of ±log 2 around the middle width
    assert (bent["exponent_small"], bent["exponent_large"]) == (pytest.approx(-1 - half), pytest.approx(-1 + half))
    (note,) = [note for note in table.notes if "no single exponent" in note]
    assert "bent in width" in note
    assert "val_loss in width" not in note
