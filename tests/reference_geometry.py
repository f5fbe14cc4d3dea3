"""The measurements of collapse_geometry, written directly from their definitions in float64 NumPy."""

from typing import Any

import numpy as np
from reference import directions
from scipy.linalg import subspace_angles

Values = dict[str, float]


def summaries(singular: np.ndarray) -> Values:
    """The summaries of a spectrum, from the singular values of a matrix, descending; exact zeros are no values."""
    singular = singular[singular > 1e-7 * singular.max()]
    values = singular**2
    ranks = np.arange(1.0, len(values) + 1)
    used = slice(10, 100) if len(values) >= 100 else slice(None)
    weights = np.sqrt(1 / ranks[used])  # polyfit squares them
    return {
        "effective_rank": perplexity(values),
        "rankme": perplexity(singular),
        "participation_ratio": values.sum() ** 2 / (values**2).sum(),
        "stable_rank": values.sum() / values[0],
        "alpha": -np.polyfit(np.log(ranks[used]), np.log(values[used]), 1, w=weights)[0],
    }


def perplexity(values: np.ndarray) -> float:
    """exp of the entropy of values divided by their sum."""
    p = values / values.sum()
    return float(np.exp(-(p * np.log(p)).sum()))


def geometry(features: dict[str, Any]) -> Values:
    """All measurements of a features set (NumPy arrays by name) with Σ_W > 0, distinct means, and unequal counts."""
    h, y = features["train_features"].astype(np.float64), features["train_labels"]
    classes, labels, counts = np.unique(y, return_inverse=True, return_counts=True)
    weight = features["classifier"].astype(np.float64)[classes]
    bias = features["classifier_bias"].astype(np.float64)[classes]
    means = np.stack([h[y == c].mean(axis=0) for c in classes])
    deviations, centred = h - means[labels], means - means.mean(axis=0)
    spread = np.linalg.norm(deviations, axis=1) ** 2
    variances = np.array([spread[y == c].mean() for c in classes])
    within, between = deviations.T @ deviations / len(h), centred.T @ centred / len(classes)
    rows = {"within": deviations, "between": centred, "means": means, "classifier": weight, "embeddings": h}
    found = {
        f"{of}.{name}": value
        for of, matrix in rows.items()
        for name, value in summaries(np.linalg.svd(matrix, compute_uv=False)).items()
    }
    total = ((h - h.mean(axis=0)) ** 2).sum()
    rank = min(len(classes) - 1, h.shape[1])
    angles = subspace_angles(weight.T, np.linalg.svd(centred, full_matrices=False)[2][:rank].T)
    return {
        f"geometry.{name}": float(value)
        for name, value in {
            **found,
            "eta_squared": 1 - spread.sum() / total,
            "snr": np.trace(np.linalg.pinv(within) @ between),
            "vci": 1 - np.trace(np.linalg.pinv(within + between) @ between) / rank,
            "span_overlap": (np.cos(angles) ** 2).mean(),
            "span_angle": angles.max(),
            "bias_collapse": (weight @ means.mean(axis=0) + bias).std(),
            "means.intrinsic_dimension": twonn(means),
            **of_pairs(means, weight, within),
            **slopes(counts, centred, weight, bias, variances),
        }.items()
    }


def of_pairs(means: np.ndarray, weight: np.ndarray, within: np.ndarray) -> Values:
    """Measurements over pairs of classes, all at once."""
    i, j = np.triu_indices(len(means), 1)
    gaps = means[i] - means[j]
    along = gaps / np.linalg.norm(gaps, axis=1, keepdims=True)
    rows, units, uncentred = map(directions, (weight, means - means.mean(axis=0), means))
    cosines = (rows[i] * rows[j]).sum(axis=1)
    shared = (uncentred[i] * uncentred[j]).mean(axis=0)
    scores = units @ rows.T
    margins = [score[c] - np.delete(score, c).max() for c, score in enumerate(scores)]
    C = len(means)
    simplex = np.eye(C) - 1 / C
    norms = np.linalg.norm(weight, axis=1)
    gram = weight @ weight.T
    return {
        "directional_cdnv": (((along @ within) * along).sum(axis=1) / (gaps**2).sum(axis=1)).mean(),
        "classifier.etf_error": np.linalg.norm(gram / np.linalg.norm(gram) - simplex / np.linalg.norm(simplex)),
        "classifier.norm_cov": norms.std() / norms.mean(),
        "classifier.cosine": cosines.mean(),
        "classifier.cosine_std": cosines.std(),
        "margin": np.mean(margins),
        "margin_min": np.min(margins),
        "anisotropy": shared.sum(),
        "rogue_share": (shared / shared.sum()).max(),
    }


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Cosine of two arrays as vectors."""
    return float((a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b))


def orthogonality(means: np.ndarray, other: np.ndarray, counts: np.ndarray) -> float:
    """NC5: the mean |cosine| of class means and the mean of another text, from its class means and counts."""
    of_text = np.average(other, axis=0, weights=counts)
    return float(np.mean([abs(cosine(mean, of_text)) for mean in means]))


def similarity(means: np.ndarray, before: np.ndarray) -> float:
    """Linear CKA of class means and those of another checkpoint, from C×C matrices."""
    centred, earlier = means - means.mean(axis=0), before - before.mean(axis=0)
    return cosine(centred @ centred.T, earlier @ earlier.T)


def slopes(counts: np.ndarray, centred: np.ndarray, weight: np.ndarray, bias: np.ndarray, variances: Any) -> Values:
    """Least squares over the classes with a finite value."""
    x = np.log(counts)
    with np.errstate(divide="ignore"):
        of = {
            "mean": np.log(np.linalg.norm(centred, axis=1)),
            "row": np.log(np.linalg.norm(weight, axis=1)),
            "bias": bias,
            "variance": np.log(variances),
        }
    return {f"slope.{name}": np.polyfit(x[np.isfinite(v)], v[np.isfinite(v)], 1)[0] for name, v in of.items()}


def twonn(points: np.ndarray) -> float:
    """A line through the origin, as in the paper."""
    apart = np.sort(np.linalg.norm(points[:, None] - points[None], axis=2), axis=1)
    ratios = np.sort(apart[:, 2] / apart[:, 1])
    kept = int(len(ratios) * 0.9)
    share = np.arange(1, kept + 1) / len(ratios)
    return float(np.linalg.lstsq(np.log(ratios[:kept, None]), -np.log(1 - share), rcond=None)[0][0])
