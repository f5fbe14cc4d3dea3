"""The null of shuffled labels: embeddings that are independent of their labels.

The labels of a whole text are permuted over all of its samples, so that each class keeps its number of samples. The
permutation is computed sample by sample (a Feistel network, Luby & Rackoff 1988), not drawn as a whole: it needs no
memory, and whatever slices a run, a resumed run or a part collects, sample i has the same label.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from collapse.inputs.source import Phase, Source

_ROUNDS = 8
_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ over the golden ratio, which spreads consecutive numbers
_MIX = np.uint64(0xBF58476D1CE4E5B9)  # of splitmix64 (Steele, Lea & Flood 2014)


def permuted(places: Int[Tensor, " n"], total: int, seed: int = 0) -> Int[Tensor, " n"]:
    """Return where a permutation of ``total`` places sends some of them.

    >>> permuted(torch.arange(10), 10).sort().values.tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    half = max(1, ((total - 1).bit_length() + 1) // 2)
    found = places.numpy().astype(np.uint64)
    outside = np.ones(len(found), dtype=bool)
    # the network permutes 4^half ≥ total places: follow each one until it is back within the total
    while outside.any():
        found[outside] = _feistel(found[outside], np.uint64(half), seed)
        outside = found >= total
    return torch.from_numpy(found.astype(np.int64))


def _feistel(places: np.ndarray, half: np.uint64, seed: int) -> np.ndarray:
    mask = (np.uint64(1) << half) - np.uint64(1)
    left, right = places >> half, places & mask
    for number in range(_ROUNDS):
        key = np.uint64((seed * _ROUNDS + number + 1) * int(_ODD) % 2**64)
        mixed = (right * _ODD + key) * _MIX  # modulo 2⁶⁴
        mixed ^= mixed >> np.uint64(31)
        left, right = right, left ^ ((mixed * _MIX) >> np.uint64(32) & mask)
    return (left << half) | right


class ShuffledPhase(Phase):
    """The samples of a phase, each with the label of another one.

    Args:
        phase: The samples with their own labels.
    """

    def __init__(self, phase: Phase) -> None:
        self._phase = phase
        for name in ("name", "units", "slice_units", "size", "words", "out_of_memory", "unit_samples"):
            setattr(self, name, getattr(phase, name))

    @property
    def n_samples(self) -> int:
        """As of the phase."""
        return self._phase.n_samples

    def samples(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return the embeddings of some units, and labels of samples of any."""
        return self._phase.samples(start, stop)[0], self.labels(start, stop)

    def labels(self, start: int, stop: int) -> Tensor:
        """Return the labels."""
        places = torch.arange(start * self.unit_samples, min(stop * self.unit_samples, self.n_samples))
        return self.labels_at(permuted(places, self.n_samples))

    def labels_at(self, places: Tensor) -> Tensor:
        """Return the own labels of samples anywhere in the text."""
        return self._phase.labels_at(places)

    def not_finite(self, start: int, row: int, wrong: str) -> str:
        """As of the phase."""
        return self._phase.not_finite(start, row, wrong)

    def batch_units(self, asked: int | str) -> int:
        """As of the phase."""
        return self._phase.batch_units(asked)

    def check(self, unit: int) -> None:
        """As of the phase."""
        self._phase.check(unit)

    def coverage(self) -> dict[str, Any]:
        """As of the phase."""
        return self._phase.coverage()

    def provenance(self) -> dict[str, Any]:
        """As of the phase."""
        return self._phase.provenance()


def shuffled(source: Source, identity: Mapping[str, Any]) -> Source:
    """Return a source with shuffled labels in both phases; ``identity`` is added to its own, to say so."""
    train, validation = (None if each is None else ShuffledPhase(each) for each in (source.train, source.validation))
    return replace(source, identity={**source.identity, **identity}, train=train, validation=validation)
