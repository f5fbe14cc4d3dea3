"""Self-duality for soft labels: contexts that several tokens can follow."""

from torch import Tensor

from collapse import Noted, metric
from collapse_metrics.covariance import second_moment as second_moment  # the name of a parameter below

COLLAPSE_OPT_IN = True


@metric("soft_labels.duality", towards=1, translation=False)
def soft_label_duality(centred_rows: Tensor, second_moment: Tensor) -> Noted | Tensor:
    """Cosine of two d×d matrices: WᵀW of the centred rows of the C classes, and the second moment of all embeddings.

    If contexts have several next tokens, the class means in the unconstrained features model do not form a simplex. But
    with weight decay on W and the features H, the critical points of this model have WᵀW ∝ HHᵀ for any labels. At
    these points, the value is 1. At full collapse, the value is 1 if the global mean is 0.

    Equation: ⟨WᵀW, E[hhᵀ]⟩_F / (‖WᵀW‖_F ‖E[hhᵀ]‖_F)
    Source: after Zhao et al. 2024; every sample is a context

    >>> import dataclasses, torch
    >>> s = statistics_of([[1.0, 0.0], [-1.0, 0.0]], [[2.0, 0.0], [-2.0, 0.0]])
    >>> held = {"scatter": torch.tensor([[0.0, 0.0], [0.0, 2.0]]).double(), "samples": torch.tensor([2])}
    >>> round(value(soft_label_duality, dataclasses.replace(s, extra={"covariance": held})), 12)  # E[hhᵀ] = I
    0.707106781187
    """
    rows_dd = centred_rows.T @ centred_rows
    size = rows_dd.norm() * second_moment.norm()
    if not size:
        return Noted(None, "all classifier rows are equal, or all embeddings are 0")
    return (rows_dd * second_moment).sum() / size
