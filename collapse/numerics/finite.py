"""Check that values are finite and that their squares do not overflow."""

import torch
from jaxtyping import Float
from torch import Tensor

from collapse.errors import CollapseError

LARGEST = 1e150
"""Values must be smaller than this: float64 squares overflow from 1e154 on."""


class NotFinite(CollapseError):
    """An embedding is NaN, infinite or so large that its square overflows.

    Attributes:
        row: The embedding's row in the batch.
        wrong: What is wrong with the embedding.
    """

    def __init__(self, row: int, wrong: str = "NaN or infinite") -> None:
        super().__init__(f"the embedding of sample {row} is {wrong}: check the model's weights and this sample")
        self.row, self.wrong = row, wrong


def largest(values: Tensor) -> float:
    """Return the largest magnitude, in one pass; nan if any value is nan, 0 if there are no values."""
    if not values.numel():
        return 0.0
    low, high = torch.aminmax(values)
    return float(torch.maximum(-low, high))


def check_finite(h_Bd: Float[Tensor, "B d"]) -> None:
    """Raise :class:`NotFinite` if an embedding is NaN, infinite or so large that its square overflows."""
    if not largest(h_Bd) < LARGEST:  # also for NaN
        raise NotFinite(*_first_bad(h_Bd))


def check_classifier(weight: Float[Tensor, "V d"], bias: Float[Tensor, " V"] | None) -> None:
    """Check an output embedding for values that are NaN, infinite or so large that their squares overflow.

    Raises:
        CollapseError: There is such a value; the message names the weight or the bias and the row, which is the class
            id.
    """
    for name, values in (("the classifier's weight", weight), ("the classifier's bias", bias)):
        if values is not None and not largest(values) < LARGEST:
            row, wrong = _first_bad(values.reshape(len(values), -1))
            raise CollapseError(
                f"row {row} of {name} is {wrong}, so class {row} cannot be predicted: correct the classifier"
            )


def _first_bad(rows: Tensor) -> tuple[int, str]:
    """Return the first row with a value that is not below :data:`LARGEST`, and what is wrong with it."""
    row = int((~(rows.abs() < LARGEST)).any(dim=1).nonzero()[0])
    if not bool(torch.isfinite(rows[row]).all()):
        return row, "NaN or infinite"
    return row, f"too large ({float(rows[row].abs().max()):.3g}; values must be below {LARGEST:.0e})"
