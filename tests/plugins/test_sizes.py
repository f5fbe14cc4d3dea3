"""Sizes of tests and coverage of intervals, by simulation with known truth. The long version: ``-m slow -s``."""

import re

import numpy as np
import pandas as pd
import pytest

from collapse import Results, analyze
from collapse.plugin.plugin_manager import plugins
from collapse.showing.report_findings import associations as associations_of
from collapse.showing.report_findings import findings
from collapse_analyses.fits import Jackknife, linear_model


def held(found, truth, *, size, tables):
    """Check that a share is in the given range, widened by 2.5 standard errors of the simulation."""
    low, high = (4, 6.5) if size else (93, 96.5)
    share, error = 100 * np.mean(found), 250 * np.sqrt(0.05 * 0.95 / tables)
    print(f"{truth}: {'size' if size else 'coverage'} {share:.1f} % of {tables:,}")  # noqa: T201  # the run's result
    assert low - error <= share <= high + error, truth


def check_correlation(sizes, clustered, within, tables, rho, shared):
    """Check how often intervals contain r, for columns with a part that is shared within clusters."""
    draw, codes = np.random.default_rng(7), np.repeat(np.arange(len(sizes)), sizes)
    fits = Jackknife(linear_model(len(codes), [codes] if within else []), codes if clustered else None)
    found = []
    for _ in range(tables):
        levels, noise = draw.normal(size=(2, len(sizes))), draw.normal(size=(2, len(codes)))
        x, z = np.sqrt(shared) * levels[:, codes] + np.sqrt(1 - shared) * noise
        x, y = fits.model.residuals(np.stack([x, rho * x + np.sqrt(1 - rho**2) * z]))
        found += fits.correlations(np.stack([x, y]))
    held([each.low <= rho <= each.high for each in found], f"r = {rho}, {sizes[:2]}", size=False, tables=tables)
    if rho == 0 and clustered:
        held([each.p <= 0.05 for each in found], f"r = 0, {len(sizes)} clusters", size=True, tables=tables)


CASES = [  # rows of each cluster, whether clusters count, whether their means are subtracted
    *(pytest.param([1] * rows, False, False, id=f"{rows}-rows") for rows in (8, 21, 210)),
    *(pytest.param([7] * clusters, True, False, id=f"{clusters}-clusters") for clusters in (5, 10, 30)),
    pytest.param([27] + [7] * 29, True, False, id="published"),
    *(pytest.param([rows] * groups, False, True, id=f"{groups}x{rows}-within") for groups, rows in ((2, 4), (6, 5))),
]


LONG = pytest.mark.slow


@pytest.mark.parametrize(("rho", "tables"), [(0, 0), *(pytest.param(rho, 4_000, marks=LONG) for rho in (0, 0.8))])
@pytest.mark.parametrize(("sizes", "clustered", "within"), CASES)
def test_intervals_of_r_cover_and_p_by_cluster_has_its_size(sizes, clustered, within, rho, tables):
    few = 150 if len(sizes) > 100 else 400
    for shared in (0.5, 0.95) if tables else (0.6,):
        check_correlation(sizes, clustered, within, tables or few, rho, shared if clustered or within else 0)


@pytest.mark.parametrize("tables", [400, pytest.param(4_000, marks=pytest.mark.slow)])
def test_curvature_is_found_in_five_percent_of_power_laws(tables):
    draw = np.random.default_rng(0)
    depth, width, recipe = (each.ravel() for each in np.meshgrid(range(5), range(6), range(7), indexing="ij"))
    clusters = depth * 6 + width
    fits = Jackknife(linear_model(210, [depth, recipe], [width.astype(float)]), clusters)
    bend_n, found = fits.model.residuals((width - 2.5) ** 2), []
    for _ in range(tables):
        y_n = -0.2 * width + draw.normal(size=30)[clusters] * 0.1 + 0.05 * draw.normal(size=210)
        y_n = fits.model.residuals(y_n)
        products = fits.products(np.stack([bend_n, y_n]))
        without = products[:, 0, 1] / products[:, 0, 0]
        low, high, _ = fits.interval_of_slope(float(bend_n @ y_n / (bend_n @ bend_n)), bend_n, without)
        found.append(not low <= 0 <= high)
    held(found, "curvature of a straight law", size=True, tables=tables)


def trend_table(draw, *, seeds, amplitudes):
    """Architectures × checkpoints × seeds, in which two columns share only that they fall during training."""
    rows = []
    for depth in range(1, 9):
        a, b = 1 + amplitudes * draw.normal(size=2)
        for at in range(6):
            for seed in range(seeds):
                x, y = a / (at + 1) + 0.1 * draw.normal(), b / (at + 1) + 0.1 * draw.normal()
                rows.append({"model": f"{depth}x64_06d{seed:02d}@{at}", "val_loss": y, "x": x})
    return pd.DataFrame(rows)


def rejected(analysis, frames, within, **options):
    tables = [analyze(analysis, Results.from_frame(each), columns="x", within=within, **options) for each in frames]
    return [table.records()[0]["p"] <= 0.05 for table in tables]


@pytest.mark.parametrize("tables", [60, pytest.param(2_000, marks=pytest.mark.slow)])
def test_a_shared_trend_in_training_drives_equal_architecture_and_not_recipe(tables):
    draw = np.random.default_rng(3)
    frames = [trend_table(draw, seeds=2, amplitudes=0) for _ in range(tables)]
    assert np.mean(rejected("permutation", frames[:20], "architecture", n=99)) == 1
    held(rejected("permutation", frames, "architecture,checkpoint", n=99), "seeds of a cell", size=True, tables=tables)
    frames = [trend_table(draw, seeds=1, amplitudes=0.5) for _ in range(tables)]
    assert np.mean(rejected("correlation", frames[:20], "architecture")) == 1
    found = rejected("correlation", frames, "architecture,recipe", resamples=199)
    held(found, "whole architectures, each with a trend of its own", size=True, tables=tables)


def noise(draw, groups, rows, slope):
    """Columns that are independent of the loss within a width; loss and columns both depend on the width."""
    known = plugins().measurements()
    names = [each for each in plugins().select(None) if known[each][0].property_of(each) != "generalization"][:50]
    dim = np.repeat(2 ** np.arange(5, 5 + groups), rows)
    values = draw.normal(size=(groups * rows, len(names) + 1)) + slope * np.log2(dim)[:, None]
    frame = pd.DataFrame(values, columns=[*names, "val_loss"])
    return frame.assign(dim=dim, classes=2_000, model=[f"m{at}" for at in range(len(frame))])


@pytest.mark.parametrize("tables", [4, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("groups", "rows", "slope"), [(2, 4, 0), (2, 4, 2), (6, 5, 2)])
def test_the_report_says_nothing_of_noise(groups, rows, slope, tables):
    draw, wrong = np.random.default_rng(5), 0
    for _ in range(tables):
        frame = noise(draw, groups, rows, slope)
        tests = associations_of(Results.from_frame(frame))
        said = " ".join(findings(frame, tests))
        assert f"{groups} values of dim, with {rows} rows each" in said
        assert ("too few groups for a p-value" in said) == (groups < 5)
        assert ("largest R² with validation loss" in said) == (groups >= 5)
        wrong += "reverses" in said or not re.search(", 0 of 5[01] correlations", said)
    print(f"{groups} widths x {rows}: {wrong} of {tables} say something")  # noqa: T201  # the run's result
    assert wrong <= max(1, 0.06 * tables)


def test_the_report_finds_a_reversal():
    frame = noise(np.random.default_rng(0), 8, 6, 2)
    frame["nc1.cdnv"] -= 3 * (frame["val_loss"] - frame["val_loss"].groupby(frame["dim"]).transform("mean"))
    said = " ".join(findings(frame, associations_of(Results.from_frame(frame))))
    assert "the correlation reverses" in said
    assert "nc1.cdnv (+" in said
