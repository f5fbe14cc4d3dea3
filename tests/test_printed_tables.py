"""Tables in terminals of any width: no name or number is cut, and no line is longer than the terminal."""

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from safetensors.torch import save_file

import collapse
from collapse.cli.rendering import print_table
from collapse.measurement.row_tables import notes_of, whole_table_of
from collapse.measurement.table import Table
from collapse.plugin.plugin_manager import plugins
from collapse.testing import random_features

WIDTHS = (80, 100, 120)
MODELS = [f"a_long_name_of_a_model_of_width_768_with_seed_{seed}" for seed in range(4)]
UNIFORM = "gnc2.hyperspherical_uniformity"
PUBLISHED = "TinyStories-12x1024_10L"
NAMES = st.text("abxyz019", min_size=1, max_size=6).flatmap(
    lambda part: st.lists(st.just(part), min_size=1, max_size=12).map("_".join)
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Four models with long and similar names, their stores, and a table of them."""
    folder = tmp_path_factory.mktemp("tables")
    rows = []
    for seed, name in enumerate(MODELS):
        save_file(random_features(10, 8, 120, seed=seed), folder / f"{name}.safetensors")
        store = collapse.collect(folder / f"{name}.safetensors", store=folder / "stores" / name)
        rows.append(collapse.measure(store))
    collapse.Results(rows).write(folder / "results.csv")
    return folder


@pytest.fixture
def printed(monkeypatch, capsys):
    """What is printed of a table in a terminal of some width."""

    def printed(table, width):
        monkeypatch.setenv("COLUMNS", str(width))
        print_table(table)
        return capsys.readouterr().out

    return printed


def commands(folder):
    """Each command, and the names that it prints."""
    models = [folder / f"{name}.safetensors" for name in MODELS]
    headlines, known = plugins().headlines(), list(plugins().measurements())
    yield ["measure", *models], [*MODELS, *headlines]
    yield ["measure", models[0], "--all"], plugins().select(None)
    yield ["compare", *(folder / "stores" / name for name in MODELS[:2])], [*MODELS[:2], *headlines]
    yield ["metrics"], known
    yield ["figures", "--list"], [word for each in plugins().figures.values() for word in each.title.split()]
    yield ["figures", folder / "results.csv", "--out", folder / "figures", "--format", "csv"], ["training: not drawn"]
    yield ["analyze", "permutation", folder / "results.csv"], ["nc1.cdnv", "nc4.agreement"]
    yield ["plugins"], ["covariance", "permutation"]
    yield ["info", folder / "stores" / MODELS[0]], ["made, train, versions"]
    yield ["zoo", "list", "--published", "--width", "768"], ["TinyStories-02x0768_01d@0"]
    yield ["zoo", "info", PUBLISHED], [PUBLISHED]


def test_names_are_whole_and_lines_fit(folder, out, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    for words, names in commands(folder):
        shown = out(*words)
        assert "…" not in shown
        lines = [line for line in shown.splitlines() if not line.startswith(("  ", str(folder), *MODELS))]
        assert max(cell_len(line.rstrip()) for line in lines) <= 80, words
        joined = "".join(shown.split())
        assert [each for each in names if not all(piece in joined for piece in each.replace(" ", "").split("_"))] == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    names=st.lists(NAMES, min_size=1, max_size=5),
    headings=st.lists(NAMES, min_size=1, max_size=8),
    numbers=st.floats(-1e12, 1e12),
    width=st.sampled_from(WIDTHS),
)
def test_any_table_keeps_its_names_and_numbers(names, headings, numbers, width, printed):
    rows = [[name, *(numbers * (i + 1) for i in range(len(headings)))] for name in names]
    shown = printed(Table("", ["model", *headings], rows), width)
    assert set(names) <= set(re.split(r"\s+", shown))
    assert "…" not in shown
    if max(map(len, names)) < width - 30:
        assert max(map(len, shown.splitlines())) <= width
    joined = shown.replace("\n", "")
    assert all(piece in joined for heading in headings for piece in heading.split("_"))


def test_models_of_other_shapes_have_ranges_of_limits():
    rows, names = [], ["nc1.cdnv", "nc2.interference", "nc2.interference_std", UNIFORM]
    for classes, dim in ((6, 8), (11, 8)):
        arrays = random_features(classes, dim, 20 * classes)
        named = {name.removeprefix("train_"): arrays[name] for name in ("train_features", "train_labels", "classifier")}
        rows.append(collapse.measure(**named, metrics=names))
    limits = {cells[1]: cells[-2:] for cells in whole_table_of(rows).rows}
    assert limits["nc1.cdnv"] == [0, ""]
    assert limits["nc2.interference"] == ["-0.2000 to -0.1000", ""]
    assert limits["nc2.interference_std"][1].startswith("0 to ")  # 6 classes in 8 dimensions can be a simplex
    said = f"reachable, {UNIFORM}: the value of uniform random points, not a bound"
    ranges = "at full collapse, reachable: a range means that the values of the columns differ"
    notes = [whole_table_of(some).notes for some in (rows[:1], rows[1:], rows)]
    assert [(said in each, ranges in each) for each in notes] == [(False, False), (True, False), (True, True)]
    assert ranges not in notes_of(rows)  # of tables without these columns, such as collapse compare's
