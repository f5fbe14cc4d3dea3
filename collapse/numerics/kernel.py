"""The compiled passes over scores (scoring.c), where the machine has a C compiler; without one they are torch's.

Shapes: n rows of a block, B samples, d dimensions, K pairs of a sample and a row.
"""

import logging
from ctypes import CDLL, c_int, c_int64, c_void_p
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from collapse.building import CannotBuild, built, may_compile
from collapse.numerics.blocks import Block
from collapse.numerics.rows import Rows
from collapse.numerics.scored import Scored

log = logging.getLogger("collapse")

_KINDS: dict[str, Any] = {"p": c_void_p, "n": c_int64, "t": c_int}  # pointers, numbers, and the threads
_TAKE_IN, _COUNT_OPEN, _FIND_NEAR = "ppnnnpppppnppt", "ppppnnppt", "pppppppppppnnnnppppt"
_PRODUCTS_OF = "ppppnnpt"
_FEW = 16  # samples of a flag in scoring.c
FUNCTIONS = ("take_in", "count_open", "find_near", "products_of_floats", "products_of_doubles")
_OPTIONS = {
    "AVX512": ("-mfma", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"),
    "AVX2": ("-mfma", "-mavx2"),
}


class Kernel:
    """The functions of scoring.c, for contiguous tensors on a CPU."""

    def __init__(self, library: CDLL) -> None:
        self._take_in, self._count_open, self._find_near = library.take_in, library.count_open, library.find_near
        self._products_of = {torch.float32: library.products_of_floats, torch.float64: library.products_of_doubles}
        for function, kinds in (
            (self._take_in, _TAKE_IN),
            (self._count_open, _COUNT_OPEN),
            (self._find_near, _FIND_NEAR),
            *((each, _PRODUCTS_OF) for each in self._products_of.values()),
        ):
            function.argtypes = [_KINDS[each] for each in kinds]

    def take_in(self, found: Scored, scores: Float[Tensor, "n B"], block: Block) -> None:
        """Take in the scores of a block, as :meth:`Scored.take_in` does, but without changing them."""
        (n, B), error = scores.shape, found.error
        bias_n = None if found.bias is None else found.bias[block.rows]
        of_groups = [error.slope[block.groups], error.more[block.groups], error.norm, found.highest[block.groups]]
        least = found.least[block.part :]
        self._take_in(
            *_at(scores, bias_n),
            *(n, B, found.group),
            *_at(*of_groups, least),
            len(least),
            *_at(found.top, found.others),
            torch.get_num_threads(),
        )

    def near(self, rows: Rows, found: Scored, *, many: int) -> tuple[Tensor, Tensor] | None:
        """Return samples and those of the rows that may have the highest score, each (K,).

        Args:
            rows: Rows, which are kept.
            found: What the pass over their scores in float32 has found.
            many: Groups per sample; None is returned if more are left open.
        """
        assert rows.kept is not None
        (groups, B), error, threads = found.highest.shape, found.error, torch.get_num_threads()
        bounds = [found.highest, found.least, rows.part_of, error.most()]
        count_B, is_open = torch.empty(B, dtype=torch.int64), torch.empty(-(-B // _FEW), groups, dtype=torch.bool)
        self._count_open(*_at(*bounds), groups, B, *_at(count_B, is_open), threads)
        place_B = count_B.cumsum(0)
        P = int(place_B[-1])
        if many * B < P:
            return None
        sample_P, group_P = torch.empty(2, P, dtype=torch.int64)
        near_Pg = torch.empty(P, rows.group, dtype=torch.bool)
        place_B -= count_B
        self._find_near(
            *_at(*bounds, is_open, error.slope, error.more, error.norm, rows.kept, found.bias, found.x),
            *(groups, B, rows.group, rows.dim),
            *_at(place_B, sample_P, group_P, near_Pg),
            threads,
        )
        pair_K, at_K = near_Pg.nonzero().unbind(dim=1)
        return sample_P[pair_K], group_P[pair_K] * rows.group + at_K

    def can_multiply(self, matrix: Float[Tensor, "V d"]) -> bool:
        """Whether :meth:`products_of` takes this matrix."""
        return matrix.dtype in self._products_of and matrix.is_contiguous() and matrix.device.type == "cpu"

    def products_of(
        self,
        matrix: Float[Tensor, "V d"],
        row_K: Int[Tensor, " K"],
        x_Bd: Float[Tensor, "B d"],
        sample_K: Int[Tensor, " K"],
    ) -> Float[Tensor, " K"]:
        """Return the products of rows of a matrix with samples in float64."""
        product_K, x_Bd = x_Bd.new_empty(len(row_K)), x_Bd.contiguous()
        row_K, sample_K = row_K.long().contiguous(), sample_K.long().contiguous()
        self._products_of[matrix.dtype](
            *_at(matrix, row_K, x_Bd, sample_K),
            *(len(row_K), matrix.shape[1]),
            *_at(product_K),
            torch.get_num_threads(),
        )
        return product_K


@lru_cache(maxsize=1)
def kernel() -> Kernel | None:
    """Return the compiled passes; None without a compiler, or with ``TORCH_COMPILE_DISABLE=1``."""
    if not may_compile():
        return None
    features = _OPTIONS.get(torch.backends.cpu.get_cpu_capability(), ())
    try:
        compiled = Kernel(built(Path(__file__).with_name("scoring.c"), FUNCTIONS, features))
    except CannotBuild as error:
        log.warning("validation may take 1.3 to 1.8 times as long, because its passes are not compiled: %s", error)
        return None
    if not _agrees(compiled):
        log.warning("the compiled passes of validation are not used: they give other numbers than torch")
        return None
    return compiled


def kernel_for(x_Bd: Tensor) -> Kernel | None:
    """Return the compiled passes if they can take samples of this dtype and device."""
    return kernel() if x_Bd.dtype == torch.float32 and x_Bd.device.type == "cpu" else None


def _agrees(compiled: Kernel) -> bool:
    """Whether the compiled passes do what torch's do with a few scores."""
    draw = torch.Generator().manual_seed(0)
    weight, x_Bd = torch.randn(45, 24, generator=draw), 3 * torch.randn(70, 24, generator=draw).double()
    rows = Rows(weight, [torch.arange(30), torch.arange(30, 45)], weight[:, 0], group=8, centred=True)
    found, of_torch = (Scored.begin(rows, x_Bd, torch.float32, 1.0, sums=True) for _ in range(2))
    for block in rows.blocks:
        scores = rows.rounded(block.rows) @ found.x.T
        compiled.take_in(found, scores, block)
        of_torch.take_in(scores, block)
    assert found.others is not None
    assert of_torch.others is not None
    same = [(found.least, of_torch.least), (found.others, of_torch.others)]
    if not (torch.equal(found.highest, of_torch.highest) and all(torch.allclose(*each, rtol=1e-5) for each in same)):
        return False
    near = compiled.near(rows, found, many=len(rows.part_of))
    best_B = (x_Bd @ weight.double().T + weight[:, 0].double()).argmax(dim=1)
    if near is None or not set(enumerate(best_B.tolist())) <= set(
        zip(near[0].tolist(), rows.ids[near[1]].tolist(), strict=True)
    ):
        return False
    product_K = (x_Bd[:45] * weight).sum(dim=1)
    some = torch.arange(45)
    return all(
        torch.allclose(compiled.products_of(matrix, some, x_Bd, some), product_K, rtol=1e-12, atol=1e-12)
        for matrix in (weight, weight.double())
    )


def _at(*tensors: Tensor | None) -> list[int | None]:
    """Return where contiguous tensors lie in memory."""
    assert all(each is None or each.is_contiguous() for each in tensors)
    return [None if each is None else each.data_ptr() for each in tensors]
