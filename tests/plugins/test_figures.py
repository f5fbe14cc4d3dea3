"""The built-in figures obey every law, draw the numbers of the paper and its table, and describe what they draw."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from result_checks import check_made, store_of, with_gaps

import collapse
from collapse import CollapseError, Results, Row
from collapse.plugin.figures import numbers_of
from collapse.plugin.plugin_manager import plugins
from collapse_zoo.catalogue import PUBLISHED as FILE
from collapse_zoo.catalogue import published

FIGURES = {name: each for name, each in plugins().figures.items() if "collapse_figures" in each.called}
STORE = FILE.parents[2] / "tests" / "golden" / "store-v3"


def row(model, index=1, **about):
    numbers = {"val_loss": 3 - index / 10, "nc1.cdnv": 0.3 - index / 50, "nc4.agreement": index / 10 + 0.01}
    numbers |= about.pop("measurements", {})
    given = {"revision": None, "corpus": "text", "store": f"{index:064x}", "min_count": 1, "classes": 100, "dim": 8}
    return Row(model, samples=99, measurements=numbers, **(given | about))


NULLS = {"untrained": {"nc1.cdnv": 0.5, "nc4.agreement": None}, "shuffled": {"nc1.cdnv": 40.0}}
WITH_NULLS = [row(name, nulls=NULLS, measurements={"gnc2.hyperspherical_uniformity": -0.5}) for name in "ab"]


@pytest.fixture(scope="module")
def paper():
    return Results.from_frame(published().reset_index())


# of layers: tests/test_layered_results.py; of parts: tests/test_convergence.py
@pytest.mark.parametrize("name", sorted(FIGURES.keys() - {"depth", "convergence"}))
def test_built_in_figures_accept_gaps(name, paper):
    frame = paper.frame()
    few = Results.from_frame(frame[frame["model"].str.match(r"0[12]x(0064|0128)_\d\d[dL]@")])
    given: Results | list[collapse.Store] = Results(WITH_NULLS) if name == "nulls" else few
    less = list(with_gaps(few))
    if FIGURES[name].of == "stores":
        given = [store_of(20, "a"), store_of(12, "b")]
        less = [[store_of(1, "few")], [store_of(2, "few")], [store_of(6, "one")] * 2]
    check_made(lambda source: collapse.draw(name, source), given, less)


def below_titles(drawing):
    return {view["title"]["text"]: view["title"].get("subtitle") for view in drawing.spec["concat"]}


def test_figures_have_the_paper_s_fits(paper):
    drawing = collapse.draw("loss", paper)
    fits = {"NC1": 0.916, "GNC2, not centred": 0.727, "UNC3": 0.693, "NC4": 0.891}
    assert below_titles(drawing) == {name: f"R² = {fit}" for name, fit in fits.items()}
    assert "230 models" in drawing.caption
    assert "(of log CDNV)" in drawing.caption
    assert "size alone can give a large R²" in drawing.caption
    assert below_titles(collapse.draw("geometry", paper))["GNC2"] == "R² = 0.841"


def test_cdnv_of_zero_is_not_drawn_as_a_logarithm():
    rows = [row(f"m{i}", i) for i in range(4)]
    rows[0] = replace(rows[0], measurements={**rows[0].measurements, "nc1.cdnv": 0.0})
    assert "(of log CDNV)" not in collapse.draw("loss", rows).caption
    for name in ("loss", "geometry"):
        with pytest.raises(CollapseError, match=r"needs (at least two models|numbers in one of)"):
            collapse.draw(name, rows[:1])


def test_scaling_draws_one_recipe_without_repeats(paper):
    drawing = collapse.draw("scaling-width", paper)
    assert {row["width"] for row in numbers_of(drawing.spec)} == {64, 128, 256, 512, 768, 1024}
    assert "recipe 10L@9" in drawing.caption
    assert drawing.notes == ("excluded: 20 rows that repeat a recipe with another seed",)
    rows = numbers_of(collapse.draw("scaling-decay", paper).spec)
    assert sorted({row["decay"] for row in rows}) == [0.0005, 0.1]
    with pytest.raises(CollapseError, match="needs two checkpoints of one run"):
        collapse.draw("training", Results.from_frame(paper.frame().iloc[:1]))


def test_a_line_joins_rows_of_one_run_and_limit():
    def details(drawing):
        return [each["field"] for each in drawing.spec["concat"][0]["encoding"]["detail"]]

    def twice(*names):
        return Results(row(name, at, min_count=least) for at, name in enumerate(names) for least in (1, 10))

    drawing = collapse.draw("scaling-width", twice("2x16_01d", "2x32_01d"))
    assert details(drawing) == ["depth", "min_count"]
    assert "2 models" in drawing.caption  # each with two limits
    assert details(collapse.draw("training", twice("2x16_03d@0", "2x16_03d@1"))) == ["run", "min_count"]
    steps = [row("user/model", at, revision=f"step{at}", step=1000 * at) for at in (1, 2, 3)]
    drawing = collapse.draw("training", steps)
    assert [each["step"] for each in numbers_of(drawing.spec)] == [1000, 2000, 3000]
    assert "3 checkpoints of 1 run, a line per run, against training step." in drawing.caption
    rules = [[each["encoding"]["y"]["datum"] for each in view.get("layer", ())[1:]] for view in drawing.spec["concat"]]
    assert rules == [[], [], []]  # the axis of NC1 is logarithmic, and NC4 is far from 1
    validated = [row("m", at, step=at, measurements={"nc1.cdnv": at, "val_nc1.cdnv": at + 1}) for at in (1, 2)]
    titles = [view["title"]["text"] for view in collapse.draw("training", validated).spec["concat"]]
    assert titles[1:3] == ["NC1", "NC1, validation"]
    high = [row("m", at, step=at, measurements={"nc4.agreement": 0.5 + at / 10}) for at in (1, 2, 4)]
    assert collapse.draw("training", high).spec["concat"][-1]["layer"][1]["encoding"]["y"]["datum"] == 1


def test_the_null_is_that_of_the_permutation_test(paper):
    frame = paper.frame()
    seeds = Results.from_frame(frame[frame["model"].str.match("02x0768_01d.*@0")])
    drawn = {row["of"]: row for row in numbers_of(collapse.draw("permutation-null", seeds).spec) if "observed" in row}
    assert len(drawn) == 7
    records = collapse.analyze("permutation", seeds, columns="paper", n=9_999).records()
    for row in records:
        found = drawn[row["column"].replace(".", "_")]
        assert (found["observed"], found["p"]) == pytest.approx((row["r"], row["p"]), abs=1e-9)
    whole = collapse.draw("permutation-null", paper)
    assert "No p is shown: the models have 30 values of architecture" in whole.caption
    assert "CDNV itself, not of its logarithm" in whole.caption
    with pytest.raises(CollapseError, match=r"needs numbers in one of the columns nc1\.cdnv, "):
        collapse.draw("permutation-null", Results.from_frame(frame[["model", "val_loss"]]))


def test_a_model_its_nulls_and_the_limit_are_drawn():
    drawing = collapse.draw("nulls", [*WITH_NULLS, row("c")])
    found = {(each["name"], each["of"]): each["value"] for each in numbers_of(drawing.spec)}
    assert next(iter(found))[0].startswith("nc1.")  # the loss is the last
    assert (found["nc1.cdnv", "untrained"], found["nc1.cdnv", "shuffled"]) == (0.5, 40.0)
    assert "nc4.agreement" not in {name for name, _ in found}  # none of its nulls has a value
    assert drawing.notes == ("not drawn: 1 row without null baselines",)
    with pytest.raises(CollapseError, match="needs rows with null baselines: use collapse measure --null"):
        collapse.draw("nulls", "paper")


def test_figures_of_classes_are_the_counts_shares_and_quartiles_of_a_store():
    store = collapse.load(STORE)
    drawing = collapse.draw("class-frequencies", [store, store])
    rows, counts = numbers_of(drawing.spec), np.sort(store.statistics().counts.numpy())[::-1]
    assert all(row["count"] == counts[row["rank"] - 1] for row in rows)
    assert rows[-1]["rank"] == len(counts)
    assert drawing.notes == ("not drawn: 1 store with the same counts as another",)
    rows = numbers_of(collapse.draw("class-distributions", store).spec)
    assert sum(row["share"] for row in rows if "share" in row) == pytest.approx(3)  # of three values
    assert all(row["low"] <= row["median"] <= row["high"] for row in rows if "low" in row)
    assert len(rows) <= 2_000
    with pytest.raises(CollapseError, match="class-distributions needs stores: give one or more stores"):
        collapse.draw("class-distributions", Results([]))


def test_values_that_are_equal_to_rounding_have_bins():
    means = 3.7 * np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1 - 2**-51]])  # of norms that differ in their last digit
    cross = collapse.collect_arrays(np.repeat(means, 2, axis=0), np.repeat(np.arange(4), 2), means[::-1].copy())
    rows = numbers_of(collapse.draw("class-distributions", cross).spec)
    assert sum(row["share"] for row in rows if "share" in row) == pytest.approx(2)  # CDNV is 0: not on a log axis


def test_rows_that_are_hard_to_compare_are_noted(paper):
    frame = paper.frame().iloc[:4].assign(corpus=["a", "a", "b", "b"], model=["x", "x", "y", "z"])
    assert collapse.draw("loss", Results.from_frame(frame)).notes == (
        "1 row with the same model name as another row (x): they may not be independent",
    )
    text = pd.DataFrame({"model": ["a", "b"], "val_loss": [1.0, 2.0], "nc4.agreement": ["x", "0.5"]})
    with pytest.raises(CollapseError, match="needs at least two models"):
        collapse.draw("loss", Results.from_frame(text))


def test_labels_of_ticks_say_where_they_are(tmp_path):
    numbers = {"val_loss": 1.5647, "nc2.effective_dimension": 33.75, "nc3.self_duality": 0.859}
    one = row("a", measurements=numbers | {"unc3.uniform_duality": 0.123})
    other = row("b", 2, measurements=numbers | {"val_loss": 4.0})  # without UNC3
    collapse.save_figures([one], tmp_path, formats="svg", names="dimension")
    collapse.save_figures([one, other], tmp_path, formats="svg", names="duality")
    points, pairs = ((tmp_path / f"{name}.svg").read_text() for name in ("dimension", "duality"))
    assert all(f">{label}</text>" in points for label in ("1.5647", "33.75"))
    assert all(f">{label}</text>" in pairs for label in ("0.859", "0.123"))
    labels = re.findall(r"translate\(([^,]*),11\)[^>]*>([\d.]+)</text>", pairs)
    half = len(labels) // 2
    assert labels[:half] == labels[half:]  # the losses of both models, also where UNC3 has one value
    assert half >= 3
