"""How a model makes its logits from the output embedding."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Logits:
    """The formula for logits: cap · tanh(scale · z / cap) or, without a cap, scale · z, where z = ⟨w, h⟩ + b.

    A cap preserves the order of logits, and so decisions, but changes probabilities and the loss.

    Attributes:
        scale: The constant factor.
        cap: The bound on the absolute value of logits, or None.
    """

    scale: float = 1.0
    cap: float | None = None

    def capped(self, z: Tensor) -> Tensor:
        """Return cap · tanh(z / cap) or, without a cap, z. The given z must already be multiplied by the scale.

        >>> import torch
        >>> Logits(cap=30.0).capped(torch.tensor([3.0, 3000.0]))
        tensor([ 2.9900, 30.0000])
        """
        return z if self.cap is None else (z / self.cap).tanh_().mul_(self.cap)

    def scaled(self, rows: Tensor) -> Tensor:
        """Return rows or biases of the output embedding times the scale, in float64; unchanged if the scale is 1."""
        return rows if self.scale == 1 else rows.double() * self.scale

    def record(self) -> dict[str, Any]:
        """Return the entries of a store's identity: the scale if it is not 1, and the cap if there is one."""
        return {name: value for name, value in vars(self).items() if value != getattr(Logits, name)}


LINEAR = Logits()
"""Logits that are ⟨w, h⟩ + b."""
