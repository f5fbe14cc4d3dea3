"""Whether memory has room for a pass: what it holds at least beside the model, against what is available."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from collapse.collection.slices import Slices
from collapse.errors import CollapseError
from collapse.numerics.decisions import validating_bytes
from collapse.numerics.devices import is_out_of_memory
from collapse.numerics.memory import available, size_of

_COPIES = {("train", "cpu"): 4, ("train", "cuda"): 2, ("validation", "cpu"): 3, ("validation", "cuda"): 2}
"""Matrices of C × d in float64 at a time. Training: the means, their sorted copy, and on the CPU two to write a file.
Validation: the means, the centred ones, and on the CPU the store's rows of the classifier."""


@dataclass(frozen=True)
class Need:
    """What a pass needs.

    Attributes:
        phase: "train" or "validation".
        model: Its name.
        classes: C, or as many as there can be.
        dim: d.
        vocabulary: V.
        device: Where statistics accumulate.
        samples: Samples of a batch, at least.
        of_text: Whether samples come from a text, of which a part can be taken, in batches.
    """

    phase: str
    model: str
    classes: int
    dim: int
    vocabulary: int
    device: torch.device
    samples: int = 1
    of_text: bool = True

    @property
    def fixed(self) -> int:
        """Bytes that do not depend on the number of classes."""
        return validating_bytes(self.vocabulary, self.samples) if self.phase == "validation" else 0

    @property
    def of_class(self) -> int:
        """Bytes per class."""
        return 8 * self.dim * _COPIES[self.phase, "cuda" if self.device.type == "cuda" else "cpu"]

    @property
    def size(self) -> int:
        """Bytes, at least."""
        return self.fixed + self.classes * self.of_class

    def __str__(self) -> str:
        of = f"{self.classes:,} classes × {self.dim:,} dimensions in float64"
        of += f", a vocabulary of {self.vocabulary:,}" if self.phase == "validation" else ""
        return f"the {self.phase} pass of {self.model} needs at least {size_of(self.size)} beside the model ({of})"

    def check(self) -> None:
        """Raise CollapseError if this does not fit into the memory that is available."""
        free = available(self.device)
        if free is None or self.size <= free:
            return
        fits = max(0, free - self.fixed) // self.of_class
        raise CollapseError(
            f"{self}, and {size_of(free)} are available on {self.device}, enough for {fits:,} classes: "
            f"{self._advice()}{'. A smaller --batch-size does not help' if self.of_text else ''}"
        )

    def ran_out(self) -> str:
        """Return the message if memory runs out nevertheless."""
        free = available(self.device)
        left = "" if free is None else f", and {size_of(free)} are available on {self.device} now"
        return f"memory ran out: {self}{left}: {'try --batch-size 1, or ' if self.of_text else ''}{self._advice()}"

    def _advice(self) -> str:
        place = "use --device cpu" if self._fits_on_cpu() else "use a machine with more memory"
        if not self.of_text:
            return place
        if self.phase == "validation":
            return f"{place}; a store that is trained can be validated elsewhere"
        return f"{place}, or fewer chunks (--max-chunks), of fewer classes; parts (--part) need as much when merged"

    def _fits_on_cpu(self) -> bool:
        """Whether the CPU, which is not the device, has room."""
        there = replace(self, device=torch.device("cpu"))
        free = available(there.device)
        return self.device.type != "cpu" and (free is None or there.size <= free)


@contextmanager
def with_room(
    model: str, slices: Slices, weight: Float[Tensor, "V d"], device: torch.device, classes: int = 0
) -> Iterator[None]:
    """Check that a pass fits before it begins, and report that memory ran out in it.

    Args:
        model: The model's name.
        slices: The slices of the pass.
        weight: The classifier's rows.
        device: Where statistics accumulate.
        classes: C if it is known; else as many as the labels can have, which are counted only if that does not fit.

    Raises:
        CollapseError: It does not fit, or memory ran out; the message says what is needed, available and possible.
    """
    vocabulary, dim = weight.shape
    phase, samples = slices.phase, min(slices.samples, slices.phase.unit_samples)
    most, of_text = min(vocabulary, slices.samples), phase.words[0] == "chunk"
    need = Need(phase.name, model, classes or most, dim, vocabulary, device, samples, of_text)
    try:
        need.check()
    except CollapseError:
        if classes:
            raise
        need = replace(need, classes=slices.count_classes(vocabulary))
        need.check()
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise CollapseError(need.ran_out()) from error
