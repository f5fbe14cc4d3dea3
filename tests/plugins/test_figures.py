"""The built-in figures keep every law, and draw the numbers that the paper and its table have."""

import math

import numpy as np
import pandas as pd
import pytest

import collapse
from collapse import CollapseError, Results, Row
from collapse.plugin.figures import numbers_of
from collapse.plugin.plugin_manager import plugins
from collapse.testing import check_figure
from collapse_zoo.catalogue import PUBLISHED as FILE
from collapse_zoo.catalogue import published

pytest.importorskip("altair", reason="needs the extra report")

FIGURES = {
    name: each
    for name, each in plugins().figures.items()
    if "collapse_figures" in each.called and name != "nulls"  # needs rows with nulls: test_null_figure.py
}
STORE = FILE.parents[2] / "tests" / "golden" / "store-v2"


@pytest.fixture(scope="module")
def paper() -> Results:
    frame = published().reset_index()
    if "classes" not in frame:
        frame["classes"], frame["dim"] = 29_233, frame["model"].str.extract(r"x(\d+)_", expand=False).astype(int)
    return Results.from_frame(frame)


@pytest.fixture(scope="module")
def few(paper) -> Results:
    """Rows of two architectures, with every recipe."""
    frame = paper.frame()
    return Results.from_frame(frame[frame["model"].str.match(r"0[12]x(0064|0128)_\d\d[dL]@")])


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_built_in_figures_keep_every_law(name, few):
    check_figure(FIGURES[name].function, results=few)


@pytest.mark.parametrize("name", sorted(each for each, figure in FIGURES.items() if figure.of == "results"))
def test_every_figure_of_results_can_be_drawn_of_the_published_table(name, paper):
    drawing = collapse.draw(name, paper)
    assert len(numbers_of(drawing.spec)) <= 2_000


def below_titles(drawing):
    return {view["title"]["text"]: view["title"]["subtitle"] for view in drawing.spec["concat"]}


def test_figure_1_has_the_paper_s_fits(paper):
    drawing = collapse.draw("loss", paper)
    assert below_titles(drawing) == {
        "NC1": "R² = 0.916",
        "GNC2, not centred": "R² = 0.727",
        "UNC3": "R² = 0.693",
        "NC4": "R² = 0.891",
    }
    assert "230 models" in drawing.caption
    assert len(numbers_of(drawing.spec)) == 230


def test_equation_7_as_printed_fits_the_loss_better(paper):
    fits = below_titles(collapse.draw("geometry", paper))
    assert fits["GNC2"] == "R² = 0.841"
    assert fits["NC2: norms"] == "R² = 0.865"


def test_raw_columns_of_the_published_table_are_measurements(shared):
    raw = shared / "data" / "published" / "lc-2024_05_18.csv"
    assert below_titles(collapse.draw("loss", raw))["GNC2, not centred"] == "R² = 0.727"


def test_scaling_draws_one_recipe_without_repeats(paper):
    drawing = collapse.draw("scaling-width", paper)
    rows = numbers_of(drawing.spec)
    assert len(rows) == 30
    assert {row["width"] for row in rows} == {64, 128, 256, 512, 768, 1024}
    assert "recipe 10L@9" in drawing.caption
    assert drawing.notes == ("left out: 20 rows that repeat a recipe with another seed",)


def test_scaling_by_decay_compares_equal_training(paper):
    rows = numbers_of(collapse.draw("scaling-decay", paper).spec)
    assert sorted({row["decay"] for row in rows}) == [0.0005, 0.1]
    assert len(rows) == 60


def test_training_needs_two_checkpoints_of_a_run(paper):
    rows = numbers_of(collapse.draw("training", paper).spec)
    assert {row["run"].rpartition("_")[2] for row in rows} == {"10d", "10L"}
    one = Results.from_frame(paper.frame().iloc[:1])
    with pytest.raises(CollapseError, match="needs two checkpoints of one run"):
        collapse.draw("training", one)


def test_training_follows_steps_where_rows_have_them():
    def row(step: int, loss: float) -> Row:
        about = ("text", "s", 1, 9, 4, 99, {"val_loss": loss})
        return Row(f"mine@{step}", None, *about, step=step)

    rows = numbers_of(collapse.draw("training", Results([row(100, 3.0), row(200, 2.5)])).spec)
    assert [(each["step"], each["val_loss"]) for each in rows] == [(100, 3), (200, 2.5)]


def test_the_null_is_that_of_the_permutation_test(paper):
    frame = paper.frame()
    seeds = Results.from_frame(frame[frame["model"].str.match("02x0768_01d.*@0")])
    drawing = collapse.draw("permutation-null", seeds)
    known = {row["of"]: row for row in numbers_of(drawing.spec) if "observed" in row}
    table = collapse.permutation(seeds, columns=["nc3.self_duality", "nc1.cdnv"], n=9_999)
    for row in table.records():
        drawn = known[row["column"].replace(".", "_")]
        assert drawn["observed"] == pytest.approx(row["r"], abs=1e-9)
        spread = math.sqrt(2 * row["p"] * (1 - row["p"]) / 9_999)  # of two independent draws
        assert drawn["p"] == pytest.approx(row["p"], abs=5 * spread)


def test_reachable_divides_by_the_limit(paper):
    rows = numbers_of(collapse.draw("reachable", paper).spec)
    drawn = next(row for row in rows if row["model"] == "12x1024_10L@9" and row["name"] == "nc4.agreement")
    assert drawn["ratio"] == pytest.approx(published().loc["12x1024_10L@9", "nc4.agreement"])
    uniform = next(row for row in rows if row["name"] == "gnc2.hyperspherical_uniformity")
    assert uniform["limit"] < 0 < uniform["ratio"]


def test_class_frequencies_are_the_counts_of_the_store():
    store = collapse.load(STORE)
    rows = numbers_of(collapse.draw("class-frequencies", store).spec)
    counts = np.sort(store.statistics().counts.numpy())[::-1]
    assert all(row["count"] == counts[row["rank"] - 1] for row in rows)
    assert rows[0]["rank"] == 1
    assert rows[-1]["rank"] == len(counts)


def test_stores_of_one_text_give_one_curve():
    store = collapse.load(STORE)
    drawing = collapse.draw("class-frequencies", [store, store])
    assert len({row["store"] for row in numbers_of(drawing.spec)}) == 1
    assert drawing.notes == ("1 store with the same counts as another one drawn once",)


def test_class_distributions_are_shares_and_quartiles_of_the_classes():
    store = collapse.load(STORE)
    rows = numbers_of(collapse.draw("class-distributions", store).spec)
    shares = [row["share"] for row in rows if "share" in row]
    assert sum(shares) == pytest.approx(3)  # of three values
    assert all(row["low"] <= row["median"] <= row["high"] for row in rows if "low" in row)
    assert len(rows) <= 2_000


@pytest.mark.parametrize("name", ["loss", "geometry", "duality"])
def test_one_model_makes_no_relation(name, paper):
    with pytest.raises(CollapseError, match="needs two models or more"):
        collapse.draw(name, Results.from_frame(paper.frame().iloc[:1]))


def test_mixed_corpora_and_equal_names_are_said(paper):
    frame = paper.frame().iloc[:4].assign(corpus=["a", "a", "b", "b"], model=["x", "x", "y", "z"])
    drawing = collapse.draw("loss", Results.from_frame(frame))
    assert drawing.notes == (
        "rows of 2 corpora are mixed: a, b",
        "1 row with the model name of another row: they may not be independent",
    )
    assert all("shape" in view["encoding"] for view in drawing.spec["concat"])


def test_a_text_in_a_column_of_numbers_is_no_traceback():
    frame = pd.DataFrame({"model": ["a", "b"], "val_loss": [1.0, 2.0], "nc4.agreement": ["x", "0.5"]})
    with pytest.raises(CollapseError, match="needs two models or more"):
        collapse.draw("loss", Results.from_frame(frame))


@pytest.mark.parametrize("columns", [["epochs", "checkpoint"], ["width", "depth"], ["width", "depth", "recipe"]])
def test_columns_serve_where_names_say_nothing(columns):
    values = {"epochs": [1, 2, 2], "checkpoint": [0, 1, 1], "width": [8, 16, 16], "depth": [1, 2, 1], "recipe": "r"}
    frame = pd.DataFrame({"model": ["a", "b", "c"], "val_loss": [3.0, 2.0, 2.5], **{n: values[n] for n in columns}})
    name = "scaling-epochs" if "epochs" in columns else "scaling-width"
    rows = numbers_of(collapse.draw(name, Results.from_frame(frame)).spec)
    assert [row["val_loss"] for row in rows] == [3, 2, 2.5]


def test_values_that_are_equal_to_rounding_have_bins():
    means = 3.7 * np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1 - 2**-51]])  # of norms that differ in their last digit
    cross = collapse.collect_arrays(np.repeat(means, 2, axis=0), np.repeat(np.arange(4), 2), means[::-1].copy())
    rows = numbers_of(collapse.draw("class-distributions", cross).spec)
    assert sum(row["share"] for row in rows if "share" in row) == pytest.approx(2)  # CDNV is 0: not on a log axis
