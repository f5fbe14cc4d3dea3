"""The figure convergence: the only figure of parts, which have no row in a table."""

import json

import pytest

import collapse
from collapse import CollapseError
from collapse.plugin.figures import numbers_of
from collapse_figures.tables import drawn_in

pytest.importorskip("altair", reason="needs the extra report")


@pytest.fixture(scope="module")
def parts(tiny, tmp_path_factory):
    folder, options = tmp_path_factory.mktemp("parts"), {"max_chunks": 96, **tiny.options()}
    return [collapse.collect(tiny.model, store=folder / str(k), part=(k, 3), **options).path for k in (1, 2, 3)]


def test_the_curve_is_that_of_convergence(parts, tiny, tmp_path):
    drawing = collapse.draw("convergence", [collapse.Part.load(path) for path in reversed(parts)])
    rows = numbers_of(drawing.spec)
    table = collapse.convergence(parts, metrics=drawn_in("parts")).records()
    assert [row["samples"] for row in rows] == [row["samples"] for row in table]
    assert [row["nc1_cdnv"] for row in rows] == pytest.approx([row["nc1.cdnv"] for row in table])
    assert "growing merges of 3 parts of 1 collection" in drawing.caption
    other = collapse.collect(tiny.model, store=tmp_path / "other", part=(1, 2), **tiny.options())
    drawing = collapse.draw("convergence", [*map(collapse.Part.load, parts), other])
    assert drawing.notes == ("1 part without another one of the same collection not drawn",)
    with pytest.raises(CollapseError, match="needs at least two parts of one collection, got 1 part"):
        collapse.draw("convergence", other)


def test_parts_serve_this_figure_only(parts, tmp_path):
    saved = {each.name: each for each in collapse.save_figures(parts, tmp_path / "f", formats="csv")}
    assert [name for name, each in saved.items() if each.files] == ["convergence"]
    assert saved["loss"].problem == "it needs results, and none are given"
    (alone,) = collapse.save_figures("paper", tmp_path / "g", formats="csv", names="convergence")
    assert alone.problem == "it needs parts, and none are given"


def test_a_report_plots_them_beside_its_rows(parts, tmp_path):
    page = collapse.report(["paper", *parts], tmp_path / "r.html").read_text("utf-8")
    assert '<figure id="figure-convergence"' in page
    sources = page.partition('id="data-sources">')[2].partition("</script>")[0]
    assert [row[0] for row in json.loads(sources)["rows"]] == ["results", "part", "part", "part"]
    with pytest.raises(CollapseError, match="merge parts of a collection first"):
        collapse.report(parts, tmp_path / "r.html")
