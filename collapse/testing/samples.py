"""Samples for the tests of plugin authors: statistics with known values, random features, random results."""

from collections.abc import Sequence

import torch

from collapse.results import Results, Row
from collapse.statistics import EmbeddingStatistics, ValidationStatistics


def tiny_statistics() -> EmbeddingStatistics:
    """Three classes in two dimensions and four validation samples: numbers small enough to check by hand."""
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
            chunk_totals=torch.tensor([[4.0, 3.0, 2.0, 6.0]], dtype=torch.float64),
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


def random_features(
    classes: int, dim: int, samples: int, *, spread: float = 0.5, seed: int = 0
) -> dict[str, torch.Tensor]:
    """A features set (train and validation embeddings, labels, a classifier), every class occurring.

    Args:
        classes: C.
        dim: d.
        samples: Training samples, at least C; a quarter as many for validation.
        spread: Standard deviation within a class, in every dimension; between classes it is 1.
        seed: For the generator.
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


def random_results(rows: int, measurements: Sequence[str], *, seed: int = 0) -> Results:
    """A results table of models that can be compared: the same texts, chunk length and dtype.

    Args:
        rows: How many models.
        measurements: Names of the columns, each of positive random numbers; ``val_loss`` is added.
        seed: For the generator.
    """
    draw = torch.Generator().manual_seed(seed)
    names = list(dict.fromkeys([*measurements, "val_loss"]))
    values = torch.rand(rows, len(names), generator=draw, dtype=torch.float64) + 0.5
    return Results(
        Row(
            model=f"models/{index}",
            revision=None,
            corpus="text",
            store=f"{index:064x}",
            min_count=1,
            classes=50 + index,
            dim=8,
            samples=1000 + index,
            measurements=dict(zip(names, values[index].tolist(), strict=True)),
            versions=dict.fromkeys(names, 1),
            validation="validation text",
            chunk_length=16,
            dtype="float32",
            corpus_id="c" * 64,
            validation_id="d" * 64,
        )
        for index in range(rows)
    )
