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
    """Return the largest magnitude, in one pass; nan if any value is nan."""
    if not values.numel():
        return 0.0
    low, high = torch.aminmax(values)
    return float(torch.maximum(-low, high))


def within_range(values: Tensor) -> bool:
    """Whether every value is finite and below :data:`LARGEST`."""
    return largest(values) < LARGEST  # False for NaN


def check_finite(h_Bd: Float[Tensor, "B d"]) -> None:
    """Raise :class:`NotFinite` if an embedding is NaN, infinite or so large that its square overflows."""
    if not within_range(h_Bd) and (found := _first_bad(h_Bd)):
        raise NotFinite(*found)


def check_classifier(weight: Float[Tensor, "V d"], bias: Float[Tensor, " V"] | None) -> None:
    """Check an output embedding for values that are NaN, infinite or so large that their squares overflow.

    Raises:
        CollapseError: There is such a value; the message names the weight or the bias and the row, which is the class
            id.
    """
    for name, values in (("the classifier's weight", weight), ("the classifier's bias", bias)):
        if values is not None and not within_range(values) and (found := _first_bad(values.reshape(len(values), -1))):
            row, wrong = found
            raise CollapseError(
                f"row {row} of {name} is {wrong}, so class {row} cannot be predicted: correct the classifier"
            )


def _first_bad(rows: Tensor) -> tuple[int, str] | None:
    """Return the first row that is not :func:`within_range`, and what is wrong with it."""
    bad = (~(rows.abs() < LARGEST)).any(dim=1).nonzero()
    if not len(bad):
        return None
    row = int(bad[0])
    if not bool(torch.isfinite(rows[row]).all()):
        return row, "NaN or infinite"
    return row, f"too large ({float(rows[row].abs().max()):.3g}; values must be below {LARGEST:.0e})"
