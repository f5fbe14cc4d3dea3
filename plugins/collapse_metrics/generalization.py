"""Generalization: how well the model predicts the validation text, from the same pass as NC4, and its size."""

import math
import sys

from torch import Tensor

from collapse import EmbeddingStatistics, Noted, hookimpl, metric
from collapse_metrics.nc4 import HITS, LOSS, by_block, validation


def loss_by_label(s: EmbeddingStatistics) -> tuple[Tensor, Tensor]:
    """Labels that occur in validation, and each one's mean cross-entropy in nats."""
    v = validation(s)
    occurs = v.counts > 0
    return v.classes[occurs], v.loss_sum[occurs] / v.counts[occurs]


@metric(
    "val_loss",
    needs=["validation"],
    headline=True,
    vector=loss_by_label,
    influence=by_block(LOSS),
    better="lower",
    source="of the model",
    equation="mean of −log softmax(Wh + b)_y",
    translation=False,
    scale=None,
)
def val_loss(s: EmbeddingStatistics) -> float:
    """Mean cross-entropy over the whole output vocabulary, nats a token.

    >>> import collapse.testing
    >>> val_loss(collapse.testing.tiny_statistics())
    1.5
    """
    v = validation(s)
    return float(v.loss_sum.sum()) / v.samples


@metric(
    "val_accuracy",
    needs=["validation"],
    influence=by_block(HITS),
    better="higher",
    source="of the model",
    equation="share of argmax_v ⟨w_v,h⟩+b_v = y",
    translation=False,
    scale=None,
)
def val_accuracy(s: EmbeddingStatistics) -> float:
    """Share of validation samples whose label is the argmax over the whole output vocabulary.

    >>> import collapse.testing
    >>> val_accuracy(collapse.testing.tiny_statistics())
    0.5
    """
    v = validation(s)
    return int(v.vocabulary_hits.sum()) / v.samples


@metric(
    "perplexity",
    needs=["validation"],
    better="lower",
    source="of the model",
    equation="exp(val_loss)",
    influence=lambda s: math.exp(val_loss(s)) * by_block(LOSS)(s),
    translation=False,
    scale=None,
)
def perplexity(s: EmbeddingStatistics) -> Noted | float:
    """exp of the validation loss in nats.

    >>> import collapse.testing
    >>> round(perplexity(collapse.testing.tiny_statistics()), 6)
    4.481689
    """
    loss = val_loss(s)
    if loss > math.log(sys.float_info.max):
        return Noted(None, f"exp({loss:.6g}) is beyond float64: read val_loss", "not_finite")
    return math.exp(loss)


@metric("n_params", needs=["n_params"], source="the model", equation="")
def n_params(s: EmbeddingStatistics) -> int:
    """Parameters of the model, tied weights counted once.

    >>> import collapse.testing
    >>> n_params(collapse.testing.tiny_statistics())
    100
    """
    assert s.n_params is not None  # declared in needs
    return s.n_params


@hookimpl
def collapse_metrics() -> list[object]:
    """The metrics of this file."""
    return [val_loss, val_accuracy, perplexity, n_params]
