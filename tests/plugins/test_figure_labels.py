"""Labels of figures: rows are never without a name, titles of a row are in line, and a legend is as its marks."""

import re

import pytest

import collapse
from collapse import CollapseError, Results, Row
from collapse.figures.rendering import converted, svg_of
from collapse.plugin.figures import numbers_of

pytest.importorskip("altair", reason="needs the extra report")
pytest.importorskip("vl_convert", reason="needs the extra report")


def row(model, loss, uniformity, **more):
    numbers = {"val_loss": loss, "nc1.cdnv": 0.1 * loss, "nc2.etf_error": 1.01, "nc4.agreement": 1 / (1 + loss)}
    numbers |= {"gnc2.hyperspherical_uniformity": -0.3, "gnc2.uncentred_uniformity": uniformity, **more}
    return Row(model, None, "text", model, 1, 100, 8, 999, numbers)


def test_no_r_squared_is_given_of_a_cov_whose_mean_crosses_0():
    drawing = collapse.draw("loss", Results([row("a", 1.0, 9.0), row("b", 2.0, -0.2), row("c", 2.5, -0.3)]))
    assert "No R² is given of gnc2.uncentred_uniformity, a CoV whose mean crosses 0." in drawing.caption
    panel = next(each for each in drawing.spec["concat"] if each["title"]["text"] == "GNC2, not centred")
    assert not panel["title"].get("subtitle")


def test_two_sizes_are_said_beside_r_squared():
    rows = [row(f"m{index}", 1.0 + index, -0.2 - index, n_params=index % 2 * 1e6) for index in range(4)]
    assert (
        "The models have 2 values of n_params: size alone can give a large R²."
        in collapse.draw("loss", Results(rows)).caption
    )


def test_marks_are_opaque_so_that_a_pdf_is_small_and_its_legend_has_their_colours():
    rows = [row(f"m{index}", 1.0 + index / 9, -0.2 - index / 99, n_params=index % 5 * 1e6) for index in range(200)]
    drawing = collapse.draw("reachable", Results(rows))
    assert len(converted(svg_of(drawing.spec), "pdf")) < 100_000


@pytest.mark.parametrize("figure", ["loss", "geometry", "scaling-decay", "scaling-epochs", "training"])
def test_titles_of_panels_in_a_row_are_at_one_height(figure):
    svg = svg_of(collapse.draw(figure, "paper").spec, width=6.75)
    heights = titles(svg)
    assert len(heights) >= 4
    for first in range(0, len(heights), 4):
        assert max(heights[first : first + 4]) - min(heights[first : first + 4]) < 0.6


def titles(svg):
    """The heights of the titles of panels in a picture."""
    import xml.etree.ElementTree as ElementTree

    found = []

    def walk(node, y):
        moved = re.match(r"translate\(([-\d.]+),\s*([-\d.]+)\)", node.get("transform", ""))
        y += float(moved[2]) if moved else 0.0
        if "role-title-text" in node.get("class", ""):
            texts = [each for each in node.iter() if each.tag.endswith("}text")]
            shift = re.match(r"translate\(([-\d.]+),\s*([-\d.]+)\)", texts[0].get("transform", ""))
            found.append(y + float(shift[2]))
            return
        for each in node:
            walk(each, y)

    walk(ElementTree.fromstring(svg), 0.0)
    return found


def test_the_permutation_figure_has_the_columns_of_table_1_and_says_that_cdnv_is_itself():
    drawing = collapse.draw("permutation-null", "paper")
    assert "No p is shown: the models have 30 values of architecture" in drawing.caption
    drawn = {each["of"]: each["observed"] for each in numbers_of(drawing.spec) if each.get("observed") is not None}
    assert len(drawn) == 7
    assert drawn["nc1_cdnv"] == pytest.approx(0.56, abs=0.01)
    assert "not of its logarithm" in drawing.caption
    assert "NC1 (mean CDNV)" in str(drawing.spec)


def test_a_figure_of_stores_says_so_of_a_results_table():
    with pytest.raises(CollapseError, match="class-distributions is drawn from stores, and paper is a results table"):
        collapse.draw("class-distributions", "paper")
