"""The figure convergence: parts of collections, which no other figure gets and no table has a row of."""

import json

import pytest

import collapse
from collapse import CollapseError
from collapse.plugin.figures import numbers_of
from collapse.testing import check_figure
from collapse_figures.convergence import converging
from collapse_figures.tables import drawn_in

pytest.importorskip("altair", reason="needs the extra report")

MEASURED = drawn_in("parts")


@pytest.fixture(scope="module")
def parts(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    options = {"max_chunks": 96, **tiny.options()}
    return [collapse.collect(tiny.model, store=folder / str(k), part=(k, 3), **options).path for k in (1, 2, 3)]


def test_it_obeys_the_laws():
    check_figure(converging)


def test_the_curve_is_that_of_convergence(parts):
    drawing = collapse.draw("convergence", [collapse.Part.load(path) for path in reversed(parts)])
    rows = numbers_of(drawing.spec)
    table = collapse.convergence(parts, metrics=MEASURED)
    assert [row["samples"] for row in rows] == [row["samples"] for row in table.records()]
    assert [row["nc1_cdnv"] for row in rows] == pytest.approx([row["nc1.cdnv"] for row in table.records()])
    assert "growing merges of 3 parts of 1 collection" in drawing.caption


def test_each_debiased_measurement_stands_after_its_plug_in():
    debiased = [at for at, name in enumerate(MEASURED) if name.endswith("_debiased")]
    assert len(debiased) == 2
    assert all(MEASURED[at - 1] == MEASURED[at].removesuffix("_debiased") for at in debiased)


def test_collections_are_curves_and_a_lone_part_is_said(tiny, parts, tmp_path):
    others = []
    for chunks, count in ((64, 2), (80, 1)):
        options = {"max_chunks": chunks, **tiny.options()}
        others += [
            collapse.collect(tiny.model, store=tmp_path / f"{chunks}-{k}", part=(k, 2), **options)
            for k in range(1, count + 1)
        ]
    drawing = collapse.draw("convergence", [*map(collapse.Part.load, parts), *others])
    assert len({row["collection"] for row in numbers_of(drawing.spec)}) == 2
    assert drawing.notes == ("1 part without another one of the same collection not drawn",)
    with pytest.raises(CollapseError, match="needs two parts or more of one collection, and there is 1"):
        collapse.draw("convergence", others[-1])


def test_parts_serve_this_figure_only(parts, tmp_path):
    saved = {each.name: each for each in collapse.save_figures(parts, tmp_path / "f", formats="csv")}
    assert [name for name, each in saved.items() if each.files] == ["convergence"]
    assert saved["loss"].problem == "it is drawn from results, and none is given"
    assert saved["class-frequencies"].problem == "it is drawn from stores, and none is given"
    (alone,) = collapse.save_figures("paper", tmp_path / "g", formats="csv", names="convergence")
    assert alone.problem == "it is drawn from parts, and none is given"


def test_a_report_plots_them_beside_its_rows(parts, tmp_path):
    page = collapse.report(["paper", *parts], tmp_path / "r.html").read_text("utf-8")
    assert '<figure id="figure-convergence"' in page
    sources = page.partition('id="data-sources">')[2].partition("</script>")[0]
    kinds = [row[0] for row in json.loads(sources)["rows"]]
    assert kinds == ["results", "part", "part", "part"]
    with pytest.raises(CollapseError, match="parts of a collection make no row: merge them"):
        collapse.report(parts, tmp_path / "r.html")
