"""Batches of embeddings (h, y) into class moments, one pass, mergeable.

Every batch gives class counts, batch means and squared deviations from the *batch* mean; two sides are then merged
by the update of Chan, Golub & LeVeque (1983), which keeps its digits where the variance is 1e-10 of ‖μ‖²; a difference
E‖h‖² − ‖μ‖² would lose them all. No one-hot matrix is formed: scatter-adds over the classes that occur.

Shapes: B samples of a batch, K classes of a batch, C classes seen so far, d dimensions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from collapse.filling import Filled, makers
from collapse.finite import LARGEST, check_finite, largest, within_range
from collapse.statistics import EmbeddingStatistics

_CONSTANT = 1e-9  # classes with a smaller spread, relative to their mean, are averaged twice


@dataclass(frozen=True)
class Batch:
    """What a statistic sees of one batch, embeddings in float64. The tensors are used again: keep copies only.

    Attributes:
        h: Embeddings, shape (B, d).
        y: Labels, shape (B,).
        classes: Distinct labels, ascending, shape (K,).
        inverse: Row of each sample's label in ``classes``, shape (B,).
        counts: Samples a class, shape (K,).
        means: Batch class means in the training phase, the final ones in validation (nan: no mean), shape (K, d).
        deviations: h minus its row of ``means``, shape (B, d).
        linear: The linear classifier's decisions, shape (B,); validation only.
        ncc: The nearest-class-centre decisions, shape (B,); validation only.
    """

    h: Float[Tensor, "B d"]
    y: Int[Tensor, " B"]
    classes: Int[Tensor, " K"]
    inverse: Int[Tensor, " B"]
    counts: Int[Tensor, " K"]
    means: Float[Tensor, "K d"]
    deviations: Float[Tensor, "B d"]
    linear: Int[Tensor, " B"] | None = None
    ncc: Int[Tensor, " B"] | None = None


@dataclass(frozen=True)
class Side:
    """Counts and means of one side of a merge, over the classes of the other: count 0 and mean 0 where unseen.

    Counts are float64 here, so that a ratio of two of them is no float32.
    """

    classes: Int[Tensor, " K"]
    counts: Float[Tensor, " K"]
    means: Float[Tensor, "K d"]


class Statistic:
    """An extra statistic, filled in the same pass as the means, mergeable and stored: subclass it in a plugin.

    Attributes:
        name: Names it in ``needs`` and its file in the store.
        version: Goes up when its numbers change.
        phase: "train", or "validation" for what needs the final means and both decisions.
        per_class: Whether metrics that read it can leave classes out; one that sums over all classes cannot, and those
            metrics are null where ``--min-count`` leaves classes out.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    phase: ClassVar[Literal["train", "validation"]] = "train"
    per_class: ClassVar[bool] = False

    def update(self, batch: Batch) -> None:
        """Take in one batch. Training batches go into a fresh object that is then merged into the total."""
        raise TypeError(f"statistic {self.name} defines no update(batch)")

    def merge(self, other: "Statistic", mine: Side, theirs: Side) -> None:
        """Take in another of the same kind; in the training phase both sides' counts and means are given."""
        raise TypeError(f"statistic {self.name} defines no merge(other, mine, theirs)")

    def tensors(self) -> dict[str, Tensor]:
        """Its whole state, as stored; the default is every tensor attribute."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "Statistic":
        """The object with this state; the default sets each tensor as an attribute."""
        made = cls()
        for name, value in tensors.items():
            setattr(made, name, value)
        return made


class ClassMoments:
    """Counts, means and summed squared deviations of the classes seen so far, and the plugin statistics.

    Rows are held compactly in the order in which classes were first seen, with room to grow, so that neither a
    batch nor a merge costs more than the classes it touches.
    """

    def __init__(
        self, dim: int, device: str | torch.device = "cpu", statistics: Sequence[Statistic] | Filled = ()
    ) -> None:
        self.dim = dim
        self.device = torch.device(device)
        self.statistics = statistics if isinstance(statistics, Filled) else Filled(statistics)
        self._used = 0
        self._classes = torch.empty(0, dtype=torch.int64, device=device)
        self._counts = torch.empty(0, dtype=torch.int64, device=device)
        self._means = torch.empty(0, dim, dtype=torch.float64, device=device)
        self._squares = torch.empty(0, dtype=torch.float64, device=device)
        self._row_of = torch.full((0,), -1, dtype=torch.int64, device=device)
        # Fresh memory for every batch would cost more than the arithmetic on it.
        self._h = torch.empty(0, dim, dtype=torch.float64, device=device)
        self._deviations = torch.empty(0, dim, dtype=torch.float64, device=device)
        self._before = torch.empty(0, dim, dtype=torch.float64, device=device)

    @property
    def samples(self) -> int:
        """Samples taken in so far."""
        return int(self._counts[: self._used].sum())

    def add(self, h_Bd: Float[Tensor, "B d"], y_B: Int[Tensor, " B"]) -> None:
        """Take in a batch of embeddings of any float dtype with their labels.

        Raises:
            CollapseError: An embedding is NaN or infinite; its row is in the message and in ``error.row``.
        """
        batch, squares_K = self._split(h_Bd, y_B)
        theirs = Side(batch.classes, batch.counts.double(), batch.means)
        mine = self._merge(theirs, squares_K)  # before any statistic sees the batch: it may write to it
        if self.statistics:
            made = [batch]
            self.statistics.take(lambda: made.pop() if made else self._split(h_Bd, y_B)[0], mine)

    def _split(self, h_Bd: Tensor, y_B: Tensor) -> tuple[Batch, Tensor]:
        """A batch by class, in memory that the next one uses again, and the squared deviations of each class."""
        if len(h_Bd) > len(self._h):
            self._h, self._deviations = (self._h.new_empty(len(h_Bd), self.dim) for _ in range(2))
        h_Bd = self._h[: len(h_Bd)].copy_(h_Bd)
        y_B = y_B.to(self.device, copy=True)
        classes_K, inverse_B, counts_K = torch.unique(y_B, return_inverse=True, return_counts=True)
        means_Kd = h_Bd.new_zeros(len(classes_K), self.dim)
        means_Kd.index_add_(0, inverse_B, h_Bd).div_(counts_K.unsqueeze(1))
        size = largest(means_Kd)
        if not size < LARGEST:  # NaN too
            check_finite(h_Bd)
        deviations_Bd = torch.index_select(means_Kd, 0, inverse_B, out=self._deviations[: len(h_Bd)])
        torch.sub(h_Bd, deviations_Bd, out=deviations_Bd)
        squares_K = h_Bd.new_zeros(len(classes_K))
        squares_K.index_add_(0, inverse_B, _row_squares(deviations_Bd))
        if not within_range(squares_K):
            check_finite(h_Bd)
        # Most batches have no class of equal samples, which this tells at once. Integers times a number would be
        # float32, in which the square of a small size is 0.
        if bool(((squares_K <= counts_K.double() * (self.dim * (_CONSTANT * size) ** 2)) & (counts_K > 1)).any()):
            self._average_again(means_Kd, deviations_Bd, squares_K, inverse_B, counts_K)
        return Batch(h_Bd, y_B, classes_K, inverse_B, counts_K, means_Kd, deviations_Bd), squares_K

    def _average_again(
        self, means_Kd: Tensor, deviations_Bd: Tensor, squares_K: Tensor, inverse_B: Tensor, counts_K: Tensor
    ) -> None:
        """Take the rounding of a long sum off the means of classes whose samples are all but equal.

        The mean of n equal samples is off by up to n·ε/2, which would be all there is of its distance to another such
        class. Deviations from it are exact, so their mean corrects it.
        """
        constant_K = (squares_K <= counts_K * _CONSTANT**2 * _row_squares(means_Kd)) & (counts_K > 1)
        if not bool(constant_K.any()):
            return
        here = constant_K[inverse_B].nonzero().squeeze(1)
        which = inverse_B[here]
        correction_Kd = torch.zeros_like(means_Kd).index_add_(0, which, deviations_Bd[here])
        correction_Kd /= counts_K.unsqueeze(1)
        means_Kd += correction_Kd
        deviations_Bd[here] -= correction_Kd[which]
        squares_K[constant_K] = 0
        squares_K.index_add_(0, which, _row_squares(deviations_Bd[here]))

    def merge(self, other: "ClassMoments") -> None:
        """Take in another accumulator, as if its samples had come here."""
        used = other._used
        side = Side(other._classes[:used].clone(), other._counts[:used].double(), other._means[:used].clone())
        mine = self._merge(side, other._squares[:used])
        if self.statistics:
            self.statistics.merge(other.statistics, mine, side)

    def _merge(self, theirs: Side, squares_K: Tensor) -> Side:
        """Take in counts, means and squares; returns what was here before, where there are statistics to merge."""
        rows_K = self._rows_for(theirs.classes)
        mine_counts_K = self._counts[rows_K].double()
        mine_means_Kd = self._means.index_select(0, rows_K)
        before = Side(theirs.classes, mine_counts_K, mine_means_Kd)
        if self.statistics:
            self._before = self._before if len(rows_K) <= len(self._before) else torch.empty_like(mine_means_Kd)
            before = Side(theirs.classes.clone(), mine_counts_K, self._before[: len(rows_K)].copy_(mine_means_Kd))
        total_K = mine_counts_K + theirs.counts
        share_K = theirs.counts / total_K
        delta_Kd = theirs.means - mine_means_Kd
        # Chan et al. 1983: M2 = M2a + M2b + ‖δ‖² na nb / n; a class first seen has na = 0 and takes their mean exactly
        self._squares[rows_K] += squares_K + _row_squares(delta_Kd) * (mine_counts_K * share_K)
        self._means[rows_K] = mine_means_Kd.addcmul_(delta_Kd, share_K.unsqueeze(1))
        self._counts[rows_K] = total_K.long()
        return before

    def _rows_for(self, classes_K: Tensor) -> Tensor:
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
        """The whole state, classes ascending, for a partial file; :meth:`from_state` takes it back to the bit."""
        classes, order = self._classes[: self._used].sort()
        state = {
            "classes": classes,
            "counts": self._counts[order],
            "means": self._means[order],
            "squares": self._squares[order],
        }
        state |= self.statistics.state()
        return {key: value.cpu().contiguous() for key, value in state.items()}

    @classmethod
    def from_state(
        cls,
        state: Mapping[str, Tensor],
        device: str | torch.device,
        kinds: Sequence[type[Statistic]],
        dropped: Mapping[str, str] | None = None,
    ) -> "ClassMoments":
        """The accumulator that gave :meth:`state`; ``dropped`` are statistics that it no longer fills, and why."""
        made = cls(state["means"].shape[1], device)
        made.statistics = Filled.from_state(state, device, kinds, dropped)
        made._rows_for(state["classes"].to(device))
        made._counts[: made._used] = state["counts"].to(device)
        made._means[: made._used] = state["means"].to(device)
        made._squares[: made._used] = state["squares"].to(device)
        return made

    def statistics_so_far(self) -> EmbeddingStatistics:
        """Class statistics, classes ascending."""
        state = self.state()
        extra: dict[str, dict[str, Tensor]] = {each.name: {} for each in self.statistics}
        for key, value in state.items():
            if "/" in key:
                name, tensor = key.split("/", 1)
                extra[name][tensor] = value
        return EmbeddingStatistics(
            classes=state["classes"],
            counts=state["counts"],
            means=state["means"],
            variances=state["squares"] / state["counts"],
            extra=extra,
            versions=self.statistics.versions,
            made_by=makers(type(each) for each in self.statistics),
        )


def _row_squares(rows_nd: Tensor) -> Tensor:
    """‖row‖², several times as fast as a sum of products."""
    return torch.linalg.vector_norm(rows_nd, dim=1).square_()


def _grown(tensor: Tensor, length: int, fill: int = 0) -> Tensor:
    grown = tensor.new_full((length, *tensor.shape[1:]), fill)
    grown[: len(tensor)] = tensor
    return grown
