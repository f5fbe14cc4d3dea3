"""Values of two other packages on three feature sets: each equals one of our measurements, or a formula of them."""

import json
import math

import pytest

import collapse

SETS = ("few-classes", "many-classes", "nearly-collapsed")

# Theirs ← ours: m is our measurements, C classes, d dimensions. Class-wise variances are theirs with n−1, ours are
# population stds; pairwise ones are population on both sides.
FORMULAS = {
    "nc1_cdnv_dist_exp_1": lambda m, C, d: m["nc1.cdnv_galanti"],
    "nc1_cdnv_dist_exp_2 (paper Eq. 4, k=2)": lambda m, C, d: m["nc1.cdnv"],
    "nc1_covariance_ratio_quotient": lambda m, C, d: m["nc1.trace_ratio"],
    "nc1_covariance_ratio_pinv": lambda m, C, d: m["nc1.covariance_ratio"],
    "nc1_covariance_ratio_svd": lambda m, C, d: m["nc1.covariance_ratio"],
    "nc1_strong": lambda m, C, d: m["nc1.covariance_ratio"],
    "nc2_simplex_etf_error": lambda m, C, d: m["nc2.etf_error"],
    "nc2_norms.mean": lambda m, C, d: m["nc2.norm"],
    "nc2_norms.variance": lambda m, C, d: m["nc2.norm_std"] ** 2 * C / (C - 1),
    "nc2_log_norms.mean": lambda m, C, d: m["nc2.log_norm"],
    "nc2_log_norms.variance": lambda m, C, d: m["nc2.log_norm_std"] ** 2 * C / (C - 1),
    "gnc2_log_kernel.mean": lambda m, C, d: m["gnc2.log_kernel"],
    "gnc2_log_kernel.variance": lambda m, C, d: m["gnc2.log_kernel_std"] ** 2,
    "gnc2_distance_kernel.mean": lambda m, C, d: m["gnc2.distance"],
    "gnc2_distance_kernel.variance": lambda m, C, d: m["gnc2.distance_std"] ** 2,
    "gnc2_riesz_kernel.mean": lambda m, C, d: math.exp((d - 2) * m["gnc2.log_riesz"]),
    "gnc2_riesz_kernel.variance": lambda m, C, d: (
        math.exp(2 * (d - 2) * m["gnc2.log_riesz_square"]) - math.exp((d - 2) * m["gnc2.log_riesz"]) ** 2
    ),
    "nc3_self_duality_error": lambda m, C, d: m["nc3.duality_error"],
    "nc3_cosine.mean": lambda m, C, d: m["nc3.self_duality"],
    "nc3_cosine.variance": lambda m, C, d: m["nc3.self_duality_std"] ** 2 * C / (C - 1),
    "nc3_dot.mean": lambda m, C, d: m["nc3.dot"],
    "nc3_dot.variance": lambda m, C, d: m["nc3.dot_std"] ** 2 * C / (C - 1),
    "nc3_normalised_distance.mean": lambda m, C, d: m["nc3.duality_distance"],
    "nc3_normalised_distance.variance": lambda m, C, d: m["nc3.duality_distance_std"] ** 2 * C / (C - 1),
    "nc4_agreement": lambda m, C, d: m["nc4.agreement"],
    "nc2_interference_cosine.mean": lambda m, C, d: m["nc2.interference"],
    "nc2_interference_cosine.variance_population": lambda m, C, d: m["nc2.interference_std"] ** 2,
    "validation_linear_accuracy": lambda m, C, d: m["val_accuracy"],
}


def numbers(tree, prefix=""):
    """Every non-null number of a JSON tree, by dotted name."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from numbers(value, f"{prefix}{key}.")
        elif value is not None:
            yield f"{prefix}{key}", value


@pytest.mark.parametrize("name", SETS)
def test_every_number_of_theirs_follows_from_ours(shared, run, name):
    folder = shared / "data" / "peer-values"
    theirs = json.loads((folder / f"{name}.json").read_text())
    (row,) = json.loads(run("measure", folder / f"{name}.safetensors", "--json").stdout)
    store = collapse.collect(folder / f"{name}.safetensors")
    in_python = collapse.measure(store).to_dict()
    assert in_python["measurements"].pop("n_params") is row["measurements"].pop("n_params") is None
    assert in_python["measurements"] == pytest.approx(row["measurements"], rel=1e-12)
    C, d = theirs.pop("shapes")["classes"], row["dim"]
    found = [each for package in theirs.values() for each in numbers(package)]
    assert len(found) >= 25
    for key, value in found:
        assert FORMULAS[key](row["measurements"], C, d) == pytest.approx(value, rel=1e-5), key
