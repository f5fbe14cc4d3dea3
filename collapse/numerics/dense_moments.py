"""Class moments of a known number of classes. Adding a batch never waits for a GPU; only reading the state does.

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
"""The label of samples that are skipped, as in ``torch.nn.functional.cross_entropy``."""


class DenseMoments:
    """Accumulate counts, means and summed squared deviations in one row per class; labels are 0 to C − 1.

    Sums are over δ = h − r, where r is the first sample of the class. So a batch costs few passes over its memory. The
    mean is r + Σδ/N, and the squared deviations from the mean sum to Σ‖δ‖² − ‖Σδ‖²/N. This is accurate, because r is
    about as far from the mean as the other samples. Equal samples have exactly the variance 0.
    """

    def __init__(self, classes: int, dim: int, device: str | torch.device = "cpu") -> None:
        self.classes = classes
        rows = classes + 2  # the last two are for labels out of range and for ignored samples; their sums are not used
        self._counts = torch.zeros(rows, dtype=torch.float64, device=device)
        self._references = torch.zeros(rows, dim, dtype=torch.float64, device=device)
        self._sums = torch.zeros_like(self._references)
        self._squares = torch.zeros(rows, dtype=torch.float64, device=device)
        self._labels = torch.zeros(rows, dtype=torch.int64, device=device)
        self._scratch = Scratch(dim, device)

    @torch.no_grad()
    def add(self, h_Bd: Float[Tensor, "B d"], y_B: Int[Tensor, " B"]) -> None:
        """Add a batch of embeddings of any float dtype, and skip samples with the label :data:`IGNORED`.

        Wrong labels and values are reported only by :meth:`state`.
        """
        C, unused = self.classes, self.classes + 1
        memory_Bd, references_Bd = self._scratch.rows(len(h_Bd))
        h_Bd = memory_Bd.copy_(h_Bd)
        given_B = y_B
        y_B = torch.where(y_B == IGNORED, unused, torch.where((y_B < 0) | (y_B >= C), C, y_B))
        self._labels.index_copy_(0, y_B, given_B)  # for the message about a label out of range
        at_B = torch.arange(len(y_B), device=y_B.device)
        first_B = at_B.new_zeros(C + 2).scatter_reduce_(0, y_B, at_B, "amin", include_self=False)[y_B]
        # the first sample of a new class writes its reference; the other samples write to the unused row
        row_B = torch.where((first_B == at_B) & (self._counts[y_B] == 0), y_B, unused)
        self._references.index_copy_(0, row_B, h_Bd)
        torch.index_select(self._references, 0, y_B, out=references_Bd)
        h_Bd -= references_Bd
        self._counts.index_add_(0, y_B, torch.ones_like(y_B, dtype=torch.float64))
        self._sums.index_add_(0, y_B, h_Bd)
        self._squares.index_add_(0, y_B, row_squares(h_Bd))

    def state(self) -> dict[str, Tensor]:
        """Return the classes seen so far, in the form of :meth:`collapse.numerics.class_moments.ClassMoments.state`.

        Raises:
            CollapseError: A label was out of range, or an embedding is not finite or too large.
        """
        refuse_labels(int(self._counts[self.classes]), int(self._labels[self.classes]), self.classes)
        classes = self._counts[: self.classes].nonzero().squeeze(1)
        counts, shift = self._counts[classes], self._sums[classes]
        squares = (self._squares[classes] - row_squares(shift) / counts).clamp_(min=0)
        means = self._references[classes] + shift.div_(counts.unsqueeze(1))
        wrong = ~((means.abs().amax(dim=1) < LARGEST) & (squares < LARGEST))
        if bool(wrong.any()):
            raise CollapseError(
                f"an embedding of class {int(classes[wrong][0])} is NaN, infinite or too large: check the model's "
                "weights and the samples of this class"
            )
        state = {"classes": classes, "counts": counts.long(), "means": means, "squares": squares}
        return {name: values.cpu() for name, values in state.items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Replace the current state by a result of :meth:`state`."""
        self._sums.zero_()
        for values, name in ((self._counts, "counts"), (self._references, "means"), (self._squares, "squares")):
            values.zero_()[state["classes"].to(values.device)] = state[name].to(values)


def refuse_labels(wrong: int, label: int, classes: int | None) -> None:
    """Raise CollapseError if ``wrong``, the number of invalid labels, is not 0.

    ``label`` is an example of these labels. ``classes`` is C, or None if C is unknown.
    """
    if wrong:
        where = "below 0" if classes is None else f"outside 0 to {classes - 1:,}"
        raise CollapseError(
            f"{counted(wrong, 'label')} {where}, such as {label}: count classes from 0, and use {IGNORED} to skip "
            "a sample"
        )
