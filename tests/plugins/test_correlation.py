"""The correlation analysis: against SciPy and against formulas written out, its groups, and what it refuses."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr, t

from collapse import CollapseError, Results, analyze
from collapse.errors import UsageError
from collapse.testing import check_analysis
from collapse_analyses.correlation import correlation
from collapse_analyses.fits import explained, holm, interval_of_r, products_without_each, r_of, refits
from collapse_analyses.paired import paired


def frame_of(rows=30, seed=0):
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame(draw.normal(size=(rows, 3)), columns=["val_loss", "a", "b"])
    frame["val_loss"] += frame["a"]
    return frame.assign(g=np.arange(rows) % 5, h=np.arange(rows) // 5)


def correlate(frame, **options):
    return analyze("correlation", Results.from_frame(frame), **{"columns": "a,b", "resamples": 99, **options})


def of(table, column="a"):
    return next(row for row in table.records() if row["column"] == column)


def test_without_groups_it_is_scipys():
    frame = frame_of()
    table = correlate(frame)
    for column in "ab":
        found, theirs = of(table, column), pearsonr(frame["val_loss"], frame[column])
        assert (found["r"], found["p"]) == pytest.approx((theirs.statistic, theirs.pvalue))
        assert found["spearman"] == pytest.approx(spearmanr(frame["val_loss"], frame[column]).statistic)
        assert found["R2"] == pytest.approx(theirs.statistic**2)
        assert found["strata"] is None
    assert [row["column"] for row in table.records()] == ["a", "b"]


def test_controls_give_partial_correlations():
    frame = frame_of()
    found = of(correlate(frame, columns="a", control="b,g**2"))

    def rest(name):
        design = np.stack([np.ones(len(frame)), frame["b"], frame["g"] ** 2], axis=1)
        return frame[name] - design @ np.linalg.lstsq(design, frame[name], rcond=None)[0]

    r = np.corrcoef(rest("a"), rest("val_loss"))[0, 1]
    degrees = len(frame) - 2 - 2
    assert found["r"] == pytest.approx(r)
    assert found["p"] == pytest.approx(2 * t.sf(abs(r) * np.sqrt(degrees / (1 - r**2)), degrees))
    assert "controlled for b, g**2" in correlate(frame, columns="a", control="b,g**2").title


def test_one_column_of_groups_subtracts_their_means_and_two_subtract_both():
    frame = frame_of()

    def centred(name, by):
        return frame[name] - frame[name].groupby(frame[by]).transform("mean")

    one = np.corrcoef(centred("a", "g"), centred("val_loss", "g"))[0, 1]
    assert of(correlate(frame, within="g"))["r"] == pytest.approx(one)
    both = [centred(name, "g") + centred(name, "h") - (frame[name] - frame[name].mean()) for name in ("a", "val_loss")]
    assert of(correlate(frame, within="g,h"))["r"] == pytest.approx(np.corrcoef(*both)[0, 1])


def test_signs_are_counted_in_the_groups_of_the_first_column():
    frame = frame_of()
    found = of(correlate(frame, within="g,h"))
    each = [np.corrcoef(part["a"], part["val_loss"])[0, 1] for _, part in frame.groupby("g")]
    assert found["strata"] == found["strata_positive"] + found["strata_negative"] == 5
    assert found["strata_positive"] == sum(r > 0 for r in each)
    assert found["strata_median_r"] == pytest.approx(np.median(each))
    strata = analyze("correlation", Results.from_frame(frame), columns="a", within="g", strata=True)
    assert [row["r"] for row in strata.records()] == pytest.approx(each)
    assert [row["g"] for row in strata.records()] == [0, 1, 2, 3, 4]
    assert [row["rows"] for row in strata.records()] == [6] * 5


def test_strata_of_one_row_say_nothing():
    frame = frame_of(8).assign(g=[0, 0, 0, 0, 0, 0, 1, 2])
    found = of(correlate(frame, within="g"))
    assert (found["strata"], found["rows"]) == (1, 8)
    rows = analyze("correlation", Results.from_frame(frame), columns="a", within="g", strata=True).records()
    assert [row["r"] is None for row in rows] == [False, True, True]
    with pytest.raises(CollapseError, match="no group of equal g has 3 rows"):
        analyze(
            "correlation",
            Results.from_frame(frame.assign(g=[0, 0, 1, 1, 2, 2, 3, 3])),
            columns="a",
            within="g",
            strata=True,
        )
    with pytest.raises(UsageError, match="every row has another g"):
        correlate(frame.assign(g=range(8)), within="g")


def jackknifed(x, y, clusters, degrees, r_of=lambda x, y: np.corrcoef(x, y)[0, 1]):
    """The interval and p from the definition, without each cluster in turn."""
    z = np.arctanh([r_of(x[clusters != each], y[clusters != each]) for each in np.unique(clusters)])
    error = np.sqrt(degrees / len(z) * ((z - z.mean()) ** 2).sum())
    centre, reach = np.arctanh(r_of(x, y)), t.ppf(0.975, degrees) * error
    return [*np.tanh([centre - reach, centre + reach]), 2 * t.sf(abs(centre) / error, degrees)]


@pytest.mark.parametrize(("cluster", "degrees"), [(None, 28), ("h", 5), ("g", 4)])
def test_an_interval_is_that_of_the_rows_without_each_cluster(cluster, degrees):
    frame = frame_of()
    found = of(correlate(frame, cluster=cluster))
    units = np.arange(30) if cluster is None else frame[cluster].to_numpy()
    x, y = (frame[each].to_numpy() for each in ("a", "val_loss"))
    low, high, p = jackknifed(x, y, units, degrees)
    assert (found["r_low"], found["r_high"]) == pytest.approx((low, high))
    if cluster:
        assert found["p"] == pytest.approx(p)
    low, high, _ = jackknifed(x, y, units, degrees, lambda x, y: spearmanr(x, y).statistic)
    assert (found["spearman_low"], found["spearman_high"]) == pytest.approx((low, high))


@pytest.mark.parametrize("clusters", [None, "h", "g"])
def test_groups_and_controls_are_fitted_again_without_each_cluster(clusters):
    frame = frame_of()
    groups = frame["h"].to_numpy()
    units = np.arange(30) if clusters is None else frame[clusters].to_numpy()
    model = explained(30, [groups], [frame["b"].to_numpy()])
    x, y = (frame[each].to_numpy() for each in ("a", "val_loss"))
    products = products_without_each(np.stack([x, y]), refits(model, None if clusters is None else units))
    found, slopes = r_of(products), products[:, 0, 1] / products[:, 0, 0]
    for unit in np.unique(units):
        kept = units != unit
        part = explained(int(kept.sum()), [groups[kept]], [frame["b"].to_numpy()[kept]])
        left = [part.residuals(each[kept]) for each in (x, y)]
        assert found[unit] == pytest.approx(np.corrcoef(*left)[0, 1])
        assert slopes[unit] == pytest.approx(left[0] @ left[1] / (left[0] @ left[0]))


def test_fewer_than_five_clusters_give_no_interval_and_no_p():
    table = correlate(frame_of().assign(w=np.arange(30) % 2), cluster="w")
    assert [of(table)[name] for name in ("p", "holm", "bh", "r_low", "spearman_high")] == [None] * 5
    assert "2 values of w are too few for an interval or a p-value: at least 5 are needed" in table.notes


def test_notes_name_every_column_of_clusters_and_what_p_assumes():
    frame = frame_of().assign(dim=np.repeat([16, 32, 64], 10), of=np.arange(30) % 4)
    alone, together = (correlate(frame, columns="a", cluster=each).notes for each in (None, "dim,of"))
    assert "t-test, clustered by dim and of" in " ".join(together)
    assert any("without one of the 12 values of dim and of at a time" in note for note in together)
    assert [any("rows are exchangeable" in each for each in notes) for notes in (alone, together)] == [True, False]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_corrected_p(values):
    p, m = np.array(values), len(values)
    order = np.argsort(p)
    down = np.empty(m)
    for rank, at in enumerate(order):
        down[at] = max(min(1, (m - i) * p[order[i]]) for i in range(rank + 1))
    np.testing.assert_allclose(holm(p), down)


def test_the_residuals_are_orthogonal_to_groups_and_controls():
    frame = frame_of()
    groups, control = frame["g"].to_numpy(), frame["b"].to_numpy() * 1e9
    rest = explained(30, [groups, groups, frame["h"].to_numpy()], [control]).residuals(frame["a"].to_numpy())
    assert np.abs(np.bincount(groups, weights=rest)).max() < 1e-12
    assert abs(rest @ (control / 1e9)) < 1e-12
    assert explained(30, [groups, groups], [np.ones(30)]).degrees == 30 - 5 - 1


def test_logarithms_and_reachable_values_are_columns():
    frame = frame_of().assign(classes=100, dim=np.arange(30) + 5)
    frame["gnc2.log_kernel_std"] = frame["a"]
    frame["nc1.cdnv"] = np.exp(frame["b"])
    table = correlate(frame, columns="log(nc1.cdnv),x=gnc2.log_kernel_std/reachable(gnc2.log_kernel_std)")
    assert of(table, "log(nc1.cdnv)")["r"] == pytest.approx(np.corrcoef(frame["b"], frame["val_loss"])[0, 1])
    assert of(table, "log(nc1.cdnv)")["predicted"] is None  # in units of h, of 30 widths
    with pytest.raises(CollapseError, match=r"log\(a\) is nan in row"):
        correlate(frame, columns="log(a)")
    with pytest.raises(UsageError, match=r"no measurement is called 'gnc2.log_kernl'; did you mean"):
        correlate(frame, columns="a/reachable(gnc2.log_kernl)")
    with pytest.raises(UsageError, match="no column is called 'dim'"):
        correlate(frame.drop(columns="dim"), columns="a/reachable(gnc2.log_kernel)")
    with pytest.raises(UsageError, match="cannot be read"):
        correlate(frame, columns="a b")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cluster": "gg"}, r"no column is called 'gg' \(--cluster\); did you mean g"),
        ({"control": "c"}, "no column is called 'c'"),
        ({"control": "model"}, "'model' is not of numbers"),
        ({"within": "c"}, r"no column is called 'c' \(--within\)"),
        ({"strata": True}, "--strata shows r in each group of one column"),
        ({"strata": True, "within": "g", "control": "b"}, "--strata .* without --control"),
        ({"strata": True, "within": "g,h"}, "--strata shows r in each group of one column"),
        ({"resamples": 0}, "--resamples must be at least 1"),
        ({"columns": "c"}, "no column is called 'c'"),
        ({"columns": "same"}, "same is constant, 1 in all 30 rows"),
        ({"against": "same"}, "same is constant"),
        ({"within": "g", "against": "g"}, "g is constant within equal g"),
        ({"within": "g", "columns": "g**2"}, "every column is constant within equal g"),
        ({"control": "val_loss"}, "val_loss is constant within equal val_loss"),
    ],
)
def test_what_cannot_be_correlated(options, said):
    frame = frame_of().assign(same=1.0, two=np.arange(30) % 2, model=[f"m{i}" for i in range(30)])
    with pytest.raises(CollapseError, match=said):
        correlate(frame, **options)


def test_rows_that_are_not_models_of_their_own_are_noted():
    frame = frame_of(6).assign(model=list("aabcde"), corpus=["x", "x", "x", "y", "y", "y"])
    notes = correlate(frame).notes
    assert "1 row with the model name of another row: they may not be independent" in notes
    assert "rows of 2 corpora are mixed: x, y" in notes


def test_few_degrees_are_refused():
    with pytest.raises(CollapseError, match="4 rows are too few for b and g: no degree of freedom is left"):
        correlate(frame_of(4), columns="a", control="b,g")


def test_the_laws_of_analyses():
    check_analysis(correlation, columns="nc1,nc4.agreement")


def test_paired_keeps_the_laws():
    from dataclasses import replace

    from collapse.testing import random_results

    rows = random_results(12, ["val_loss", "nc1.cdnv", "nc4.agreement"]).rows
    named = [replace(row, model=f"{i // 2 + 1}x8_01{'dL'[i % 2]}") for i, row in enumerate(rows)]
    check_analysis(paired, results=Results(named), by="decay")


def test_one_row_that_carries_all_variation_has_no_interval():
    x = np.array([0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 7.3])
    for ranks in (False, True):
        r = r_of(products_without_each(np.stack([x, x]), refits(explained(7)), ranks=ranks))
        assert np.isnan(r[-1])
        assert interval_of_r(1.0, r, 5) is None


def test_equal_residuals_tie_in_resamples_too():
    draw = np.random.default_rng(0)
    group, inside = np.arange(24) // 4, np.tile([0.1, 0.1, 0.3, 0.3], 6)
    frame = pd.DataFrame({"g": group, "a": inside + group * 1.1, "b": draw.normal(size=24)})
    frame["val_loss"] = inside * 3 + group * 0.7
    found = of(correlate(frame, within="g"))
    assert (found["spearman"], found["spearman_low"], found["spearman_high"]) == pytest.approx((1, 1, 1))


def test_a_label_is_not_judged():
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"val_loss": draw.random(9), "nc4.agreement": draw.random(9), "nc1.cdnv": 1 + draw.random(9)})
    given = "nc4.agreement=-nc4.agreement,nc1.cdnv=log(nc1.cdnv),nc3.self_duality=log(nc4.agreement)"
    for analysis in ("correlation", "permutation"):
        found = analyze(analysis, Results.from_frame(frame.assign(dim=8)), columns=given).records()
        signs = {row["column"]: row["predicted"] for row in found}
        assert signs == {"nc4.agreement": None, "nc1.cdnv": "r > 0", "nc3.self_duality": "r < 0"}
