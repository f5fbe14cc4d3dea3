"""Permute the labels of samples, for the null ``shuffled``; each class keeps its number of samples.

The permutation is computed sample by sample (a Feistel network, Luby & Rackoff 1988) instead of drawn as a whole. So it
needs no memory, and sample i has the same label in every run, resumed run or part. source.py permutes the labels of
texts with :func:`permuted`; :func:`shuffled` permutes an array of labels.
"""

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from collapse.numerics.dense_moments import IGNORED

_ROUNDS = 8
_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ over the golden ratio, which spreads consecutive numbers
_MIX = np.uint64(0xBF58476D1CE4E5B9)  # constant of splitmix64 (Steele, Lea & Flood 2014)


def permuted(places: Int[Tensor, " n"], total: int, seed: int = 0) -> Int[Tensor, " n"]:
    """Apply a pseudorandom permutation of 0, …, ``total`` − 1 to each number in ``places``; ``seed`` chooses it.

    >>> permuted(torch.arange(10), 10).sort().values.tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    half = max(1, ((total - 1).bit_length() + 1) // 2)
    found = places.numpy().astype(np.uint64)
    outside = np.ones(len(found), dtype=bool)
    # the network permutes the numbers below 4^half ≥ total: repeat it until each number is below total again
    while outside.any():
        found[outside] = _feistel(found[outside], np.uint64(half), seed)
        outside = found >= total
    return torch.from_numpy(found.astype(np.int64))


def shuffled(labels: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """Return labels with a fixed permutation applied; the labels −100 (no sample) keep their positions."""
    kept = labels != IGNORED
    samples = labels[kept]
    return labels.masked_scatter(kept, samples[permuted(torch.arange(len(samples)), len(samples))])


def _feistel(places: np.ndarray, half: np.uint64, seed: int) -> np.ndarray:
    mask = (np.uint64(1) << half) - np.uint64(1)
    left, right = places >> half, places & mask
    for number in range(_ROUNDS):
        key = np.uint64((seed * _ROUNDS + number + 1) * int(_ODD) % 2**64)
        mixed = (right * _ODD + key) * _MIX  # modulo 2⁶⁴
        mixed ^= mixed >> np.uint64(31)
        left, right = right, left ^ ((mixed * _MIX) >> np.uint64(32) & mask)
    return (left << half) | right
