"""Generalization: how well the model predicts the validation text, from the same pass as NC4, and its size."""

import math
import sys

from torch import Tensor

from collapse import Noted, ValidationStatistics, metric
from collapse_metrics.nc4 import HITS, LOSS, by_block


def loss_by_label(validation: ValidationStatistics) -> tuple[Tensor, Tensor]:
    """Labels that occur in validation, and each one's mean cross-entropy in nats."""
    occurs = validation.counts > 0
    return validation.classes[occurs], validation.loss_sum[occurs] / validation.counts[occurs]


@metric(
    "val_loss",
    headline=True,
    vector=loss_by_label,
    influence=by_block(LOSS),
    better="lower",
    translation=False,
    scale=None,
)
def val_loss(validation: ValidationStatistics) -> float:
    """Mean cross-entropy over the whole output vocabulary, nats a token.

    Equation: mean of −log softmax(Wh + b)_y
    Source: of the model

    >>> from collapse.testing import tiny_statistics, value
    >>> value(val_loss, tiny_statistics())
    1.5
    """
    return float(validation.loss_sum.sum()) / validation.samples


@metric("val_accuracy", influence=by_block(HITS), better="higher", translation=False, scale=None)
def val_accuracy(validation: ValidationStatistics) -> float:
    """Share of validation samples whose label is the argmax over the whole output vocabulary.

    Equation: share of argmax_v ⟨w_v,h⟩+b_v = y
    Source: of the model

    >>> from collapse.testing import tiny_statistics, value
    >>> value(val_accuracy, tiny_statistics())
    0.5
    """
    return int(validation.vocabulary_hits.sum()) / validation.samples


def influence_on_perplexity(validation: ValidationStatistics, val_loss: float) -> Tensor:
    """Influence of each block on exp(val_loss), exp(val_loss) times that on val_loss."""
    return math.exp(val_loss) * by_block(LOSS)(validation)


@metric("perplexity", better="lower", influence=influence_on_perplexity, translation=False, scale=None)
def perplexity(val_loss: float) -> Noted | float:
    """exp of the validation loss in nats.

    Equation: exp(val_loss)
    Source: of the model

    >>> round(perplexity(1.5), 6)
    4.481689
    """
    if val_loss > math.log(sys.float_info.max):
        return Noted(None, f"exp({val_loss:.6g}) is beyond float64: read val_loss", "not_finite")
    return math.exp(val_loss)


@metric("n_params")
def n_params(n_params: int) -> int:
    """Parameters of the model, tied weights counted once.

    Source: the model

    >>> n_params(100)
    100
    """
    return n_params
