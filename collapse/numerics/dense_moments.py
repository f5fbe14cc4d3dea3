"""Class moments of a known number of classes, which only queue work on a GPU: no number is read before :meth:`state`.

Shapes: B samples of a batch, C classes, d dimensions.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor

from collapse.errors import CollapseError, counted
from collapse.numerics.class_moments import Scratch, row_squares
from collapse.numerics.finite import LARGEST

IGNORED = -100
"""The label of samples that are left out, as in ``torch.nn.functional.cross_entropy``."""


class DenseMoments:
    """Counts, means and summed squared deviations with a row per class.

    A batch is added by the shifted form of Chan, Golub & LeVeque (1983): with the deviations δ of its samples from the
    class's mean so far, mean += Σδ/N and squares += Σ‖δ‖² − ‖Σδ‖²/N. The first sample is the first mean. So equal
    samples have exactly the variance 0.

    Args:
        classes: C; labels are 0 to C − 1.
        dim: d.
        device: Device of the sums.
    """

    def __init__(self, classes: int, dim: int, device: str | torch.device = "cpu") -> None:
        self.classes = classes
        rows = classes + 2  # the last two: of labels out of range, and of ignored samples, whose numbers are not used
        self._counts = torch.zeros(rows, dtype=torch.float64, device=device)
        self._means = torch.zeros(rows, dim, dtype=torch.float64, device=device)
        self._squares = torch.zeros(rows, dtype=torch.float64, device=device)
        self._labels = torch.zeros(rows, dtype=torch.int64, device=device)
        self._scratch = Scratch(dim, device, arrays=3)

    @torch.no_grad()
    def add(self, h_Bd: Float[Tensor, "B d"], y_B: Int[Tensor, " B"]) -> None:
        """Add a batch of embeddings of any float dtype; wrong values are reported by :meth:`state`."""
        C, unused = self.classes, self.classes + 1
        memory_Bd, before_Bd, sums_Bd = self._scratch.rows(len(h_Bd))
        h_Bd = memory_Bd.copy_(h_Bd)
        given_B = y_B
        y_B = torch.where(y_B == IGNORED, unused, torch.where((y_B < 0) | (y_B >= C), C, y_B))
        self._labels.index_copy_(0, y_B, given_B)  # to name a label that is out of range
        at_B = torch.arange(len(y_B), device=y_B.device)
        first_B = at_B.new_zeros(C + 2).scatter_reduce_(0, y_B, at_B, "amin", include_self=False)[y_B]
        # each class of the batch is written once, by its first sample; the other samples write to the unused row
        row_B = torch.where(first_B == at_B, y_B, unused)
        self._means.index_copy_(0, torch.where(self._counts[row_B] == 0, row_B, unused), h_Bd)
        self._counts.index_add_(0, y_B, torch.ones_like(y_B, dtype=torch.float64))
        torch.index_select(self._means, 0, y_B, out=before_Bd)
        h_Bd -= before_Bd
        sums_Bd.zero_().index_add_(0, first_B, h_Bd)
        share_B = self._counts[row_B].reciprocal()
        self._squares.index_add_(0, y_B, row_squares(h_Bd))
        self._squares.index_add_(0, row_B, -row_squares(sums_Bd) * share_B)
        self._means.index_copy_(0, row_B, before_Bd.addcmul_(sums_Bd, share_B.unsqueeze(1)))

    def state(self) -> dict[str, Tensor]:
        """Return the classes seen so far, as :meth:`collapse.numerics.class_moments.ClassMoments.state`.

        Raises:
            CollapseError: A label was out of range, or an embedding is not finite or too large.
        """
        refuse_labels(int(self._counts[self.classes]), int(self._labels[self.classes]), self.classes)
        classes = self._counts[: self.classes].nonzero().squeeze(1)
        means, squares = self._means[classes], self._squares[classes].clamp_(min=0)
        wrong = ~((means.abs().amax(dim=1) < LARGEST) & (squares < LARGEST))
        if bool(wrong.any()):
            raise CollapseError(
                f"an embedding of class {int(classes[wrong][0])} is NaN, infinite or too large: check the model's "
                "weights and the samples of this class"
            )
        state = {"classes": classes, "counts": self._counts[classes].long(), "means": means, "squares": squares}
        return {name: values.cpu() for name, values in state.items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Replace everything by the result of :meth:`state`."""
        for name in ("counts", "means", "squares"):
            values: Tensor = getattr(self, f"_{name}").zero_()
            values[state["classes"].to(values.device)] = state[name].to(values)


def refuse_labels(wrong: int, label: int, classes: int | None) -> None:
    """Raise CollapseError if some labels are no class, such as ``label``; ``classes`` is None if it is unknown."""
    if wrong:
        where = "below 0" if classes is None else f"outside 0 to {classes - 1:,}"
        raise CollapseError(
            f"{counted(wrong, 'label')} {where}, such as {label}: labels count from 0; the label {IGNORED} leaves a "
            "sample out"
        )
