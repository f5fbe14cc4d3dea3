"""How the geometry of class means changes from one checkpoint, or layer, to the next."""

import torch
from torch import Tensor

from collapse import EmbeddingStatistics, Noted, metric

COLLAPSE_OPT_IN = True


@metric("transient.similarity", towards=1)
def similarity_to_previous(ids: Tensor, centred_means: Tensor, previous: EmbeddingStatistics) -> Noted | Tensor:
    """Linear CKA of the centred class means and those of the previous checkpoint or layer, in [0, 1].

    It is the cosine of the two Gram matrices, over the classes that both checkpoints (or layers) have. It is 1 if the
    means changed only by rotation, translation and scale. So it is also 1 if both are fully collapsed. Two independent
    sets of C uniform directions have a value of about 1/(1 + C/d), which is near 1 if there are far fewer classes than
    dimensions.

    Equation: ‖AᵀB‖_F² / (‖AᵀA‖_F ‖BᵀB‖_F)
    Source: Kornblith et al. 2019, Eq. 3; Gram matrices over training: Zhao, Papadimitriou & Thrampoulidis 2026

    >>> import dataclasses
    >>> before = statistics_of([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    >>> s = dataclasses.replace(statistics_of([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]]), previous=before)
    >>> round(value(similarity_to_previous, s), 12)  # 1/√2: one of two dimensions is left
    0.707106781187
    """
    common = torch.isin(ids, previous.classes)
    if common.sum() < 2:
        return Noted(None, "fewer than two classes are also in the previous row")
    a_Kd, b_Kd = centred_means[common], previous.keep(1, ids).centred_means
    a_Kd = a_Kd - a_Kd.mean(dim=0)
    size = (a_Kd.T @ a_Kd).norm() * (b_Kd.T @ b_Kd).norm()
    if not size:
        return Noted(None, "all class means are equal, in this or in the previous row")
    return (a_Kd.T @ b_Kd).square().sum() / size
