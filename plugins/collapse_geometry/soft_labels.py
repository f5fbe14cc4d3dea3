"""Self-duality for soft labels: contexts that several tokens can follow."""

from collections.abc import Mapping

from torch import Tensor

from collapse import Noted, metric

COLLAPSE_OPT_IN = True


@metric("soft_labels.duality", towards=1, translation=False)
def soft_label_duality(
    centred_rows: Tensor, means: Tensor, counts: Tensor, covariance: Mapping[str, Tensor]
) -> Noted | Tensor:
    """Cosine of WᵀW, with centred rows, and the second moment of all embeddings, both d×d.

    If contexts have several next tokens, the unconstrained model has no simplex: W and the embeddings H have the same
    singular values, and WᵀW is proportional to HHᵀ. Then the value is 1, and so at full collapse with global mean 0.

    Equation: ⟨WᵀW, E[hhᵀ]⟩_F / (‖WᵀW‖_F ‖E[hhᵀ]‖_F)
    Source: follows from the solution of Zhao et al. 2024; every sample is a context of weight 1/N

    >>> import dataclasses, torch
    >>> from collapse.testing import statistics_of, value
    >>> s = statistics_of([[1.0, 0.0], [-1.0, 0.0]], [[2.0, 0.0], [-2.0, 0.0]])
    >>> held = {"scatter": torch.tensor([[0.0, 0.0], [0.0, 2.0]]).double(), "samples": torch.tensor([2])}
    >>> round(value(soft_label_duality, dataclasses.replace(s, extra={"covariance": held})), 12)  # E[hhᵀ] = I
    0.707106781187
    """
    rows_dd = centred_rows.T @ centred_rows
    second_dd = covariance["scatter"] / covariance["samples"] + (means.T * (counts / counts.sum())) @ means
    size = rows_dd.norm() * second_dd.norm()
    if not size:
        return Noted(None, "all classifier rows are equal, or all embeddings are 0")
    return (rows_dd * second_dd).sum() / size
