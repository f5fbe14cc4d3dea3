"""Convergence: growing merges of parts, each equal to a collection of the same text; and its figure."""

import json

import pytest

import collapse
from collapse.errors import CollapseError, StoreError, UsageError
from collapse.plugin.figures import numbers_of
from collapse.stores.folding_shards import statistics_of_shards
from collapse_figures.tables import drawn_in

OF = {"max_chunks": 96}


@pytest.fixture(scope="module")
def parts(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    options = {**OF, **tiny.options()}
    stores = {k: collapse.collect(tiny.model, store=folder / str(k), part=(k, 3), **options) for k in (1, 2, 3)}
    return {k: store.path for k, store in stores.items()}


def test_the_last_row_is_the_whole_and_samples_grow(parts, tmp_path):
    table = collapse.convergence([parts[3], parts[1], parts[2]])
    whole = collapse.measure(collapse.merge(parts.values(), store=tmp_path / "whole"))
    *_, last = table.records()
    assert [row["parts"] for row in table.records()] == [1, 2, 3]
    assert (last["samples"], last["classes"]) == (whole.samples, whole.classes)
    samples = [row["samples"] for row in table.records()]
    assert samples == sorted(set(samples))
    for name, value in whole.measurements.items():
        if value is None:
            assert name not in table.columns
        else:
            assert last[name] == pytest.approx(value, rel=1e-9), name
    assert "nc1.covariance_ratio" in table.columns
    assert "measurements excluded, because parts have no numbers for them" in table.notes[0]


def test_rows_are_those_of_the_parts_alone(parts):
    table = collapse.convergence([parts[1], collapse.Part.load(parts[3])], metrics=["nc1.cdnv", "nc3.self_duality"])
    assert table.columns == ["parts", "samples", "classes", "nc1.cdnv", "nc3.self_duality"]
    alone = collapse.measure(
        statistics_of_shards(collapse.Part.load(parts[1]).shards), metrics=["nc1.cdnv", "nc3.self_duality"]
    )
    assert table.rows[0] == [1, alone.samples, alone.classes, *map(pytest.approx, alone.measurements.values())]
    assert list(table.frame()["parts"]) == [1, 2]
    frequent = collapse.convergence(parts.values(), metrics="nc1.cdnv", min_count=5)
    assert frequent.rows[0][2] < table.rows[0][2]


def test_what_is_no_two_parts_is_refused(tiny, parts, tmp_path):
    for some in ([parts[1]], []):
        with pytest.raises(UsageError, match=r"at least two parts are needed, got [01].*: collect with --part 1/n to"):
            collapse.convergence(some)
    with pytest.raises(StoreError, match="overlap: both hold train slices"):
        collapse.convergence([parts[1], parts[1]])
    options = tiny.options() | {"max_chunks": 64}
    other = collapse.collect(tiny.model, store=tmp_path / "other", part=(2, 3), **options)
    with pytest.raises(StoreError, match="are not parts of one collection: they differ in max_chunks"):
        collapse.convergence([parts[1], other])
    with pytest.raises(UsageError, match="no metric"):
        collapse.convergence(parts.values(), metrics="nc9")


def test_the_curve_is_that_of_convergence(parts, tiny, tmp_path):
    drawing = collapse.draw("convergence", [collapse.Part.load(path) for path in reversed(parts.values())])
    rows = numbers_of(drawing.spec)
    table = collapse.convergence(parts.values(), metrics=drawn_in("parts")).records()
    assert [row["samples"] for row in rows] == [row["samples"] for row in table]
    assert [row["nc1_cdnv"] for row in rows] == pytest.approx([row["nc1.cdnv"] for row in table])
    assert "the first two parts, and so on, of 1 collection" in drawing.caption
    other = collapse.collect(tiny.model, store=tmp_path / "other", part=(1, 2), **tiny.options())
    drawing = collapse.draw("convergence", [*map(collapse.Part.load, parts.values()), other])
    assert drawing.notes == ("not drawn: 1 part without another part of the same collection",)
    with pytest.raises(CollapseError, match="needs two parts of the same collection: give"):
        collapse.draw("convergence", other)


def test_a_report_plots_them_beside_its_rows(parts, tmp_path):
    page = collapse.report(["paper", *parts.values()], tmp_path / "r.html").read_text("utf-8")
    assert '<figure id="figure-convergence"' in page
    sources = page.partition('id="data-sources">')[2].partition("</script>")[0]
    assert [row[0] for row in json.loads(sources)["rows"]] == ["results", "part", "part", "part"]
    with pytest.raises(CollapseError, match="merge parts first"):
        collapse.report(parts.values(), tmp_path / "r.html")
