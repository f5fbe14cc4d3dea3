"""Compute every measurement directly from its definition, in float64 NumPy: all pairs at once, nothing shared."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Values = dict[str, float]


def class_statistics(h: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Counts, means and variances of the classes that occur."""
    h = h.astype(np.float64)
    classes = np.unique(y)
    means = np.stack([h[y == c].mean(axis=0) for c in classes])
    variances = np.array([((h[y == c] - m) ** 2).sum(axis=1).mean() for c, m in zip(classes, means, strict=True)])
    deviations = h - means[np.searchsorted(classes, y)]
    return {
        "classes": classes,
        "counts": np.array([(y == c).sum() for c in classes]),
        "means": means,
        "variances": variances,
        "within": deviations.T @ deviations / len(h),
    }


def cov(values: np.ndarray) -> float:
    """std / mean."""
    return float(values.std() / values.mean())


def geometry(s: dict[str, np.ndarray], weight: np.ndarray) -> Values:
    """All measurements except NC4 and generalization, for distinct means and distinct directions."""
    weight, means = weight.astype(np.float64), s["means"]
    centred = means - means.mean(axis=0)
    return {**pairs(s, centred), **frame(s, centred), **duality(weight, centred), **debiased(s, weight)}


def pairs(s: dict[str, np.ndarray], centred: np.ndarray) -> Values:
    """Measurements over pairs of classes, all at once."""
    means, variances = s["means"], s["variances"]
    C, d = means.shape
    units, uncentred = directions(centred), directions(means)
    i, j = np.triu_indices(C, 1)
    sqdist = ((means[i] - means[j]) ** 2).sum(axis=1)
    spread = variances[i] + variances[j]
    cdnv = spread / (2 * sqdist**2)
    cosines = (units[i] * units[j]).sum(axis=1)
    apart = np.linalg.norm(units[i] - units[j], axis=1)
    log_kernel = -np.log(apart)
    uncentred_kernel = -np.log(np.linalg.norm(uncentred[i] - uncentred[j], axis=1))
    return {
        "nc1.cdnv": float(cdnv.mean()),
        "nc1.cdnv_std": float(cdnv.std()),
        "nc1.log_cdnv": float(np.log(cdnv[cdnv > 0]).mean()),
        "nc1.cdnv_scaled": float(cdnv.mean() * (centred**2).sum(axis=1).mean()),
        "nc1.cdnv_galanti": float((spread / (2 * sqdist)).mean()),
        "nc1.cdnv_ratio": float(variances.mean() / sqdist.mean()),
        "nc1.cdnv_k2_ratio": float(variances.mean() / sqdist.mean() ** 2),
        "nc2.equiangularity": cov(cosines),
        "nc2.interference": float(cosines.mean()),
        "nc2.interference_std": float(cosines.std()),
        "nc2.effective_dimension": float(1 / (cosines**2).mean()),
        "gnc2.hyperspherical_uniformity": cov(log_kernel),
        "gnc2.log_kernel": float(log_kernel.mean()),
        "gnc2.log_kernel_std": float(log_kernel.std()),
        "gnc2.uncentred_uniformity": cov(uncentred_kernel),
        "gnc2.uncentred_log_kernel": float(uncentred_kernel.mean()),
        "gnc2.uncentred_log_kernel_std": float(uncentred_kernel.std()),
        "gnc2.distance": float(apart.mean()),
        "gnc2.distance_std": float(apart.std()),
        "gnc2.log_riesz": log_mean_exp((d - 2) * log_kernel) / (d - 2),
        "gnc2.log_riesz_square": log_mean_exp(2 * (d - 2) * log_kernel) / (2 * (d - 2)),
    }


def frame(s: dict[str, np.ndarray], centred: np.ndarray) -> Values:
    """Norms of the means, and the between-class covariance."""
    counts, (C, d) = s["counts"], centred.shape
    norms, units = np.linalg.norm(centred, axis=1), directions(centred)
    between = centred.T @ centred / C
    _, singular, vectors = np.linalg.svd(centred, full_matrices=False)  # eigh() would lose digits of small values
    eigenvalues, vectors = singular**2 / C, vectors.T
    rounding = np.linalg.norm(s["means"], axis=1).max() / 2**22  # of float32 embeddings
    kept = eigenvalues > max(d * np.finfo(float).eps * eigenvalues[0], rounding**2)
    inverse = vectors[:, kept] / eigenvalues[kept] @ vectors[:, kept].T
    return {
        "nc1.trace_ratio": float((counts * s["variances"]).sum() / counts.sum() / np.trace(between)),
        "nc1.covariance_ratio": float(np.trace(s["within"] @ inverse) / C),
        "nc2.equinormness": cov(np.log(norms)),
        "nc2.log_norm": float(np.log(norms).mean()),
        "nc2.log_norm_std": float(np.log(norms).std()),
        "nc2.norm": float(norms.mean()),
        "nc2.norm_std": float(norms.std()),
        "nc2.norm_cov": cov(norms),
        "nc2.scaled_norm": float((norms**2).mean() / math.sqrt(d)),
        "nc2.participation_ratio": float(C**2 / ((units @ units.T) ** 2).sum()),
        "nc2.etf_error": off_simplex(centred @ centred.T),
    }


def duality(weight: np.ndarray, centred: np.ndarray) -> Values:
    """Measurements of the classifier's rows and the centred means."""
    rows, shifted, units = directions(weight), weight - weight.mean(axis=0), directions(centred)
    cosines, shifted_cosines = (rows * units).sum(axis=1), (directions(shifted) * units).sum(axis=1)
    dots, apart = (weight * centred).sum(axis=1), np.linalg.norm(rows - units, axis=1)
    return {
        "nc3.self_duality": float(cosines.mean()),
        "nc3.self_duality_std": float(cosines.std()),
        "nc3.self_duality_ratio": float((rows * centred).sum() / math.sqrt(len(rows) * (centred**2).sum())),
        "nc3.self_duality_centred": float(shifted_cosines.mean()),
        "nc3.self_duality_centred_std": float(shifted_cosines.std()),
        "nc3.dot": float(dots.mean()),
        "nc3.dot_std": float(dots.std()),
        "nc3.duality_distance": float(apart.mean()),
        "nc3.duality_distance_std": float(apart.std()),
        "nc3.duality_error": off_simplex(weight @ centred.T),
        "nc3.duality_error_centred": off_simplex(shifted @ centred.T),
        "unc3.uniform_duality": cov(cosines),
        "unc3.uniform_duality_centred": cov(shifted_cosines),
    }


def directions(rows: np.ndarray) -> np.ndarray:
    """Rows divided by their norms."""
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def log_mean_exp(values: np.ndarray) -> float:
    """log mean exp, without overflow."""
    return float(values.max() + np.log(np.exp(values - values.max()).mean()))


def off_simplex(gram: np.ndarray) -> float:
    """Distance of inner products, scaled to norm 1, from those of a simplex."""
    C = len(gram)
    return float(np.linalg.norm(gram / np.linalg.norm(gram) - (np.eye(C) - 1 / C) / math.sqrt(C - 1)))


def debiased(s: dict[str, np.ndarray], weight: np.ndarray) -> Values:
    """The debiased measurements that have a number, over classes with at least two samples; without closed forms."""
    several = s["counts"] > 1
    means, n, weight = s["means"][several], s["counts"][several], weight[several].astype(np.float64)
    C, d = means.shape
    unbiased = s["variances"][several] * n / (n - 1)
    noise = unbiased / n
    i, j = np.triu_indices(C, 1)
    apart = (((means[i] - means[j]) ** 2).sum(axis=1) - noise[i] - noise[j]).mean()
    # the centred means are P M with P = I − 11ᵀ/C, so the noise of their products is P diag(noise) P
    centring = np.eye(C) - 1 / C
    gram = centring @ (means @ means.T - np.diag(noise)) @ centring
    squares = np.diag(gram)
    known = squares > noise / 4
    cosines = gram / np.sqrt(np.outer(squares, squares).clip(1e-300))
    unit_rows = weight / np.linalg.norm(weight, axis=1, keepdims=True)
    dots = (unit_rows * (means - means.mean(axis=0))).sum(axis=1)
    resolved = cosines[i, j][known[i] & known[j]]
    values = {
        "nc2.scaled_norm_debiased": squares.mean() / math.sqrt(d),
        "nc2.interference_debiased": resolved.mean() if known.mean() >= 0.95 else None,
        "nc1.cdnv_ratio_debiased": unbiased.mean() / apart,
        "nc1.cdnv_k2_ratio_debiased": unbiased.mean() / apart**2,
        "nc1.trace_ratio_debiased": (n * unbiased).sum() / n.sum() / squares.mean(),
        "nc3.self_duality_ratio_debiased": dots.mean() / math.sqrt(max(squares.mean(), 1e-300)),
    }
    bound = np.sqrt((2 * noise**2 * n / (n - 1)).sum()) / C  # of Gaussian noise in one dimension
    error = np.clip(squares.std(ddof=1) / np.sqrt(C) if C > 2 else bound, bound / np.sqrt(d), bound)
    if squares.mean() <= 2 * error:  # the means are as near as their noise makes them
        values |= dict.fromkeys([*values][2:])
    return {name: float(value) for name, value in values.items() if value is not None}


def decisions(
    s: dict[str, np.ndarray],
    weight: np.ndarray,
    bias: np.ndarray | None,
    h: np.ndarray,
    y: np.ndarray,
    read: np.ndarray | None = None,
    cap: float | None = None,
) -> Values:
    """NC4 and generalization; ``weight`` holds every row of the output vocabulary, which reads ``read`` if not h.

    A cap changes the loss alone.
    """
    h, read, weight = (each.astype(np.float64) for each in (h, h if read is None else read, weight))
    logits = read @ weight.T + (0 if bias is None else bias.astype(np.float64))
    classes = s["classes"]
    linear = classes[logits[:, classes].argmax(axis=1)]
    distances = np.stack([((h - mean) ** 2).sum(axis=1) for mean in s["means"]], axis=1)
    ncc = classes[distances.argmin(axis=1)]
    argmax, logits = logits.argmax(axis=1), logits if cap is None else cap * np.tanh(logits / cap)
    top = logits.max(axis=1, keepdims=True)
    loss = (top[:, 0] + np.log(np.exp(logits - top).sum(axis=1)) - logits[np.arange(len(y)), y]).mean()
    agreement = (linear == ncc).mean()
    chance = sum((linear == c).mean() * (ncc == c).mean() for c in classes)
    return {
        "nc4.agreement": float(agreement),
        "nc4.chance_agreement": float(chance),
        "nc4.kappa": float((agreement - chance) / (1 - chance)),
        "nc4.ncc_accuracy": float((ncc == y).mean()),
        "val_loss": float(loss),
        "val_accuracy": float((argmax == y).mean()),
        "perplexity": float(np.exp(loss)),
    }


def everything(features: dict[str, Any]) -> Values:
    """All measurements of a features set (NumPy arrays by name)."""
    s = class_statistics(features["train_features"], features["train_labels"])
    values = geometry(s, features["classifier"][s["classes"]])
    if "validation_features" in features:
        values |= decisions(
            s,
            features["classifier"],
            features.get("classifier_bias"),
            features["validation_features"],
            features["validation_labels"],
            cap=features.get("cap"),
        )
    return values


Reference = Callable[[dict[str, Any]], Values]


def present(measurements: Mapping[str, float | None]) -> dict[str, float]:
    """The measurements that have a number; nc2.interference_debiased is null for short texts, where noise decides."""
    return {name: value for name, value in measurements.items() if value is not None}
