"""The arguments of a plugin's statistic: a batch of embeddings, and the two sides of a merge.

Shapes: B samples of a batch, K classes of a batch, d dimensions.
"""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One batch as a training statistic sees it, in float64. The tensors are reused: keep only copies.

    Attributes:
        h: Embeddings, shape (B, d).
        y: Labels, shape (B,).
        classes: Distinct labels, ascending, shape (K,).
        inverse: Row of each sample's label in ``classes``, shape (B,).
        counts: Samples per class, shape (K,).
        means: Class means of the batch, shape (K, d).
        deviations: h minus a point between two means of its class: that of the batch and that of all earlier samples,
            shape (B, d). Sums of their products over all batches equal those of deviations from the final class means.
    """

    h: Float[Tensor, "B d"]
    y: Int[Tensor, " B"]
    classes: Int[Tensor, " K"]
    inverse: Int[Tensor, " B"]
    counts: Int[Tensor, " K"]
    means: Float[Tensor, "K d"]
    deviations: Float[Tensor, "B d"]

    @property
    def side(self) -> "Side":
        """The batch's counts and means, as one side of a merge."""
        return Side(classes=self.classes, counts=self.counts.double(), means=self.means)


@dataclass(frozen=True, kw_only=True)
class ValidationBatch(Batch):
    """One batch as a validation statistic sees it; ``means`` are the final class means, nan for labels without a mean.

    ``deviations`` are taken from ``means``.

    Attributes:
        linear: Decisions (class ids) of the linear classifier over the classes with a mean, shape (B,).
        ncc: Decisions of the nearest-class-centre classifier, shape (B,).
        vocabulary: Decisions of the linear classifier over the whole vocabulary, shape (B,).
        confidence: Softmax probability of the decision over the whole vocabulary, shape (B,), accurate to about 1e-6;
            exact with ``--exact-loss``.
        loss: Cross-entropy of each label in nats, shape (B,), as accurate as ``confidence``.
        chunk: Index of each sample's chunk, shape (B,). A chunk of a features file is a run of 8,192 rows.
        block: Id of each sample's block, ascending, shape (B,). A block is a run of whole texts, at least as long
            as a chunk; in a features file it is a chunk. Blocks are treated as independent.
        position: Position of each sample in its chunk, from 0, shape (B,).
    """

    linear: Int[Tensor, " B"]
    ncc: Int[Tensor, " B"]
    vocabulary: Int[Tensor, " B"]
    confidence: Float[Tensor, " B"]
    loss: Float[Tensor, " B"]
    chunk: Int[Tensor, " B"]
    block: Int[Tensor, " B"]
    position: Int[Tensor, " B"]


@dataclass(frozen=True, kw_only=True)
class Side:
    """Counts and means of one of two merged statistics; 0 for classes without samples.

    Both sides have the classes of the statistic that is merged into the other. Counts are float64, so that a ratio of
    two counts is float64 too.
    """

    classes: Int[Tensor, " K"]
    counts: Float[Tensor, " K"]
    means: Float[Tensor, "K d"]
