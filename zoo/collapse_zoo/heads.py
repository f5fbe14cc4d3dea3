"""Fixed output layers: rows that training does not change. V rows in d dimensions, all of norm 1."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def simplex_etf(V: int, d: int, seed: int) -> Float[Tensor, "V d"]:
    """Return a randomly rotated simplex ETF: V ≤ d+1 unit rows with a cosine of −1/(V−1) between any two.

    Source: Zhu et al. 2021; Yang et al. 2022
    """
    drawn_Vd = _normal(V, d, seed)
    left, _, right = torch.linalg.svd(drawn_Vd - drawn_Vd.mean(0), full_matrices=False)
    rows_Vd = left[:, : V - 1] @ right[: V - 1]  # the nearest rows with the Gram matrix I − 11ᵀ/V
    return F.normalize(rows_Vd).float()


def random_frame(V: int, d: int, seed: int) -> Float[Tensor, "V d"]:
    """Return V independent unit rows, uniform on the sphere."""
    return F.normalize(_normal(V, d, seed)).float()


def _normal(V: int, d: int, seed: int) -> Float[Tensor, "V d"]:
    return torch.randn(V, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


FIXED = {"fixed-etf": simplex_etf, "fixed-frame": random_frame}
"""The fixed output layers by the name of their ``--head``."""
