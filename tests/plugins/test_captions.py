"""Captions of figures say what is drawn: how many models, of which scale R² is, and which points a line joins."""

from dataclasses import replace

import pytest

from collapse import CollapseError, Results, Row, draw
from collapse.plugin.figures import numbers_of


def row(model, index, **about):
    numbers = {"val_loss": 3 - index / 10, "nc1.cdnv": 0.3 - index / 50, "nc4.agreement": index / 10 + 0.01}
    given = {
        "revision": None,
        "corpus": "text",
        "store": f"{index:064x}",
        "min_count": 1,
        "classes": 9,
        "dim": 4,
        "samples": 99,
        "measurements": numbers,
    }
    return Row(model, **given | about)


def measured_twice(names):
    return Results(row(name, index, min_count=least) for index, name in enumerate(names) for least in (1, 10))


def details(drawing):
    """The fields that divide the lines of the first panel."""
    return [each["field"] for each in drawing.spec["concat"][0]["encoding"]["detail"]]


def test_r2_is_of_log_cdnv_only_on_a_log_axis():
    rows = [row(f"m{index}", index) for index in range(4)]
    assert "(of log CDNV)" in draw("loss", rows).caption
    rows[0] = replace(rows[0], measurements={**rows[0].measurements, "nc1.cdnv": 0.0})
    assert "(of log CDNV)" not in draw("loss", rows).caption


def test_several_limits_of_a_store_are_one_model():
    results = measured_twice(["2x16_01d", "2x32_01d", "2x64_01d"])
    for name in ("loss", "scaling-width"):
        assert "3 models" in draw(name, results).caption
    nulls = Results(replace(each, nulls={"shuffled": each.measurements}) for each in results)
    assert "of 3 models" in draw("nulls", nulls).caption


def test_a_line_joins_rows_of_one_limit():
    drawing = draw("scaling-width", measured_twice(["2x16_01d", "2x32_01d"]))
    assert details(drawing) == ["depth", "min_count"]
    assert {each["min_count"] for each in numbers_of(drawing.spec)} == {1, 10}
    drawing = draw("training", measured_twice(["2x16_03d@0", "2x16_03d@1", "2x16_03d@2"]))
    assert details(drawing) == ["run", "min_count"]
    assert "of 3 checkpoints of 1 run, a line per run and limit of --min-count," in drawing.caption


def test_revisions_of_one_repository_have_steps_of_their_own():
    rows = [row("user/model", index, revision=f"step{index}", step=1000 * index) for index in (1, 2, 3)]
    drawing = draw("training", rows)
    assert [each["step"] for each in numbers_of(drawing.spec)] == [1000, 2000, 3000]
    assert "3 checkpoints of 1 run, a line per run, against training step." in drawing.caption


def test_a_table_of_losses_lacks_measurements():
    rows = [replace(row(f"m{index}", index), measurements={"val_loss": 2.0 + index}) for index in range(4)]
    with pytest.raises(CollapseError, match=r"needs one of nc1\.cdnv, .* of which the table has no value"):
        draw("permutation-null", rows)
