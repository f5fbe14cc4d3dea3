"""Products of samples with rows, by the faster of the libraries that torch brings for a processor.

Shapes: B samples, n rows, d dimensions.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def product(
    x_Bd: Float[Tensor, "B d"], rows_nd: Float[Tensor, "n d"], bias_n: Float[Tensor, " n"] | None = None
) -> Float[Tensor, "B n"]:
    """Return x · rowsᵀ + bias, in the dtype of all.

    With AVX-512, oneDNN multiplies float32 as fast on an AMD processor as on Intel's, where MKL, which torch.mm takes,
    does not use it: it was twice as fast on an EPYC. torch reaches it by the operation to which it compiles linear
    layers.
    """
    if rows_nd.dtype == torch.float32 and rows_nd.device.type == "cpu" and _has_onednn():
        return torch.ops.mkldnn._linear_pointwise(x_Bd, rows_nd, bias_n, "none", [], "")
    return torch.mm(x_Bd, rows_nd.T) if bias_n is None else torch.addmm(bias_n, x_Bd, rows_nd.T)


def _has_onednn() -> bool:
    mkldnn = torch.backends.mkldnn
    if not (mkldnn.is_available() and mkldnn.enabled and torch.backends.cpu.get_cpu_capability() == "AVX512"):
        return False
    return hasattr(torch.ops.mkldnn, "_linear_pointwise")
