"""Accumulate batches of embeddings (h, y) into class moments, in one pass; accumulators can be merged.

For each class of a batch, deviations are taken from a point between two means of the class: the mean in this batch, and
the mean over all earlier samples. This point is chosen so that the squared deviations add up to exactly the increase of
the class's sum of squares. Two accumulators are merged with the update of Chan, Golub & LeVeque (1983). Both methods
are accurate even if the variance is 1e-10 of ‖μ‖²; the difference E‖h‖² − ‖μ‖² would lose ten digits. No one-hot matrix
is formed: the code uses scatter-adds over the occurring classes.

Shapes: B samples of a batch, K classes of a batch, C classes seen so far, d dimensions.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from collapse.numerics.finite import LARGEST, check_finite, largest
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.plugin.plugin_statistics import PluginStatistics
from collapse.plugin.statistic import Batch, Side, Statistic

_PADDING = 8  # unused numbers per row; without them, if d is a power of 2, a column falls into few cache sets
_CONSTANT = 1e-9  # if a class's spread is below this share of its mean's norm, its mean is corrected


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
    @torch.no_grad()
    def of(cls, y_B: Int[Tensor, " B"], device: str | torch.device) -> "Labels":
        """Group labels by class, on the given device."""
        y_B = y_B.to(device, copy=True)
        return cls(y_B, *torch.unique(y_B, return_inverse=True, return_counts=True))


class Scratch:
    """Reusable memory for the embeddings and deviations of one batch.

    Allocating new memory for each batch would cost more than the arithmetic. The accumulators of several layers may
    share one ``Scratch``.
    """

    def __init__(self, dim: int, device: str | torch.device) -> None:
        self._first = torch.empty(0, dim, dtype=torch.float64, device=device)
        self._second = self._first.new_empty(0, dim + _PADDING)

    def rows(self, count: int) -> tuple[Tensor, Tensor]:
        """Return two uninitialized arrays of shape (count, d), which the next batch overwrites.

        The second array has gaps between its rows, because products of its columns are then faster.
        """
        if count > len(self._first):
            dim = self._first.shape[1]
            self._first, self._second = self._first.new_empty(count, dim), self._first.new_empty(count, dim + _PADDING)
        return self._first[:count], self._second[:count, : self._first.shape[1]]


class ClassMoments:
    """Counts, means and summed squared deviations of the classes seen so far, and the plugin statistics.

    Rows are stored in the order in which classes were first seen, with spare capacity. So the cost of a batch or a
    merge does not depend on the number of classes seen so far.
    """

    def __init__(
        self, dim: int, device: str | torch.device = "cpu", plugin_statistics: PluginStatistics | None = None
    ) -> None:
        self.dim = dim
        self.device = torch.device(device)
        self.plugin_statistics = PluginStatistics() if plugin_statistics is None else plugin_statistics
        self._used = 0
        self._classes = torch.empty(0, dtype=torch.int64, device=device)
        self._counts = torch.empty(0, dtype=torch.int64, device=device)
        self._means = torch.empty(0, dim, dtype=torch.float64, device=device)
        self._squares = torch.empty(0, dtype=torch.float64, device=device)
        self._row_of = torch.full((0,), -1, dtype=torch.int64, device=device)
        self.scratch = Scratch(dim, self.device)

    def add(self, h_Bd: Float[Tensor, "B d"], y_B: Int[Tensor, " B"] | Labels) -> None:
        """Add a batch of embeddings of any float dtype, with their labels or the :class:`Labels` that layers share.

        Raises:
            NotFinite: An embedding is NaN, infinite or too large; the message and ``error.row`` give its row.
        """
        labels = y_B if isinstance(y_B, Labels) else Labels.of(y_B, self.device)
        h_Bd = h_Bd.detach()
        magnitude = largest(h_Bd)
        if not magnitude < LARGEST:  # also for NaN
            check_finite(h_Bd)
        rows_K, before = self._ensure_rows_with_moments(labels.classes)
        batch, added_squares_K = self._batch_and_added_squares(h_Bd, labels, before, magnitude)
        self._update(rows_K, before, batch.side, added_squares_K)
        if self.plugin_statistics:
            self.plugin_statistics.take(batch)

    @torch.no_grad()
    def _batch_and_added_squares(
        self, h_Bd: Tensor, labels: Labels, before: Side, magnitude: float
    ) -> tuple[Batch, Tensor]:
        """Return the :class:`Batch`, and the increase of each class's sum of squares.

        The next batch overwrites the memory of this :class:`Batch`. ``before`` has the counts and means of the classes
        before this batch. ``magnitude`` is the largest magnitude of the embeddings.

        Let a class have n_b samples with mean m_b in the batch, and n_a samples with mean m_a before the batch. With
        n = n_a + n_b and δ = m_b − m_a, its scatter Σ(h − μ)(h − μ)ᵀ increases by
        Σ(h − m_b)(h − m_b)ᵀ + δδᵀ n_a n_b / n. This equals Σ(h − t)(h − t)ᵀ for t = m_b − √(n_a / n)·δ, so deviations
        are taken from t.
        """
        memory_Bd, deviations_Bd = self.scratch.rows(len(h_Bd))
        h_Bd = memory_Bd.copy_(h_Bd)
        y_B, classes_K, inverse_B, counts_K = labels
        means_Kd = h_Bd.new_zeros(len(classes_K), self.dim)
        means_Kd.index_add_(0, inverse_B, h_Bd).div_(counts_K.unsqueeze(1))
        root_share_K1 = (before.counts / (before.counts + counts_K)).sqrt_().unsqueeze(1)
        points_Kd = torch.lerp(means_Kd, before.means, root_share_K1)
        # this memory first holds the point t of each sample's class, then the deviation from it
        torch.index_select(points_Kd, 0, inverse_B, out=deviations_Bd)
        torch.sub(h_Bd, deviations_Bd, out=deviations_Bd)
        added_squares_K = h_Bd.new_zeros(len(classes_K))
        added_squares_K.index_add_(0, inverse_B, row_squares(deviations_Bd))
        batch = Batch(
            h=h_Bd,
            y=y_B,
            classes=classes_K,
            inverse=inverse_B,
            counts=counts_K,
            means=means_Kd,
            deviations=deviations_Bd,
        )
        if _may_be_constant(added_squares_K, counts_K, self.dim * magnitude**2):
            self._average_again(batch, added_squares_K, points_Kd, before.means, root_share_K1)
        return batch, added_squares_K

    def _average_again(
        self, batch: Batch, added_squares_K: Tensor, points_Kd: Tensor, before_Kd: Tensor, root_share_K1: Tensor
    ) -> None:
        """Correct, in place, the means, deviations and squares of classes whose samples are almost equal.

        ``points_Kd`` has the points t of :meth:`_batch_and_added_squares`, and ``root_share_K1`` has √(n_a / n).

        The mean of n equal samples has a relative rounding error of up to n·ε/2. This error could be larger than the
        distance to the mean of another such class. The point from which deviations are taken is so near to the samples
        that the deviations are exact. So this point plus the mean deviation is the exact mean.
        """
        constant_K = (added_squares_K <= batch.counts * _CONSTANT**2 * row_squares(batch.means)) & (batch.counts > 1)
        if not bool(constant_K.any()):
            return
        here = constant_K[batch.inverse].nonzero().squeeze(1)
        which = batch.inverse[here]
        sums_Kd = torch.zeros_like(batch.means).index_add_(0, which, batch.deviations[here])
        exact_Kd = points_Kd + sums_Kd / batch.counts.unsqueeze(1)
        batch.means[constant_K] = exact_Kd[constant_K]
        points_Kd = torch.lerp(batch.means, before_Kd, root_share_K1)
        batch.deviations[here] = batch.h[here] - points_Kd[which]
        added_squares_K[constant_K] = 0
        added_squares_K.index_add_(0, which, row_squares(batch.deviations[here]))

    def merge(self, other: "ClassMoments") -> None:
        """Merge another accumulator, as if its samples had been added here."""
        used = other._used
        side = Side(classes=other._classes[:used], counts=other._counts[:used].double(), means=other._means[:used])
        rows_K, before = self._ensure_rows_with_moments(side.classes)
        # Chan et al. 1983: M2 = M2a + M2b + ‖δ‖² na nb / n
        between_K = (
            row_squares(side.means - before.means) * before.counts * (side.counts / (before.counts + side.counts))
        )
        self._update(rows_K, before, side, other._squares[:used] + between_K)
        if self.plugin_statistics:
            self.plugin_statistics.merge(other.plugin_statistics, before, side)

    def _ensure_rows_with_moments(self, classes_K: Tensor) -> tuple[Tensor, Side]:
        """Return each class's row in the accumulator, and the classes' counts and means; add rows for new classes."""
        rows_K = self._ensure_rows(classes_K)
        means_Kd = self._means.index_select(0, rows_K)
        return rows_K, Side(classes=classes_K, counts=self._counts[rows_K].double(), means=means_Kd)

    def _update(self, rows_K: Tensor, before: Side, theirs: Side, added_squares_K: Tensor) -> None:
        """Add counts and squares, and average the means of ``before`` and ``theirs``, weighted by counts.

        A new class gets exactly the mean in ``theirs``.
        """
        total_K = before.counts + theirs.counts
        self._squares[rows_K] += added_squares_K
        self._means[rows_K] = torch.lerp(before.means, theirs.means, (theirs.counts / total_K).unsqueeze(1))
        self._counts[rows_K] = total_K.long()

    def _ensure_rows(self, classes_K: Tensor) -> Tensor:
        """Return the row of each class in the accumulator; add rows for new classes."""
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
        """Return the complete state, classes ascending, for a shard; :meth:`from_state` restores it exactly."""
        classes, order = self._classes[: self._used].sort()
        state = {
            "classes": classes,
            "counts": self._counts[order],
            "means": self._means[order],
            "squares": self._squares[order],
        }
        state |= self.plugin_statistics.state()
        return {key: value.cpu().contiguous() for key, value in state.items()}

    @classmethod
    def from_state(
        cls, state: Mapping[str, Tensor], device: str | torch.device, statistic_types: Sequence[type[Statistic]]
    ) -> "ClassMoments":
        """Restore an accumulator from the result of :meth:`state`, with the plugin statistics ``statistic_types``."""
        made = cls(state["means"].shape[1], device, PluginStatistics.from_state(state, device, statistic_types))
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
            extra=self.plugin_statistics.tensors(),
            versions=self.plugin_statistics.versions,
            makers=self.plugin_statistics.makers,
        )


def _may_be_constant(added_squares_K: Tensor, counts_K: Tensor, most: float) -> bool:
    """Test quickly whether a class may need :meth:`ClassMoments._average_again`; few batches have such a class.

    ``most`` is d times the square of the largest entry of the embeddings, so it is at least ‖μ‖². The result is
    therefore True whenever the exact test in that method finds a class.
    """
    # double(): integers times a Python float give float32, in which the square of a small magnitude underflows to 0
    return bool(((added_squares_K <= counts_K.double() * (_CONSTANT**2 * most)) & (counts_K > 1)).any())


def row_squares(rows_nd: Tensor) -> Tensor:
    """Return ‖row‖² of each row, several times as fast as a sum of products."""
    return torch.linalg.vector_norm(rows_nd, dim=1).square_()


def _grown(tensor: Tensor, length: int, fill: int = 0) -> Tensor:
    grown = tensor.new_full((length, *tensor.shape[1:]), fill)
    grown[: len(tensor)] = tensor
    return grown
