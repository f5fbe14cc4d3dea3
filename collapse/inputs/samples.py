"""Labelled samples whose embeddings a function computes: the simplest way to write a source.

Shapes: N units of one sample, or of T samples, such as the tokens of a text; d dimensions.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Int
from numpy.typing import ArrayLike
from torch import Tensor

from collapse.errors import CollapseError
from collapse.inputs import permuted_labels
from collapse.inputs.source import Phase, array_tensor
from collapse.numerics.dense_moments import IGNORED
from collapse.stores.layer_names import TOP

_LARGEST_SLICE, _SLICES = 1024, 16  # maximum units per slice, minimum slices (if there are enough units)


class Samples(Phase):
    """Labelled samples whose embeddings a function computes.

    Args:
        name: "train" or "validation".
        labels: The class of each sample, integers. The shape is (N,), or (N, T) if a unit has up to T samples that
            depend on each other, such as the tokens of a text. The label −100 means no sample. Standard errors
            are over units.
        embed: Called as embed(start, stop). Returns the input of the classifier for the units ``start`` to
            ``stop − 1``, floating point, shape (stop − start, d), or (stop − start, t, d) with t ≤ T.
        batch: Number of units per call of ``embed``, unless ``batch_size`` is given. It is halved when memory runs out.
        shuffled: Whether to permute the labels, so that embeddings are independent of them.
        about: What the manifest's provenance records about the samples, as JSON.

    Raises:
        CollapseError: The labels are not integers, or there is no sample.
    """

    unit = "sample"
    out_of_memory = "use a smaller dtype (--dtype bfloat16) or another device (--device cpu)"

    def __init__(
        self,
        name: str,
        labels: Tensor | ArrayLike,
        embed: Callable[[int, int], Tensor],
        *,
        batch: int = 32,
        shuffled: bool = False,
        about: Mapping[str, Any] = {},
    ) -> None:
        given = array_tensor(f"the {name} samples", "labels", labels)
        y = given.flatten().long()
        self._kept = y != IGNORED
        if given.dim() not in (1, 2) or given.is_floating_point():
            raise CollapseError(
                f"the {name} labels must be integers of one or two dimensions, got {given.dtype} {[*given.shape]}"
            )
        if not self._kept.any():
            raise CollapseError(f"there are no {name} samples: every label is {IGNORED}, or there are no labels")
        self.name, self.embed, self.batch, self.about = name, embed, batch, about
        self._labels = permuted_labels.shuffled(y) if shuffled else y
        self.units, self.unit_samples, self.n_samples = len(given), given[0].numel(), len(y)
        self.slice_units = max(1, min(_LARGEST_SLICE, self.units // _SLICES))
        self.ignored = None if self._kept.all() else torch.tensor([IGNORED])

    def embeddings(self, start: int, stop: int, layers: Sequence[str]) -> dict[str, Tensor]:
        """Return the embeddings of units ``start`` to ``stop − 1`` as the layer ``top``, the only layer.

        Raises:
            CollapseError: ``embed`` did not return floating-point numbers of the right shape.
        """
        called, units = f"embed({start}, {stop}) of the {self.name} samples", stop - start
        h = given = array_tensor(called, "its result", self.embed(start, stop))
        if h.dim() == 3 and h.shape[1] <= self.unit_samples:  # pad to T samples per unit
            h = F.pad(h, (0, 0, 0, self.unit_samples - h.shape[1])).flatten(0, 1)
        if h.shape != (units * self.unit_samples, self.dim) or not h.is_floating_point():
            raise CollapseError(
                f"{called} must return floating-point embeddings of shape ({units}, {self.dim}), or ({units}, t, "
                f"{self.dim}) if labels are sequences, got {given.dtype} {[*given.shape]}"
            )
        return {TOP: h}

    def labels_at(self, places: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
        return self._labels[places]

    def check_labels(self, rows: int, dim: int) -> None:
        """Raise CollapseError if a label has no row in the classifier; remember ``dim`` to check the embeddings."""
        self.dim = dim
        least, most = (int(each) for each in self._labels[self._kept].aminmax())
        if least < 0 or most >= rows:
            raise CollapseError(
                f"the {self.name} labels run from {least} to {most}, but the classifier has rows 0 to {rows - 1}: "
                "count classes from 0, and give a row for each"
            )

    def not_finite(self, start: int, row: int, wrong: str) -> str:
        unit, position = divmod(row, self.unit_samples)
        at = f"position {position} of " if self.unit_samples > 1 else ""
        return (
            f"the embedding of {at}{self.name} sample {start + unit} is {wrong}: it was not stored; check the model's "
            "weights and this sample"
        )

    def batch_units(self, asked: int | str) -> int:
        return asked if isinstance(asked, int) else self.batch

    def coverage(self) -> dict[str, Any]:
        """Return the manifest's entry for the phase, with the number of samples whose label is not −100."""
        return {**super().coverage(), "samples": int(self._kept.sum())}

    def provenance(self) -> dict[str, Any]:
        return dict(self.about)
