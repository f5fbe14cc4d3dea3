"""Draw random features, and change them to check the laws."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from collapse.testing.sample_data import random_features

Features = dict[str, Tensor]

FACTOR = 3.0
"""Factor by which :func:`scaled` multiplies embeddings."""

_EMBEDDINGS = ("train_features", "validation_features", "ood_features")
_VOCABULARY = 211


def draw(classes: int, dim: int, samples: int, *, seed: int) -> Features:
    """Draw random float64 features, also with a classifier bias and out-of-distribution features.

    The arguments are those of :func:`random_features`.
    """
    made = random_features(classes, dim, samples, seed=seed)
    made["classifier_bias"] = torch.linspace(-3, 3, classes)
    made["ood_features"] = made["validation_features"].square()
    # multiply by π/3, so that float32 cannot represent the numbers exactly
    return _numbers(made, lambda x: x.double() * (math.pi / 3))


def _numbers(features: Features, change: Callable[[Tensor], Tensor]) -> Features:
    return {name: change(x) if x.is_floating_point() else x for name, x in features.items()}


def _embeddings(features: Features, change: Callable[[Tensor], Tensor]) -> Features:
    return features | {name: change(features[name]) for name in _EMBEDDINGS}


def scaled(features: Features) -> Features:
    """Multiply all embeddings by 3."""
    return _embeddings(features, lambda h: FACTOR * h)


def moved(features: Features) -> Features:
    """Add the same vector to all embeddings."""
    return _embeddings(features, lambda h: h + torch.linspace(-4, 5, h.shape[1], dtype=torch.float64))


def rotated(features: Features) -> Features:
    """Rotate embeddings and classifier together."""
    dim = features["classifier"].shape[1]
    generator = torch.Generator().manual_seed(dim)
    turn = torch.linalg.qr(torch.randn(dim, dim, generator=generator, dtype=torch.float64)).Q
    return _embeddings(features, lambda h: h @ turn) | {"classifier": features["classifier"] @ turn}


def rounded(features: Features) -> Features:
    """Round all numbers to float32."""
    return _numbers(features, lambda x: x.float())


def without(features: Features, samples: Tensor) -> Features:
    """Remove the training samples at which ``samples`` is True."""
    return features | {name: features[name][~samples] for name in ("train_features", "train_labels")}


def relabelled(features: Features) -> Features:
    """Give the classes other ids, in another order and with gaps, like token ids.

    The bias of unused ids is so low that they are never predicted and do not affect the loss.
    """
    ids = torch.randperm(_VOCABULARY, generator=torch.Generator().manual_seed(2))[: len(features["classifier"])]
    labels = {name: ids[features[name]] for name in ("train_labels", "validation_labels")}
    weight = features["classifier"].new_zeros(_VOCABULARY, features["classifier"].shape[1])
    bias = features["classifier_bias"].new_full((_VOCABULARY,), -1e6)
    weight[ids], bias[ids] = features["classifier"], features["classifier_bias"]
    return features | labels | {"classifier": weight, "classifier_bias": bias}


def unseen_label(features: Features) -> Features:
    """Remove the training samples that have the label of the first validation sample."""
    return without(features, features["train_labels"] == features["validation_labels"][0])


def simplex(classes: int, dim: int) -> Features:
    """Return features at full collapse, for classes ≤ dim.

    The means form an exact simplex, every sample equals its class mean, and the classifier's rows equal the means.
    """
    means = torch.zeros(classes, dim, dtype=torch.float64)
    means[:, :classes] = 10 * (torch.eye(classes, dtype=torch.float64) - 1 / classes)
    y = torch.arange(classes).repeat(4)
    samples = {f"{phase}_features": means[y] for phase in ("train", "validation")}
    orthogonal = torch.ones(1, dim, dtype=torch.float64)
    return samples | {"train_labels": y, "validation_labels": y, "classifier": means, "ood_features": orthogonal}


def degenerate() -> dict[str, Features]:
    """Return features of degenerate cases; each key describes the case, such as "all samples on one point".

    A metric must return a number or None for each case.
    """
    plain = draw(6, 4, 60, seed=9)
    h, y = plain["train_features"], plain["train_labels"]
    first = [int((y == c).nonzero()[0]) for c in range(6)]
    equal, central, zero_row = h.clone(), h.clone(), plain["classifier"].clone()
    equal[(y == 0) | (y == 1)] = h[first[0]]
    means = torch.stack([h[y == c].mean(dim=0) for c in range(6)])
    central[y == 2] += means[torch.arange(6) != 2].mean(dim=0) - means[2]
    zero_row[3] = 0
    return {
        "two classes": draw(2, 4, 30, seed=8),
        "one sample a class": plain | {"train_features": h[first], "train_labels": torch.arange(6)},
        "two classes without spread on one point": plain | {"train_features": equal},
        "a class mean at the global mean": plain | {"train_features": central},
        "a classifier row of zero": plain | {"classifier": zero_row},
        "all samples on one point": plain | {"train_features": h[:1].expand_as(h)},
        "one dimension": {name: t[:, :1] if t.dim() == 2 else t for name, t in plain.items()},
    }
