"""Generalization: how well the model predicts the validation text, from the same pass as NC4; and the model's size."""

import math
import sys

import torch
from torch import Tensor

from collapse import Noted, ValidationStatistics, ValidationTotals, metric


def loss_by_label(validation: ValidationStatistics) -> tuple[Tensor, Tensor]:
    """Labels that occur in validation, and the mean cross-entropy of each in nats."""
    occurs = validation.counts > 0
    return validation.classes[occurs], validation.loss_sum[occurs] / validation.counts[occurs]


@metric(
    "val_loss",
    headline=True,
    vector=loss_by_label,
    standard_error=True,
    better="lower",
    translation=False,
    scale=None,
)
def val_loss(chunks: ValidationTotals) -> Tensor:
    """Mean cross-entropy over the whole output vocabulary, nats per token.

    Equation: mean of −log softmax(Wh + b)_y
    Source: standard definition

    >>> value(val_loss, tiny_statistics())
    1.5
    """
    return chunks.loss / chunks.samples


@metric("val_accuracy", standard_error=True, better="higher", translation=False, scale=None)
def val_accuracy(chunks: ValidationTotals) -> Tensor:
    """Share of validation samples whose label is the argmax over the whole output vocabulary.

    Equation: share of argmax_v ⟨w_v,h⟩+b_v = y
    Source: standard definition

    >>> value(val_accuracy, tiny_statistics())
    0.5
    """
    return chunks.hits / chunks.samples


@metric("perplexity", standard_error=True, better="lower", translation=False, scale=None)
def perplexity(val_loss: Tensor) -> Noted | Tensor:
    """exp of the validation loss in nats.

    Equation: exp(val_loss)
    Source: standard definition

    >>> round(value(perplexity, tiny_statistics()), 6)
    4.481689
    """
    if val_loss > math.log(sys.float_info.max):
        return Noted(None, f"exp({float(val_loss):.6g}) is too large for float64: use val_loss", "not_finite")
    return torch.exp(val_loss)


@metric("n_params")
def parameters(n_params: int) -> int:
    """Number of parameters of the model; tied weights count once.

    Source: the model

    >>> value(parameters, tiny_statistics())
    100
    """
    return n_params
