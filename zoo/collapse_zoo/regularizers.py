"""Losses that push embeddings towards collapse; training adds them, with weights, to the cross-entropy.

Each loss is a measurement of collapse, computed from the classes, counts, means and variances of one batch instead of
the whole text. Losses are computed in float32, also if training computes in bfloat16.

Shapes: N samples, d dimensions, V rows of the output layer, K classes that occur in the batch. A batch needs at least
two classes.
"""

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from collapse.errors import UsageError, near_names
from collapse.plugin.plugin_manager import plugins

Loss = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""f(h, y, weight, bias): embeddings (N, d), labels (N,), and the output layer's rows (V, d) and bias (V,) or None."""


def nc3(
    h_Nd: Float[Tensor, "N d"], y_N: Int[Tensor, " N"], weight_Vd: Float[Tensor, "V d"], bias_V: Tensor | None = None
) -> Float[Tensor, ""]:
    """Return 1 minus the mean cosine of classifier rows and centred class means, in [0, 2]; 0 at full collapse.

    Equation: 1 − mean ⟨w_c/‖w_c‖, u_c⟩, with u_c = (μ_c − μ̄)/‖μ_c − μ̄‖
    Source: nc3.self_duality of the batch; Wu & Papyan 2024, Eq. 8
    """
    ids_K, means_Kd, _ = _moments(h_Nd, y_N)
    return 1 - F.cosine_similarity(weight_Vd[ids_K].to(means_Kd.dtype), means_Kd - means_Kd.mean(0)).mean()


def uniformity(
    h_Nd: Float[Tensor, "N d"], y_N: Int[Tensor, " N"], weight_Vd: Tensor | None = None, bias_V: Tensor | None = None
) -> Float[Tensor, ""]:
    """Return the mean log inverse distance between centred class means of length 1; ½ ln((K−1)/(2K)) at a simplex.

    The simplex is the minimum if K ≤ d+1. Pairs of equal directions are excluded. Needs memory for K² numbers.

    Equation: mean log‖u_c − u_c′‖⁻¹
    Source: gnc2.log_kernel of the batch; Wu & Papyan 2024, Eq. 7, after Liu et al. 2023
    """
    _, means_Kd, _ = _moments(h_Nd, y_N)
    units_Kd = F.normalize(means_Kd - means_Kd.mean(0))
    sqdist_KK = (2 - 2 * units_Kd @ units_Kd.T).triu(1)  # each pair once
    return -sqdist_KK[sqdist_KK > 8 * torch.finfo(sqdist_KK.dtype).eps].log().mean() / 2


def cdnv(
    h_Nd: Float[Tensor, "N d"], y_N: Int[Tensor, " N"], weight_Vd: Tensor | None = None, bias_V: Tensor | None = None
) -> Float[Tensor, ""]:
    """Return the mean class variance over the mean squared distance of class means, no unit; 0 at full collapse.

    This is a ratio of means, because few pairs of near means would dominate a mean of ratios.

    Equation: mean σ_c² / mean ‖μ_c − μ_c′‖²
    Source: nc1.cdnv_ratio of the batch, after Galanti et al. 2021
    """
    _, means_Kd, variances_K = _moments(h_Nd, y_N)
    K = len(means_Kd)
    return variances_K.mean() * (K - 1) / (2 * (means_Kd - means_Kd.mean(0)).square().sum())


def _moments(
    h_Nd: Float[Tensor, "N d"], y_N: Int[Tensor, " N"]
) -> tuple[Int[Tensor, " K"], Float[Tensor, "K d"], Float[Tensor, " K"]]:
    """Return the classes of a batch, their means and variances."""
    h_Nd = h_Nd.to(torch.promote_types(h_Nd.dtype, torch.float32))
    ids_K, inverse_N, counts_K = y_N.unique(return_inverse=True, return_counts=True)
    means_Kd = h_Nd.new_zeros(len(ids_K), h_Nd.shape[1]).index_add(0, inverse_N, h_Nd) / counts_K[:, None]
    squares_N = (h_Nd - means_Kd[inverse_N]).square().sum(1)
    return ids_K, means_Kd, h_Nd.new_zeros(len(ids_K)).index_add(0, inverse_N, squares_N) / counts_K


def losses_of(regularize: Mapping[str, float]) -> list[tuple[float, Loss]]:
    """Return the weight and function of each of a recipe's regularizers, in the order of their names.

    Raises:
        UsageError: No plugin has such a loss; the message suggests similar names.
    """
    known: dict[str, Loss] = {}
    for _, offered in plugins().answers("collapse_losses") if regularize else ():
        known = {**(offered or {}), **known}  # built-in plugins come first, and their losses are kept
    for name in regularize:
        if name not in known:
            raise UsageError(f"--regularize: no loss is called {name!r}; {near_names(name, known)}")
    return [(weight, known[name]) for name, weight in sorted(regularize.items())]
