"""Geometry of independent random unit vectors: means, rows, another text's mean, and the means of a row before."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from reference_geometry import summaries
from scipy.stats import beta

import collapse
from collapse.plugin.plugin_manager import plugins
from collapse.testing import statistics_of

NAMES = plugins().select("geometry,minority,soft_labels,nc5,transient")
VARIANCE = 0.01  # of the noise, in every direction
NOT_KNOWN = {"geometry.margin_min", "geometry.rogue_share", "geometry.means.intrinsic_dimension"}


def marchenko_pastur(n, d):
    """The expected eigenvalues of the second moment of n random unit vectors in d dimensions, descending."""
    rank, ratio = min(n, d), min(n, d) / max(n, d)
    low, high = (1 - math.sqrt(ratio)) ** 2, (1 + math.sqrt(ratio)) ** 2
    x = (low + high) / 2 - (high - low) / 2 * np.cos(np.linspace(0, math.pi, 10001))
    density = np.sqrt(np.maximum((high - x) * (x - low), 0)) / x
    below = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(x))])
    return np.interp((np.arange(rank, 0, -1) - 0.5) / rank, below / below[-1], x) / rank


def expected(C, d):
    """The value of each measurement for C random unit vectors in d dimensions."""
    rank, means = min(C - 1, d), marchenko_pastur(C, d)
    between = marchenko_pastur(C - 1, d) * (1 - 1 / C)
    embeddings = np.pad(means, (0, d - len(means))) + VARIANCE
    spectra = {"means": means, "classifier": means, "between": between, "embeddings": embeddings}
    found = {
        f"{of}.{name}": value
        for of, values in {**spectra, "within": np.ones(d)}.items()
        for name, value in summaries(np.sqrt(values)).items()
    }
    t = np.linspace(-1, 1, 20001)  # the largest of C − 1 random cosines is at most t with probability F(t)^(C − 1)
    largest = 1 - np.trapezoid(beta.cdf((1 + t) / 2, (d - 1) / 2, (d - 1) / 2) ** (C - 1), t)
    squares = C + C * (C - 1) / d  # of the cosines of all pairs
    dimension = C * d / (C + d)  # participation ratio
    noisy = d * (1 + d * VARIANCE) ** 2 / (d / dimension + 2 * d * VARIANCE + (d * VARIANCE) ** 2)
    found |= {
        "means.participation_ratio": dimension,
        "means.effective_rank": min(C, d) * math.exp(-min(C, d) / max(C, d) / 2),  # Page 1993
        "eta_squared": (1 - 1 / C) / (1 - 1 / C + d * VARIANCE),
        "snr": (1 - 1 / C) / VARIANCE,
        "vci": 1 - (between / (between + VARIANCE)).sum() / rank,
        "directional_cdnv": VARIANCE / 2 * (d - 2) / (d - 3),
        "classifier.etf_error": math.sqrt(2 - 2 * math.sqrt((C - 1) / squares)),
        "classifier.norm_cov": 0,
        "classifier.cosine": 0,
        "classifier.cosine_std": 1 / math.sqrt(d),
        "margin": -largest,
        "bias_collapse": 1 / math.sqrt(C * d),
        "span_overlap": min(C / d, 1),
        "span_angle": math.pi / 2 if d > C else 0,
        "anisotropy": 0,
        **{f"slope.{name}": 0 for name in ("mean", "row", "bias", "variance")},
    }
    return {f"geometry.{name}": value for name, value in found.items()} | {
        "minority.mean_cosine": -1 / (C - 1),
        "minority.row_cosine": -1 / (C - 1),
        "soft_labels.duality": math.sqrt(dimension * noisy) / d,
        "nc5.ood_orthogonality": math.sqrt(2 / math.pi / d),
        "transient.similarity": d / (C + d),
    }


def made(C, d, seed):
    draw = torch.Generator().manual_seed(seed)
    means, rows, before, other = (
        torch.nn.functional.normalize(torch.randn(n, d, generator=draw, dtype=torch.float64)) for n in (C, C, C, 1)
    )
    samples = torch.randint(90, 110, (C,), generator=draw)
    noise = {"scatter": VARIANCE * torch.eye(d).double() * samples.sum(), "samples": samples.sum()[None]}
    return replace(
        statistics_of(means, rows),
        counts=samples,
        variances=torch.full((C,), d * VARIANCE).double(),
        bias=torch.zeros(C).double(),
        extra={"covariance": noise},
        ood=statistics_of(other),
        previous=statistics_of(before),
    )


@pytest.mark.parametrize(("C", "d"), [(60, 240), (600, 120)])
def test_values_at_random_frames(C, d):
    """Means over eight seeds, within four standard errors, and two percent, because C and d are finite."""
    rows = [collapse.measure(made(C, d, seed), metrics=NAMES).measurements for seed in range(8)]
    values = expected(C, d)
    assert values.keys() | NOT_KNOWN == {*NAMES}
    for name, value in values.items():
        found = np.array([row[name] for row in rows])
        allowed = 4 * found.std(ddof=1) / math.sqrt(len(rows)) + 0.02 * abs(value) + 1e-9
        assert found.mean() == pytest.approx(value, abs=allowed), name


def test_the_intrinsic_dimension_of_a_sphere():
    found = collapse.measure(made(3000, 5, 0), metrics="geometry.means.intrinsic_dimension")
    assert found["geometry.means.intrinsic_dimension"] == pytest.approx(4, rel=0.05)
