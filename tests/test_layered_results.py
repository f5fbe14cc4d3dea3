"""Tables with rows of several layers: analyses and figures of models use one, and the layers have their own figure."""

from dataclasses import replace

import pytest
from result_checks import check_made, random_rows, with_gaps

import collapse
from collapse import CollapseError, Results
from collapse.cli.rendering import print_table
from collapse.measurement.row_tables import table_by_step
from collapse.measurement.seeds import spread_of_seeds
from collapse.plugin.figures import numbers_of
from collapse.plugin.plugin_manager import plugins

DEPTH = 4
NAMES = list(plugins().measurements())


def layers_of(rows, *layers, **more):
    """Rows of these layers beside the rows of ``top``, in order of depth, with other numbers."""
    made = []
    for row in rows:
        for layer in layers:
            numbers = {name: value * (1 + layer) for name, value in row.measurements.items()}
            made.append(replace(row, layer=str(layer), depth=layer, measurements=numbers, **more))
        made.append(replace(row, depth=DEPTH, **more))
    return made


@pytest.fixture(scope="module")
def models():
    """Rows of twelve models, and the same with two layers below ``top``."""
    names = [f"{depth:02}x{width:04}_01d" for depth in (1, 2, 8) for width in (64, 128, 256, 512)]
    top = [replace(row, model=name) for row, name in zip(random_rows(12, NAMES), names, strict=True)]
    return Results(top), Results(layers_of(top, 0, 2))


def test_a_frame_names_layers_only_where_there_are_several(models, tmp_path):
    top, layered = models
    assert not {"layer", "depth"} & set(top.frame())
    frame = layered.frame()
    assert frame["layer"].tolist()[:3] == ["0", "2", "top"]
    assert frame["depth"].tolist()[:3] == [0, 2, DEPTH]
    layered.write(tmp_path / "layered.csv")
    top.write(tmp_path / "top.csv")
    joined = collapse.join([tmp_path / "layered.csv", tmp_path / "top.csv"]).frame()
    assert joined["layer"].tolist() == [*frame["layer"], *["top"] * 12]
    assert "layer 2" in str(layered.rows[1])


@pytest.mark.parametrize("name", sorted(name for name, each in plugins().figures.items() if each.of == "results"))
def test_other_figures_are_of_the_layer_top(name, models, tmp_path):
    top, layered = models
    layered.write(tmp_path / "layered.csv")
    for table in (layered, tmp_path / "layered.csv") if name != "depth" else ():
        try:
            expected = collapse.draw(name, top)
        except CollapseError as error:
            with pytest.raises(type(error)):
                collapse.draw(name, table)
            continue
        drawing = collapse.draw(name, table)
        assert numbers_of(drawing.spec) == numbers_of(expected.spec)
        assert drawing.notes == ("24 rows of layers other than top excluded", *expected.notes)


@pytest.mark.parametrize("name", ["correlation", "permutation", "scaling"])
def test_analyses_compare_models_at_one_layer(name, models):
    top, layered = models
    options = {} if name == "scaling" else {"columns": "nc1"}
    made, expected = collapse.analyze(name, layered, **options), collapse.analyze(name, top, **options)
    assert made.rows == expected.rows
    assert made.notes == ["24 rows of layers other than top excluded", *expected.notes]
    of_two = Results(replace(row, layer="top") for row in layered.rows if row.layer == "2")
    chosen = collapse.analyze(name, layered, where="layer=2", **options)
    assert chosen.rows == collapse.analyze(name, of_two, **options).rows
    every = collapse.analyze(name, layered, where=["layer=*"], **options)
    assert any("different layers are mixed" in note for note in every.notes)


def test_layers_can_be_compared_in_pairs(models):
    _, layered = models
    made = collapse.analyze("paired", layered, by="layer", values="0,2", equal=["model"], columns="nc4.agreement")
    change = next(each for each in made.records() if each["column"] == "nc4.agreement")
    rows = [row["nc4.agreement"] for row in layered.rows if row.layer == "0"]
    assert change["mean"] == pytest.approx(2 * sum(rows) / len(rows))
    assert (change["pairs"], change["rises"]) == (12, 12)


def test_a_figure_shows_headlines_against_depth(models):
    top, layered = models
    given = Results(layered.rows[:9])
    check_made(lambda results: collapse.draw("depth", results), given, with_gaps(given))
    headlines = set(plugins().headlines())
    drawing = collapse.draw("depth", layered)
    assert len(drawing.spec["concat"]) == len(headlines)
    assert not drawing.notes  # rows that share a model are not remarked
    rows = numbers_of(drawing.spec)
    assert len(rows) == 36
    assert {row["layer_depth"] for row in rows} == {0, 2, DEPTH}
    assert {row["nc1_cdnv"] for row in rows} == {row["nc1.cdnv"] for row in layered.rows}
    of_rules = [each["layer"] for each in drawing.spec["concat"] if "layer" in each]
    assert all(line["encoding"]["y"]["axis"] == rule["encoding"]["y"]["axis"] for line, rule in of_rules)
    with pytest.raises(CollapseError, match="needs values of layer, depth"):
        collapse.draw("depth", top)
    with pytest.raises(CollapseError, match="needs two layers of one model"):
        collapse.draw("depth", [row for row in layered.rows if row.layer == "2"])


def test_steps_have_lines_of_their_own(models):
    (row, *_), _ = (each.rows for each in models)
    steps = [
        each
        for step in range(0, 2000, 100)
        for each in layers_of([replace(row, model=f"run@step{step}")], 1, step=step)
    ]
    colour = collapse.draw("depth", steps).spec["concat"][0]["encoding"]["color"]
    assert (colour["field"], colour["legend"]["values"]) == ("step", list(range(0, 2000, 300)))


def test_layers_are_rows_of_a_table_that_fits_a_terminal(models, monkeypatch, capsys):
    row = models[0].rows[0]
    table = table_by_step(layers_of([row], 0, 2), plugins().headlines())
    assert table.columns[0] == "layer"
    assert [line[0] for line in table.rows][:3] == ["0", "2", "top"]
    assert table.title.startswith(row.model)
    monkeypatch.setenv("COLUMNS", "80")
    print_table(table)
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
    steps = [each for step in (1, 2) for each in layers_of([replace(row, model=f"run@step{step}")], 0, step=step)]
    assert [line[:2] for line in table_by_step(steps).rows][:3] == [[1, "0"], [1, "top"], [2, "0"]]
    two = [*layers_of([row], 0), *layers_of([replace(row, model="b", store="b" * 64)], 0)]
    assert [line[:2] for line in table_by_step(two).rows][:3] == [[row.model, "0"], [row.model, "top"], ["b", "0"]]


def test_results_can_be_chosen_by_layer(models, out, tmp_path):
    _, layered = models
    layered.write(tmp_path / "layered.json")
    shown = out("results", tmp_path / "layered.json", "--where", "layer=2")
    assert shown.startswith("12 rows")
    for each in (shown, out("results", tmp_path / "layered.json")):
        heading = next(line for line in each.splitlines() if line.startswith("model"))
        assert heading.split()[1] == "layer"


def test_a_report_has_a_section_of_layers(models, tmp_path):
    top, layered = models
    page = collapse.report(layered, tmp_path / "layered.html", figures=["depth", "loss"]).read_text()
    places = ['id="figure-loss"', '<section id="layers">', 'id="figure-depth"', '<section id="methods">']
    assert [page.index(each) for each in places] == sorted(page.index(each) for each in places)
    assert "12 models, on text" in page
    assert '<section id="layers">' not in collapse.report(top, tmp_path / "top.html", figures=["loss"]).read_text()
    collapse.join([layered], where="layer=2").write(tmp_path / "one.csv")
    one = collapse.report(tmp_path / "one.csv", tmp_path / "one.html", figures=["loss"]).read_text()
    assert "12 models of layer 2, on text" in one


def test_seeds_are_counted_at_one_layer(models):
    row = models[0].rows[0]
    seeds = [replace(row, model=f"02x0016_01d0{seed}", store=f"{seed:064x}") for seed in range(3)]
    one = {"model": "02x0016_01d", "dim": row.dim, "n_params": row.measurements["n_params"]}
    deviations, _ = spread_of_seeds(Results(layers_of(seeds, 0, 2)), [one])
    assert deviations == spread_of_seeds(Results(seeds), [one])[0]
