"""p-values corrected for the number of columns tested."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def holm(p_k: Floats) -> Floats:
    """Return Holm's step-down p-values: they bound the chance of any false discovery.

    >>> holm(np.array([0.01, 0.04, 0.03])).tolist()
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_k, kind="stable")
    steps = np.maximum.accumulate((len(p_k) - np.arange(len(p_k))) * p_k[order])
    adjusted = np.empty_like(p_k)
    adjusted[order] = np.minimum(steps, 1)
    return adjusted


def benjamini_hochberg(p_k: Floats) -> Floats:
    """Return Benjamini and Hochberg's p-values: they bound the expected share of false discoveries.

    >>> benjamini_hochberg(np.array([0.01, 0.04, 0.03])).tolist()
    [0.03, 0.04, 0.04]
    """
    from scipy.stats import false_discovery_control  # takes half a second

    return np.asarray(false_discovery_control(p_k, method="bh"))


def adjust(records: Sequence[dict[str, Any]]) -> None:
    """Set ``holm`` and ``bh`` of records from their ``p``, if each has one."""
    if any(record["p"] is None for record in records):
        return
    p_k = np.array([record["p"] for record in records])
    for name, corrected in (("holm", holm), ("bh", benjamini_hochberg)):
        for record, p in zip(records, corrected(p_k), strict=True):
            record[name] = float(p)
