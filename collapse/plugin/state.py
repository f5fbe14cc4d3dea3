"""The tensors that a statistic declares: their shapes in terms of C and d, and how two sides are merged.

Shapes: C classes that a statistic has seen, K classes of the other side of a merge, d dimensions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from collapse.errors import PluginError, near_names
from collapse.plugin.batch import Side

Reduction = Literal["sum", "max", "min", "chan"]
_REDUCTIONS = ("sum", "max", "min", "chan")
MOST_DIMENSIONS = 8  # of a tensor in a store
DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
)
_CHAN_SHAPES = ((), ("d",), ("d", "d"))


@dataclass(frozen=True)
class State:
    """One tensor of a statistic, initially 0; for a max or min, the smallest or largest number of its dtype.

    Attributes:
        shape: Sizes: numbers, "d", or "C" in the first place for one row per class, in the order of ``classes``, which
            the statistic then holds too.
        dtype: dtype of the tensor.
        reduction: How two tensors are merged: "sum", "max", "min", or "chan". "chan" is for a sum over classes of
            products of deviations from the class means, of shape (), ("d",) or ("d", "d"); merging adds the shift
            between the means of both sides (Chan, Golub & LeVeque 1983).

    Raises:
        PluginError: The declaration is invalid.
    """

    shape: tuple[int | str, ...] = ()
    dtype: torch.dtype = torch.float64
    reduction: Reduction = "sum"

    def __post_init__(self) -> None:
        if self.reduction not in _REDUCTIONS:
            near = near_names(str(self.reduction), _REDUCTIONS)
            raise PluginError(f"reduction={self.reduction!r:.40}: there is no such reduction; {near}")
        if not isinstance(self.shape, tuple):
            raise PluginError(f"shape={self.shape!r:.60}: give a tuple, such as ('C',) or ('d', 'd')")
        if not isinstance(self.dtype, torch.dtype):
            raise PluginError(f"dtype={self.dtype!r:.60}: give a dtype of torch, such as torch.float64")
        for place, size in enumerate(self.shape):
            if size != "d" and not (size == "C" and place == 0) and not (type(size) is int and size >= 0):
                raise PluginError(f"shape={self.shape!r:.60}: give numbers, 'd', or 'C' in the first place")
        if len(self.shape) > MOST_DIMENSIONS:
            raise PluginError(f"shape={self.shape!r:.60}: give at most {MOST_DIMENSIONS} dimensions")
        if self.dtype == torch.bool or self.dtype not in DTYPES:
            known = ", ".join(str(each).removeprefix("torch.") for each in DTYPES if each != torch.bool)
            raise PluginError(f"dtype={self.dtype}: give one of {known}; bool adds as torch.int64")
        if self.reduction == "chan" and self.shape not in _CHAN_SHAPES:
            raise PluginError(f"shape={self.shape!r:.60}: with reduction='chan' give (), ('d',) or ('d', 'd')")
        if self.reduction == "chan" and self.dtype != torch.float64:
            raise PluginError(f"dtype={self.dtype}: with reduction='chan' give torch.float64")

    @property
    def per_class(self) -> bool:
        """Whether it has one row per class."""
        return self.shape[:1] == ("C",)

    def zeros(self, classes: int, dim: int, device: torch.device | str) -> Tensor:
        """Return the initial tensor for the given number of classes and dimensions."""
        sizes = {"C": classes, "d": dim}
        shape = [sizes[size] if isinstance(size, str) else size for size in self.shape]
        bounds: Any = torch.finfo(self.dtype) if self.dtype.is_floating_point else torch.iinfo(self.dtype)
        start = {"max": bounds.min, "min": bounds.max}.get(self.reduction, 0)
        return torch.full(shape, start, dtype=self.dtype, device=device)

    def nothing(self) -> Tensor:
        """Return the tensor before the first batch, when d is not known yet."""
        return self.zeros(0, 0, "cpu")


def merged(
    state: Mapping[str, State], mine: Mapping[str, Any], theirs: Mapping[str, Any], my: Side, their: Side
) -> dict[str, Tensor]:
    """Merge the declared tensors of two sides.

    Args:
        state: The declaration.
        mine: My tensors by name. Those with one row per class are updated in place if all classes of the other side
            have rows, so that a batch costs its own classes, not all of them.
        theirs: The tensors of the other side; they are only read.
        my, their: Counts and means of both sides, each over the classes of the other.
    """
    found: dict[str, Tensor] = {}
    rows = None
    if any(each.per_class for each in state.values()):
        found["classes"], *rows = _rows(mine["classes"].to(theirs["classes"].device), theirs["classes"])
    for name, each in state.items():
        a, b = mine[name].to(theirs[name].device), theirs[name]
        if each.per_class:
            assert rows is not None
            found[name] = _by_class(each, (a, b), rows, len(found["classes"]))
        elif a.shape != b.shape:  # one of the two has seen nothing
            found[name] = a if a.numel() else b.clone()
        else:
            found[name] = _reduced(each, a, b)
        if each.reduction == "chan":
            found[name] = _shifted(each, found[name], my, their)
    return found


def _rows(mine: Tensor, theirs: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
    """All classes, the rows of mine among them (None where they are all there are), and the rows of theirs."""
    at = torch.searchsorted(mine, theirs)
    if len(mine) and bool((mine[at.clamp(max=len(mine) - 1)] == theirs).all()):
        return mine, None, at
    classes = torch.unique(torch.cat([mine, theirs]))
    return classes, torch.searchsorted(classes, mine), torch.searchsorted(classes, theirs)


def _by_class(state: State, sides: tuple[Tensor, Tensor], rows: list[Any], classes: int) -> Tensor:
    a, b = sides
    if rows[0] is None:
        total = a
    else:
        like = a if len(a) else b  # before anything was seen d is 0
        dim = like.shape[state.shape.index("d")] if "d" in state.shape else 0
        total = state.zeros(classes, dim, b.device)
        if len(a):
            total[rows[0]] = a
    if len(b):
        total[rows[1]] = _reduced(state, total[rows[1]], b)
    return total


def _reduced(state: State, a: Tensor, b: Tensor) -> Tensor:
    if state.reduction == "max":
        return torch.maximum(a, b)
    return torch.minimum(a, b) if state.reduction == "min" else a + b


def _shifted(state: State, total: Tensor, mine: Side, theirs: Side) -> Tensor:
    """A sum of products of deviations, moved from both sides' means to the common ones."""
    weights_K = mine.counts * (theirs.counts / (mine.counts + theirs.counts))
    shift_Kd = (theirs.means - mine.means) * weights_K.sqrt().unsqueeze(1)
    if state.shape == ("d", "d"):
        return torch.addmm(total, shift_Kd.T, shift_Kd)
    return total + (shift_Kd.square().sum() if state.shape == () else shift_Kd.square().sum(dim=0))
