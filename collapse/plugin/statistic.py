"""Extra statistics that a plugin fills in the same pass as the class means, and how such statistics are merged.

Shapes: B samples of a batch; C classes that a statistic has seen; K classes of a batch; d dimensions. In a merge, K is
the number of classes of the statistic that is merged into another.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from collapse.core.gram import gram
from collapse.errors import PluginError

Reduction = Literal["sum", "max", "min", "chan"]
_MERGED: dict[Reduction, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": torch.add,
    "chan": torch.add,
    "max": torch.maximum,
    "min": torch.minimum,
}


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One batch as a training statistic sees it, in float64. The tensors are reused: keep only copies.

    Attributes:
        h: Embeddings, shape (B, d).
        y: Labels, shape (B,).
        classes: Distinct labels, ascending, shape (K,).
        inverse: Index in ``classes`` of each sample's label, shape (B,).
        counts: Samples per class, shape (K,).
        means: Class means of the batch, shape (K, d).
        deviations: ``h`` minus a point that depends on the sample's class, shape (B, d). The point lies between the
            class mean in this batch and the mean of the class's earlier samples. It is chosen so that the sum
            of products of these deviations over all batches equals the sum of products of deviations from the final
            class means.
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
    """One batch as a validation statistic sees it.

    ``means`` are the final class means of ``classes``, shape (K, d), nan for labels without a mean. ``deviations`` are
    ``h`` minus the final mean of each sample's class, shape (B, d).

    Attributes:
        linear: Class id that the linear classifier predicts, among the classes with a mean, shape (B,).
        ncc: Class id that the nearest-class-centre classifier predicts, shape (B,).
        vocabulary: Class id that the linear classifier predicts, among the whole vocabulary, shape (B,).
        confidence: Softmax probability of the prediction ``vocabulary``, shape (B,). It is accurate to about 1e-6, and
            exact with ``--exact-loss``.
        loss: Cross-entropy of each label in nats, shape (B,), as accurate as ``confidence``.
        chunk: Index of each sample's chunk, shape (B,). A chunk of a features file is 8,192 consecutive rows.
        block: Id of each sample's block, ascending, shape (B,). A block consists of consecutive whole texts, and is at
            least as long as a chunk. In a features file, each chunk is a block. Blocks are treated as independent.
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
    """Class counts and means of one of two statistics that are merged; 0 for classes without samples.

    Both sides of a merge have the same classes, those of the statistic that is merged into the other. Counts are
    float64, so that a ratio of two counts is float64 too.
    """

    classes: Int[Tensor, " K"]
    counts: Float[Tensor, " K"]
    means: Float[Tensor, "K d"]


@dataclass(frozen=True)
class State:
    """Declaration of one tensor of a statistic.

    The tensor starts at 0. With the reduction "max", it starts at the lowest number of its dtype; with "min", at the
    highest number.

    Attributes:
        shape: Sizes of the tensor, each a number or "d". The first size can also be "C", for one row per class in the
            order of ``classes``. The statistic then also stores ``classes``.
        dtype: dtype of the tensor.
        reduction: How two tensors are merged: "sum", "max", "min", or "chan". Use "chan" for a sum over samples of
            products of deviations from the class means, computed from ``batch.deviations``; the shape must be (),
            ("d",) or ("d", "d"). A merge of two collections then adds the two sums, and a term for the difference
            between the class means of the two collections (Chan, Golub & LeVeque 1983).

    Raises:
        PluginError: The declaration is invalid.
    """

    shape: tuple[int | str, ...] = ()
    dtype: torch.dtype = torch.float64
    reduction: Reduction = "sum"

    def __post_init__(self) -> None:
        sizes = self.shape[1:] if self.per_class else self.shape
        known = isinstance(self.shape, tuple) and all(isinstance(size, int) or size == "d" for size in sizes)
        if not known:  # ("C") is a string, not a tuple
            raise PluginError(f"shape={self.shape!r}: give a tuple of numbers and 'd'; only the first can be 'C'")
        if self.reduction == "chan" and self.shape not in ((), ("d",), ("d", "d")):
            raise PluginError(f"shape={self.shape!r}: with reduction='chan' give (), ('d',) or ('d', 'd')")

    @property
    def per_class(self) -> bool:
        """Whether the tensor has one row per class."""
        return self.shape[:1] == ("C",)

    @property
    def start(self) -> int | float:
        """The initial value of each element."""
        bounds: Any = torch.finfo(self.dtype) if self.dtype.is_floating_point else torch.iinfo(self.dtype)
        return {"max": bounds.min, "min": bounds.max}.get(self.reduction, 0.0)

    def sizes(self, classes: int, dim: int) -> torch.Size:
        """Return the tensor's shape for the given number of classes and dimensions."""
        sizes = {"C": classes, "d": dim}
        return torch.Size(sizes[size] if isinstance(size, str) else size for size in self.shape)

    def zeros(self, classes: int, dim: int, device: torch.device | str) -> Tensor:
        """Return the initial tensor for the given number of classes and dimensions."""
        return torch.full(self.sizes(classes, dim), self.start, dtype=self.dtype, device=device)


class Statistic:
    """Base class for extra statistics of the training text: subclass it in a plugin to define a statistic.

    In the subclass, declare the tensors as ``state``, and compute their values for one batch in ``update``. The
    declaration determines how two statistics are merged.

    Attributes:
        name: Name of the statistic's file in the store, and of the parameter with which metrics get the statistic.
        version: Increase it when the numbers change.
        state: Declaration of each tensor, by name.
        per_class: Whether metrics that read the statistic can exclude classes. If False, these metrics are null when
            ``--min-count`` excludes classes, because the statistic sums over all classes. Default: True if every
            tensor of ``state`` has one row per class.
        classes: The class ids of the rows of tensors that have one row per class, ascending.
    """

    __collapse_declaration__: ClassVar[bool] = True  # so that subclasses are found like decorated functions
    name: ClassVar[str]
    version: ClassVar[int] = 1
    phase: ClassVar[Literal["train", "validation"]] = "train"
    state: ClassVar[Mapping[str, State]] = {}
    per_class: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.phase == "validation" and any(each.reduction == "chan" for each in cls.state.values()):
            raise PluginError(f"state of {cls.__name__}: reduction='chan' is only for training statistics: use 'sum'")
        if "state" in vars(cls) and "per_class" not in vars(cls):
            cls.per_class = bool(cls.state) and all(each.per_class for each in cls.state.values())

    def __init__(self, classes: Tensor | None = None, dim: int = 0) -> None:
        """Create the initial tensors for ``classes`` (None: no class) and ``dim`` dimensions (0 before any batch)."""
        self.classes = torch.zeros(0, dtype=torch.int64) if classes is None else classes
        for name, each in self.state.items():
            setattr(self, name, each.zeros(len(self.classes), dim, self.classes.device))

    def update(self, batch: Any) -> None:
        """Fill the declared tensors of a new object from one batch; the object is then merged into the total."""
        raise NotImplementedError

    def check(self, dim: int) -> None:
        """Raise PluginError if a tensor does not have the declared shape and dtype."""
        for name, each in self.state.items():
            expected, value = (each.sizes(len(self.classes), dim), each.dtype), getattr(self, name)
            found = (value.shape, value.dtype) if isinstance(value, Tensor) else (type(value).__name__,)
            if found != expected:
                declared, given = (", ".join(map(str, each)) for each in (expected, found))
                raise PluginError(
                    f"{name} must be a tensor of the shape and dtype that `state` declares ({declared}), but is "
                    f"{given}: change the tensor, or its State"
                )

    def merge(self, other: "Statistic", mine: Side | None = None, theirs: Side | None = None) -> None:
        """Merge another statistic of the same kind.

        ``mine`` and ``theirs`` are the counts and class means of this statistic and of ``other``. Tensors with the
        reduction "chan" need them, because the difference of the means adds a term. Omit ``mine`` and ``theirs`` if
        there is no such tensor, or if ``other`` holds a single batch, whose deviations already include this term.
        """
        rows = self._ensure_rows(other) if any(each.per_class for each in self.state.values()) else None
        for name, each in self.state.items():
            held, added = getattr(self, name).to(getattr(other, name).device), getattr(other, name)
            if each.per_class:
                held[rows] = _MERGED[each.reduction](held[rows], added)
            elif held.shape != added.shape:  # one of the two has seen no samples
                held = held if held.numel() else added.clone()
            else:
                held = _MERGED[each.reduction](held, added)
            if each.reduction == "chan" and mine is not None and theirs is not None:
                held = _shifted(each, held, mine, theirs)
            setattr(self, name, held)

    def _ensure_rows(self, other: "Statistic") -> Tensor:
        """Add rows for classes that only ``other`` has.

        Returns:
            For each class of ``other``, the index of its row in this statistic.
        """
        mine, theirs = self.classes.to(other.classes.device), other.classes
        at = torch.searchsorted(mine, theirs)
        if len(mine) and bool((mine[at.clamp(max=len(mine) - 1)] == theirs).all()):
            return at  # no copy, so that the time of a batch depends only on its own classes
        self.classes = torch.unique(torch.cat([mine, theirs]))
        for name, each in self.state.items():
            if each.per_class:
                held, added = getattr(self, name), getattr(other, name)
                grown = added.new_full((len(self.classes), *added.shape[1:]), each.start)
                if len(held):
                    grown[torch.searchsorted(self.classes, mine)] = held.to(added.device)
                setattr(self, name, grown)
        return torch.searchsorted(self.classes, theirs)

    def tensors(self) -> dict[str, Tensor]:
        """Return the complete state, as stored: declared tensors, and ``classes`` if a tensor has a row per class."""
        names = [*self.state, *["classes"] * any(each.per_class for each in self.state.values())]
        return {name: getattr(self, name) for name in names}


class ValidationStatistic(Statistic):
    """An extra statistic of the validation text: its ``update`` receives a :class:`collapse.ValidationBatch`.

    Defining a subclass raises PluginError if a tensor has the reduction "chan".
    """

    phase = "validation"


def _shifted(state: State, total: Tensor, mine: Side, theirs: Side) -> Tensor:
    """Return the sum of products of deviations from the merged means.

    ``total`` is the sum of products of deviations from each side's own means.
    """
    weights_K = mine.counts * (theirs.counts / (mine.counts + theirs.counts))
    shift_Kd = (theirs.means - mine.means) * weights_K.sqrt().unsqueeze(1)
    if state.shape == ("d", "d"):
        return total + gram(shift_Kd)
    return total + (shift_Kd.square().sum() if state.shape == () else shift_Kd.square().sum(dim=0))
