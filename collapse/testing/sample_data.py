"""Sample data for testing plugins: statistics with known values, random features."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from collapse.numerics.pair_fields import ClassGeometry, Tile
from collapse.numerics.statistics import EmbeddingStatistics, ValidationStatistics
from collapse.numerics.values import plain, values_of
from collapse.plugin.parameters import functions_of_pairs, of_tiles


def statistics_of(
    means: Sequence[Sequence[float]] | Tensor, classifier: Sequence[Sequence[float]] | Tensor | None = None
) -> EmbeddingStatistics:
    """Return statistics with one sample per class, so all variances are 0.

    ``means`` and ``classifier`` have shape (C, d). If ``classifier`` is None, the statistics have no classifier.

    >>> statistics_of([[1.0, 0.0], [-1.0, 0.0]]).n_classes
    2
    """
    means_Cd = torch.as_tensor(means, dtype=torch.float64)
    C = len(means_Cd)
    return EmbeddingStatistics(
        classes=torch.arange(C),
        counts=torch.ones(C, dtype=torch.int64),
        means=means_Cd,
        variances=torch.zeros(C, dtype=torch.float64),
        classifier=None if classifier is None else torch.as_tensor(classifier, dtype=torch.float64),
    )


def two_classes(
    distance: int | float, variances: tuple[int | float, int | float], samples: int = 3
) -> EmbeddingStatistics:
    """Return statistics of two classes in one dimension; the class means are 0 and ``distance``.

    Each class has ``samples`` samples. The statistics include the plugin statistic ``covariance``.

    >>> two_classes(4, (1, 3)).means.tolist()
    [[0.0], [4.0]]
    """
    counts, variances_C = torch.full((2,), samples), torch.tensor(variances, dtype=torch.float64)
    covariance = {"scatter": (counts * variances_C).sum().view(1, 1), "samples": counts.sum().view(1)}
    made = statistics_of([[0.0], [float(distance)]])
    return replace(made, counts=counts, variances=variances_C, extra={"covariance": covariance})


def value(function: Callable[..., Any], s: EmbeddingStatistics) -> Any:
    """Return the result of a plugin's function for the statistics ``s``, computed as when a store is measured.

    Numbers are returned as Python numbers, values of classes or of all pairs as a tensor. The remark of a
    :class:`collapse.Noted` is dropped.

    >>> from collapse_metrics.nc1 import cdnv_ratio
    >>> value(cdnv_ratio, two_classes(4, (1, 5)))
    0.1875
    """
    values = values_of(s)
    if of_tiles(function):
        everything = slice(0, s.n_classes)
        tile = Tile(ClassGeometry(values.s), values, everything, everything, kept=functions_of_pairs(function))
        found = tile.value(function)
    else:
        found = values.value(function)
    found = plain(found)
    return found.item() if isinstance(found, Tensor) and not found.dim() else found


def tiny_statistics() -> EmbeddingStatistics:
    """Return statistics of three classes in two dimensions with four validation samples, to check by hand."""
    means = torch.tensor([[2.0, 0.0], [0.0, 2.0], [-2.0, -2.0]], dtype=torch.float64)
    return EmbeddingStatistics(
        classes=torch.tensor([0, 1, 3]),
        counts=torch.tensor([4, 2, 2]),
        means=means,
        variances=torch.tensor([1.0, 0.5, 0.25], dtype=torch.float64),
        classifier=means / 2,
        validation=ValidationStatistics(
            classes=torch.tensor([0, 1]),
            counts=torch.tensor([2, 2]),
            agreements=torch.tensor([2, 1]),
            linear_hits=torch.tensor([1, 1]),
            ncc_hits=torch.tensor([2, 1]),
            vocabulary_hits=torch.tensor([1, 1]),
            linear_predictions=torch.tensor([2, 2]),
            ncc_predictions=torch.tensor([3, 1]),
            loss_sum=torch.tensor([2.0, 4.0], dtype=torch.float64),
            # samples, agreements, vocabulary hits, loss, number of the block
            block_totals=torch.tensor([[4.0, 3.0, 2.0, 6.0, 0.0]], dtype=torch.float64),
            argmax_without_mean=torch.tensor([0]),
        ),
        extra={
            "covariance": {
                "scatter": torch.tensor([[4.0, 0.0], [0.0, 1.5]], dtype=torch.float64),
                "samples": torch.tensor([8]),
            }
        },
        n_params=100,
    )


def random_features(classes: int, dim: int, samples: int, *, spread: float = 0.5, seed: int = 0) -> dict[str, Tensor]:
    """Draw float32 features: embeddings and labels for training and validation, and a classifier of shape (C, d).

    The keys are ``train_features``, ``train_labels``, ``validation_features``, ``validation_labels`` and
    ``classifier``. Every class occurs in training, but not always in validation.

    Args:
        classes: Number of classes C.
        dim: Number of dimensions d.
        samples: Number of training samples, at least C; validation has a quarter as many, at least 1.
        spread: Standard deviation within a class, in every dimension. The standard deviation of class means is 1.
        seed: Seed of the generator.
    """
    draw = torch.Generator().manual_seed(seed)
    means = torch.randn(classes, dim, generator=draw)
    labels = torch.cat([torch.arange(classes), torch.randint(classes, (samples - classes,), generator=draw)])
    validation = torch.randint(classes, (max(1, samples // 4),), generator=draw)
    return {
        "train_features": means[labels] + spread * torch.randn(samples, dim, generator=draw),
        "train_labels": labels,
        "validation_features": means[validation] + spread * torch.randn(len(validation), dim, generator=draw),
        "validation_labels": validation,
        "classifier": means + 0.3 * torch.randn(classes, dim, generator=draw),
    }
