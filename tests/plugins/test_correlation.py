"""The correlation analysis: compared with SciPy and with explicit formulas; its groups, and its errors."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.stats import pearsonr, spearmanr, t

from collapse import CollapseError, Results, analyze
from collapse_analyses.correlation import p_of_whole_groups
from collapse_analyses.fits import Jackknife, linear_model


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
    table = correlate(frame, columns="a", control="b,g**2")

    def rest(name):
        design = np.stack([np.ones(len(frame)), frame["b"], frame["g"] ** 2], axis=1)
        return frame[name] - design @ np.linalg.lstsq(design, frame[name], rcond=None)[0]

    r, degrees = np.corrcoef(rest("a"), rest("val_loss"))[0, 1], len(frame) - 2 - 2
    assert of(table)["r"] == pytest.approx(r)
    assert of(table)["p"] == pytest.approx(2 * t.sf(abs(r) * np.sqrt(degrees / (1 - r**2)), degrees))
    assert "controlled for b, g**2" in table.title


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
    strata = correlate(frame, columns="a", within="g", strata=True).records()
    assert [row["r"] for row in strata] == pytest.approx(each)
    assert [(row["g"], row["rows"]) for row in strata] == [(group, 6) for group in range(5)]
    few = correlate(frame_of(8).assign(g=[0] * 6 + [1, 2]), columns="a", within="g", strata=True).records()
    assert [row["r"] is None for row in few] == [False, True, True]


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
    groups, control = frame["h"].to_numpy(), frame["b"].to_numpy()
    units = np.arange(30) if clusters is None else frame[clusters].to_numpy()
    x, y = (frame[each].to_numpy() for each in ("a", "val_loss"))
    fits = Jackknife(linear_model(30, [groups], [control]), None if clusters is None else units)
    found = fits.correlations(np.stack([x, y]))[0].without
    for unit in np.unique(units):
        kept = units != unit
        part = linear_model(int(kept.sum()), [groups[kept]], [control[kept]])
        assert found[unit] == pytest.approx(np.corrcoef(*(part.residuals(each[kept]) for each in (x, y)))[0, 1])


def test_whole_groups_are_permuted():
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(2, 4, 3))
    codes = np.repeat(np.arange(4), 3), np.tile(np.arange(3), 4)

    def r(x, y):
        x, y = (each - each.mean(0) - each.mean(1, keepdims=True) + each.mean() for each in (x, y))
        return abs((x * y).sum())

    exact = np.mean([r(x[list(order)], y) >= r(x, y) - 1e-12 for order in itertools.permutations(range(4))])
    assert p_of_whole_groups(x.ravel(), y.ravel(), *codes, n=20_000) == pytest.approx(exact, abs=0.02)
    assert p_of_whole_groups(x.ravel()[1:], y.ravel()[1:], codes[0][1:], codes[1][1:], n=9) is None


def test_fewer_than_five_clusters_give_no_interval_and_no_p():
    table = correlate(frame_of().assign(w=np.arange(30) % 2), cluster="w")
    assert [of(table)[name] for name in ("p", "holm", "bh", "r_low", "spearman_high")] == [None] * 5
    assert "no intervals and p: at least 5 clusters are needed, got 2" in table.notes


def test_ranks_of_large_values_have_an_interval():
    frame = frame_of()
    large = of(correlate(frame.assign(a=1e30 + frame["a"] * 1e29)))
    ranked = [large[name] for name in ("spearman", "spearman_low", "spearman_high")]
    assert ranked == [of(correlate(frame))[name] for name in ("spearman", "spearman_low", "spearman_high")]


def test_a_column_without_p_is_last_and_not_counted_in_corrections():
    frame = frame_of()
    frame["once"] = np.where(frame["h"] == 0, frame["g"], 0)  # constant without this cluster
    table = correlate(frame, columns="once,a,b", cluster="h")
    *tested, once = table.records()
    assert [row["column"] for row in tested] == ["a", "b"]
    assert [once[name] for name in ("column", "p", "holm", "bh", "r_low")] == ["once", None, None, None, None]
    for row, same in zip(tested, correlate(frame, cluster="h").records(), strict=True):
        names = ("p", "holm", "bh")
        assert [row[name] for name in names] == pytest.approx([same[name] for name in names])
    assert "no p for once: if one of the 6 values of h is left out, the column or val_loss is constant" in table.notes
    assert [note for note in table.notes if "Holm, BH: corrected for 2 columns" in note]
    permuted = correlate(frame, columns="once,a,b", within="h,g")
    assert None not in [row[name] for row in permuted.records() for name in ("p", "holm", "bh")]


def test_equal_residuals_tie_in_resamples_too():
    group, inside = np.arange(24) // 4, np.tile([0.1, 0.1, 0.3, 0.3], 6)
    frame = pd.DataFrame({"g": group, "a": inside + group * 1.1, "b": np.random.default_rng(0).normal(size=24)})
    frame["val_loss"] = inside * 3 + group * 0.7
    found = of(correlate(frame, within="g"))
    assert (found["spearman"], found["spearman_low"], found["spearman_high"]) == pytest.approx((1, 1, 1))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cluster": "gg"}, "no column is called 'gg'; did you mean g"),
        ({"strata": True}, "--strata shows r in each group of one column"),
        ({"columns": "log(a)"}, r"log\(a\) is nan in row"),
        ({"within": "g", "columns": "g**2"}, r"val_loss \(constant among rows of equal g, .*: g\*\*2"),
        ({"control": "val_loss"}, "val_loss is constant among rows of equal val_loss"),
        (
            {"control": "b,g", "where": "model=m[0-3]"},
            "4 rows are too few to subtract the effect of b and g: give more rows",
        ),
    ],
)
def test_what_cannot_be_correlated(options, said):
    frame = frame_of().assign(model=[f"m{i}" for i in range(30)])
    with pytest.raises(CollapseError, match=said):
        correlate(frame, **options)
