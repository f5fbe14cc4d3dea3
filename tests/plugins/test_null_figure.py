"""The figure nulls: a model beside its nulls and what is reachable."""

import pytest

import collapse
from collapse import CollapseError, Results, Row
from collapse.plugin.figures import numbers_of
from collapse.testing import check_figure
from collapse_figures.references import nulls

pytest.importorskip("altair", reason="needs the extra report")


def row(model, **changes):
    numbers = {"val_loss": 1.0, "nc1.cdnv": 0.001, "gnc2.hyperspherical_uniformity": -0.5, "nc4.agreement": 0.3}
    null = {"untrained": {**numbers, "nc1.cdnv": 0.5, "nc4.agreement": None}, "shuffled": {"nc1.cdnv": 40.0}}
    about = {"revision": None, "corpus": "stories", "store": model, "min_count": 1, "classes": 100, "dim": 8}
    return Row(model=model, samples=1000, measurements=numbers, **({**about, "nulls": null} | changes))


def test_it_obeys_the_laws():
    check_figure(nulls, results=Results([row("a"), row("b")]))


def test_a_model_its_nulls_and_the_limit_are_drawn():
    drawing = collapse.draw("nulls", [row("a"), row("b", nulls={})])
    found = {(each["name"], each["of"]): each["value"] for each in numbers_of(drawing.spec)}
    assert found["nc1.cdnv", "model"] == 0.001
    assert found["nc1.cdnv", "untrained"] == 0.5
    assert found["nc1.cdnv", "shuffled"] == 40.0
    assert found["gnc2.hyperspherical_uniformity", "reachable"] < 0
    assert not [name for name, _ in found if name == "nc4.agreement"]  # none of its nulls has a value
    assert drawing.notes == ("1 row without nulls not drawn",)


def test_rows_without_nulls_say_how_to_get_some():
    with pytest.raises(CollapseError, match="needs rows with nulls: collapse measure --null"):
        collapse.draw("nulls", "paper")
