"""Values of five other packages on the frozen features: each equals one of our measurements.

Versions: representation-geometry 0.1.0, nngeom 0.2.0, reptrix 0.1.0, kowalski 0.0.2, scikit-dimension 0.5.0. Some
compute in float32, or add ε to each share: 1e-12 of kowalski, as given, and 1e-7 of reptrix.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import collapse
from collapse_geometry.spectra import alpha

TESTS = Path(__file__).parents[1]
THEIRS = json.loads((TESTS / "golden" / "geometry-peers.json").read_text())
OURS = {
    "representation_geometry.metric_from_eigenvalues(within).d_entropy": "within.effective_rank",
    "representation_geometry.metric_from_eigenvalues(within).d_pr": "within.participation_ratio",
    "representation_geometry.metric_from_eigenvalues(within).stable_rank": "within.stable_rank",
    "representation_geometry.metric_from_eigenvalues(between).d_entropy": "between.effective_rank",
    "representation_geometry.metric_from_eigenvalues(between).d_pr": "between.participation_ratio",
    "representation_geometry.metric_from_eigenvalues(between).stable_rank": "between.stable_rank",
    "representation_geometry.sample_svd_metrics(means).sv_effective_rank": "between.rankme",
    "representation_geometry.sample_svd_metrics(means).sv_stable_rank": "between.stable_rank",
    "representation_geometry.sample_svd_metrics(means).sv_participation_ratio": "between.participation_ratio",
    "representation_geometry.sample_svd_metrics(means).cos_sim_mean": "anisotropy",
    "nngeom.effective_rank(means)": "between.rankme",
    "nngeom.participation_ratio(means)": "between.participation_ratio",
    "nngeom.metrics.stable_rank(means)": "between.stable_rank",
    "kowalski.classifier_etf_convergence(W)": "classifier.etf_error",
    "kowalski.rankme(means)": "means.rankme",
    "kowalski.rankme(embeddings)": "embeddings.rankme",
    "skdim.TwoNN(means)": "means.intrinsic_dimension",
    "reptrix.get_rankme(means)": "between.effective_rank",
}


@pytest.mark.parametrize("name", ["few", "many", "float32"])
def test_every_number_of_theirs_is_one_of_ours(name, tmp_path):
    store = collapse.collect(TESTS / "frozen" / f"{name}.safetensors", store=tmp_path / "store")
    found = collapse.measure(store, metrics="geometry")
    _, logits = collapse.vectors(store, "geometry.bias_collapse")
    theirs = dict(THEIRS[name])
    assert float(logits.norm()) == pytest.approx(theirs.pop("kowalski.bias_collapse(W, b, mean of means)"), rel=1e-9)
    assert {key: found[f"geometry.{OURS[key]}"] for key in theirs} == pytest.approx(theirs, rel=1e-4)


def test_the_power_law_of_reptrix():
    ranks = np.arange(1, 151)
    spectrum = np.sort(ranks**-1.3 * (1 + 0.1 * np.sin(ranks)))
    assert float(alpha(torch.from_numpy(spectrum))) == pytest.approx(THEIRS["reptrix.get_powerlaw"], rel=1e-9)
