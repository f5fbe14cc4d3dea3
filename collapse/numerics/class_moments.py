"""Accumulate batches of embeddings (h, y) into class moments, in one pass; accumulators can be merged.

Every batch gives class counts, batch means and squared deviations from the *batch* mean. Two sides are merged with the
update of Chan, Golub & LeVeque (1983), which is accurate even if the variance is 1e-10 of ‖μ‖²; the difference
E‖h‖² − ‖μ‖² would lose all digits. No one-hot matrix is formed: the code uses scatter-adds over the occurring classes.

Shapes: B samples of a batch, K classes of a batch, C classes seen so far, d dimensions.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from collapse.numerics.finite import LARGEST, check_finite, largest, within_range
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.plugin.batch import Batch, Side
from collapse.plugin.filling import Filled
from collapse.plugin.statistic import Statistic

_CONSTANT = 1e-9  # the mean of a class with a smaller spread, relative to the mean, is corrected


class Labels(NamedTuple):
    """The labels of a batch by class; all layers share them.

    Attributes:
        y: Labels, shape (B,).
        classes: Distinct labels, ascending, shape (K,).
        inverse: Row of each label in ``classes``, shape (B,).
        counts: Samples per class, shape (K,).
    """

    y: Int[Tensor, " B"]
    classes: Int[Tensor, " K"]
    inverse: Int[Tensor, " B"]
    counts: Int[Tensor, " K"]

    @classmethod
    @torch.inference_mode()  # so that torch refuses a write by a statistic
    def of(cls, y_B: Int[Tensor, " B"], device: str | torch.device) -> "Labels":
        """Sort labels, on the device of the sums."""
        y_B = y_B.to(device, copy=True)
        return cls(y_B, *torch.unique(y_B, return_inverse=True, return_counts=True))


class Scratch:
    """Memory for the embeddings and deviations of a batch; allocating it for each would cost more than the arithmetic.

    The accumulators of several layers may share it.
    """

    def __init__(self, dim: int, device: str | torch.device, arrays: int = 2) -> None:
        self._memory = torch.empty(arrays, 0, dim, dtype=torch.float64, device=device)

    def rows(self, count: int) -> Tensor:
        """Return uninitialized memory, shape (arrays, count, d), which the next batch reuses."""
        arrays, rows, dim = self._memory.shape
        if count > rows:
            self._memory = self._memory.new_empty(arrays, count, dim)
        return self._memory[:, :count]


class ClassMoments:
    """Counts, means and summed squared deviations of the classes seen so far, and the plugin statistics.

    Rows are stored in the order in which classes were first seen, with spare capacity. So the cost of a batch or a
    merge depends only on the classes in it.
    """

    def __init__(self, dim: int, device: str | torch.device = "cpu", filled: Filled | None = None) -> None:
        self.dim = dim
        self.device = torch.device(device)
        self.filled = Filled() if filled is None else filled
        self._used = 0
        self._classes = torch.empty(0, dtype=torch.int64, device=device)
        self._counts = torch.empty(0, dtype=torch.int64, device=device)
        self._means = torch.empty(0, dim, dtype=torch.float64, device=device)
        self._squares = torch.empty(0, dtype=torch.float64, device=device)
        self._row_of = torch.full((0,), -1, dtype=torch.int64, device=device)
        self.scratch = Scratch(dim, self.device)

    def add(self, h_Bd: Float[Tensor, "B d"], y_B: Int[Tensor, " B"] | Labels) -> None:
        """Add a batch of embeddings of any float dtype with their labels, which may already be sorted.

        Raises:
            NotFinite: An embedding is NaN or infinite; the message and ``error.row`` give its row.
        """
        batch, squares_K = self._by_class(h_Bd, y_B if isinstance(y_B, Labels) else Labels.of(y_B, self.device))
        before = self._merge(batch.side, squares_K)
        if self.filled:
            self.filled.take(batch, before)

    @torch.inference_mode()  # so that torch refuses a write by a statistic
    def _by_class(self, h_Bd: Tensor, labels: Labels) -> tuple[Batch, Tensor]:
        """Return a batch by class, in memory that the next batch reuses, and the squared deviations of each class."""
        memory_Bd, deviations_Bd = self.scratch.rows(len(h_Bd))
        h_Bd = memory_Bd.copy_(h_Bd)
        y_B, classes_K, inverse_B, counts_K = labels
        means_Kd = h_Bd.new_zeros(len(classes_K), self.dim)
        means_Kd.index_add_(0, inverse_B, h_Bd).div_(counts_K.unsqueeze(1))
        size = largest(means_Kd)
        # this memory first holds each sample's class mean, then the deviation from it
        torch.index_select(means_Kd, 0, inverse_B, out=deviations_Bd)
        torch.sub(h_Bd, deviations_Bd, out=deviations_Bd)
        squares_K = h_Bd.new_zeros(len(classes_K))
        squares_K.index_add_(0, inverse_B, row_squares(deviations_Bd))
        # The condition also holds for NaN. If only the squares are large, check_finite() finds every embedding valid.
        if not (size < LARGEST and within_range(squares_K)):
            check_finite(h_Bd)
        if _may_be_constant(squares_K, counts_K, self.dim * size**2):
            self._average_again(means_Kd, deviations_Bd, squares_K, inverse_B, counts_K)
        batch = Batch(
            h=h_Bd,
            y=y_B,
            classes=classes_K,
            inverse=inverse_B,
            counts=counts_K,
            means=means_Kd,
            deviations=deviations_Bd,
        )
        return batch, squares_K

    def _average_again(
        self, means_Kd: Tensor, deviations_Bd: Tensor, squares_K: Tensor, inverse_B: Tensor, counts_K: Tensor
    ) -> None:
        """Correct the rounding error of the means of classes whose samples are almost equal.

        The mean of n equal samples has a rounding error of up to n·ε/2, which could dominate its distance to another
        such class. Deviations from this mean are exact, so adding their mean corrects it.
        """
        constant_K = (squares_K <= counts_K * _CONSTANT**2 * row_squares(means_Kd)) & (counts_K > 1)
        if not bool(constant_K.any()):
            return
        here = constant_K[inverse_B].nonzero().squeeze(1)
        which = inverse_B[here]
        correction_Kd = torch.zeros_like(means_Kd).index_add_(0, which, deviations_Bd[here])
        correction_Kd /= counts_K.unsqueeze(1)
        means_Kd += correction_Kd
        deviations_Bd[here] -= correction_Kd[which]
        squares_K[constant_K] = 0
        squares_K.index_add_(0, which, row_squares(deviations_Bd[here]))

    def merge(self, other: "ClassMoments") -> None:
        """Merge another accumulator, as if its samples had been added here."""
        used = other._used
        side = Side(classes=other._classes[:used], counts=other._counts[:used].double(), means=other._means[:used])
        before = self._merge(side, other._squares[:used])
        if self.filled:
            self.filled.merge(other.filled, before, side)

    def _merge(self, theirs: Side, squares_K: Tensor) -> Side:
        """Merge counts, means and squares; return the counts and means from before, which statistics need."""
        rows_K = self._ensure_rows(theirs.classes)
        before_counts_K = self._counts[rows_K].double()
        before_means_Kd = self._means.index_select(0, rows_K)
        total_K = before_counts_K + theirs.counts
        share_K = theirs.counts / total_K
        delta_Kd = theirs.means - before_means_Kd
        # Chan et al. 1983: M2 = M2a + M2b + ‖δ‖² na nb / n, mean = mean_a + δ nb / n, with share_K = nb / n.
        # A new class has na = 0 and mean_a = 0, so it gets exactly the other mean.
        self._squares[rows_K] += squares_K + row_squares(delta_Kd) * (before_counts_K * share_K)
        self._means[rows_K] = torch.addcmul(before_means_Kd, delta_Kd, share_K.unsqueeze(1), out=delta_Kd)
        self._counts[rows_K] = total_K.long()
        return Side(classes=theirs.classes, counts=before_counts_K, means=before_means_Kd)

    def _ensure_rows(self, classes_K: Tensor) -> Tensor:
        """Add the classes that are missing, and return the row of each class; rows are in the order of adding."""
        top = int(classes_K.max()) if len(classes_K) else -1
        if top >= len(self._row_of):
            self._row_of = _grown(self._row_of, top + 1, fill=-1)
        rows_K = self._row_of[classes_K]
        new = classes_K[rows_K < 0]
        if len(new):
            start, self._used = self._used, self._used + len(new)
            if self._used > len(self._classes):
                capacity = max(self._used, len(self._classes) * 3 // 2, 1024)
                self._classes, self._counts = _grown(self._classes, capacity), _grown(self._counts, capacity)
                self._means, self._squares = _grown(self._means, capacity), _grown(self._squares, capacity)
            self._classes[start : self._used] = new
            self._row_of[new] = torch.arange(start, self._used, device=self.device)
            rows_K = self._row_of[classes_K]
        return rows_K

    def state(self) -> dict[str, Tensor]:
        """Return the complete state, classes ascending, for a partial file; :meth:`from_state` restores it exactly."""
        classes, order = self._classes[: self._used].sort()
        state = {
            "classes": classes,
            "counts": self._counts[order],
            "means": self._means[order],
            "squares": self._squares[order],
        }
        state |= self.filled.state()
        return {key: value.cpu().contiguous() for key, value in state.items()}

    @classmethod
    def from_state(
        cls, state: Mapping[str, Tensor], device: str | torch.device, kinds: Sequence[type[Statistic]]
    ) -> "ClassMoments":
        """Restore an accumulator from :meth:`state`, with these statistics."""
        made = cls(state["means"].shape[1], device, Filled.from_state(state, device, kinds))
        made._ensure_rows(state["classes"].to(device))
        made._counts[: made._used] = state["counts"].to(device)
        made._means[: made._used] = state["means"].to(device)
        made._squares[: made._used] = state["squares"].to(device)
        return made

    def statistics_so_far(self) -> EmbeddingStatistics:
        """Return the class statistics, classes ascending."""
        state = self.state()
        return EmbeddingStatistics(
            classes=state["classes"],
            counts=state["counts"],
            means=state["means"],
            variances=state["squares"] / state["counts"],
            extra=self.filled.tensors(),
            versions=self.filled.versions,
            makers=self.filled.makers,
        )


def _may_be_constant(squares_K: Tensor, counts_K: Tensor, most: float) -> bool:
    """Whether a class may need :meth:`ClassMoments._average_again`: a quick test, because few batches have one.

    It selects every class that the exact test in ``_average_again`` selects, since ‖μ‖² ≤ ``most`` = d·size².
    """
    # double(): integers times a Python float give float32, in which the square of a small size underflows to 0
    return bool(((squares_K <= counts_K.double() * (_CONSTANT**2 * most)) & (counts_K > 1)).any())


def row_squares(rows_nd: Tensor) -> Tensor:
    """‖row‖², several times as fast as a sum of products."""
    return torch.linalg.vector_norm(rows_nd, dim=1).square_()


def _grown(tensor: Tensor, length: int, fill: int = 0) -> Tensor:
    grown = tensor.new_full((length, *tensor.shape[1:]), fill)
    grown[: len(tensor)] = tensor
    return grown
