"""The compiled passes over scores (scoring.c), where the machine has a C compiler; without one they are torch's.

Shapes: n rows of a block, B samples, d dimensions, K pairs of a sample and a row.
"""

import logging
import os
from ctypes import CDLL, c_int, c_int64, c_void_p
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from collapse.building import CannotBuild, built
from collapse.numerics.blocks import Block
from collapse.numerics.rows import Rows
from collapse.numerics.scored import Scored

log = logging.getLogger("collapse")

_KINDS: dict[str, Any] = {"p": c_void_p, "n": c_int64, "t": c_int}  # pointers, numbers, and the threads
_TAKE_IN, _COUNT_OPEN, _FIND_NEAR = "ppnnnpppppnppt", "ppppnnpt", "ppppppppppnnnnppppt"
_OPTIONS = {
    "AVX512": ("-mfma", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"),
    "AVX2": ("-mfma", "-mavx2"),
}


class Kernel:
    """The functions of scoring.c, for tensors of float32 on a CPU."""

    def __init__(self, library: CDLL) -> None:
        self._take_in, self._count_open, self._find_near = library.take_in, library.count_open, library.find_near
        for function, kinds in (
            (self._take_in, _TAKE_IN),
            (self._count_open, _COUNT_OPEN),
            (self._find_near, _FIND_NEAR),
        ):
            function.argtypes = [_KINDS[each] for each in kinds]

    def take_in(self, found: Scored, scores: Float[Tensor, "n B"], bias_n: Tensor | None, block: Block) -> None:
        """Take in the scores of a block, as :meth:`Scored.take_in` does, but without changing them."""
        (n, B), error = scores.shape, found.error
        of_groups = [error.slope[block.groups], error.more[block.groups], error.norm, found.highest[block.groups]]
        least = found.least[block.part :]
        self._take_in(
            *_at(scores, bias_n),
            *(n, B, found.group),
            *_at(*of_groups, least),
            len(least),
            *_at(found.top, found.sums),
            torch.get_num_threads(),
        )

    def near(
        self, rows: Rows, found: Scored, x_Bd: Float[Tensor, "B d"], share: float, *, many: int
    ) -> tuple[Tensor, Tensor] | None:
        """Return samples and those of the rows that may have the highest score, each (K,).

        Args:
            rows: Rows, which are kept.
            found: What the pass over their scores has found.
            x_Bd: Samples, float32.
            share: Factor of the bias.
            many: Groups per sample; None is returned if more are left open.
        """
        assert rows.kept is not None
        (groups, B), error, threads = found.highest.shape, found.error, torch.get_num_threads()
        open_groups = [found.highest, found.least, rows.part_of, error.most()]
        count_B = torch.empty(B, dtype=torch.int64)
        self._count_open(*_at(*open_groups), groups, B, *_at(count_B), threads)
        place_B = count_B.cumsum(0)
        P = int(place_B[-1])
        if many * B < P:
            return None
        sample_P, group_P = torch.empty(2, P, dtype=torch.int64)
        near_Pg = torch.empty(P, rows.group, dtype=torch.bool)
        bias_n = rows.bias_of(slice(None), torch.float32, share)
        place_B -= count_B
        self._find_near(
            *_at(*open_groups, error.slope, error.more, error.norm, rows.kept, bias_n, x_Bd),
            *(groups, B, rows.group, rows.dim),
            *_at(place_B, sample_P, group_P, near_Pg),
            threads,
        )
        pair_K, at_K = near_Pg.nonzero().unbind(dim=1)
        return sample_P[pair_K], group_P[pair_K] * rows.group + at_K


@lru_cache(maxsize=1)
def kernel() -> Kernel | None:
    """Return the compiled passes; None without a compiler, or with ``TORCH_COMPILE_DISABLE=1``."""
    if os.environ.get("TORCH_COMPILE_DISABLE") == "1":
        return None
    features = _OPTIONS.get(torch.backends.cpu.get_cpu_capability(), ())
    try:
        compiled = Kernel(built(Path(__file__).with_name("scoring.c"), features))
    except CannotBuild as error:
        log.info("validation may take half as long again, as its passes are not compiled: %s", error)
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
    error, offset_B = rows.error(x_Bd.norm(dim=1), torch.float32, 1.0), rows.offset(x_Bd, torch.float32, 1.0)
    groups, parts = len(rows.part_of), len(rows.parts)
    found, of_torch = (
        Scored.begin(error, groups=groups, group=8, parts=parts, sums=True, offset_B=offset_B) for _ in range(2)
    )
    for block in rows.blocks:
        scores, bias_n = rows.rounded(block.rows) @ x_Bd.float().T, rows.bias_of(block.rows, torch.float32, 1.0)
        compiled.take_in(found, scores, bias_n, block)
        of_torch.take_in(scores, bias_n, block)
    assert found.sums is not None
    assert of_torch.sums is not None
    same = [(found.least, of_torch.least), (found.sums, of_torch.sums)]
    if not (torch.equal(found.highest, of_torch.highest) and all(torch.allclose(*each, rtol=1e-5) for each in same)):
        return False
    near = compiled.near(rows, found, x_Bd.float(), 1.0, many=groups)
    best_B = (x_Bd @ weight.double().T + weight[:, 0].double()).argmax(dim=1)
    return near is not None and set(enumerate(best_B.tolist())) <= set(
        zip(near[0].tolist(), rows.ids[near[1]].tolist(), strict=True)
    )


def _at(*tensors: Tensor | None) -> list[int | None]:
    """Return where contiguous tensors lie in memory."""
    assert all(each is None or each.is_contiguous() for each in tensors)
    return [None if each is None else each.data_ptr() for each in tensors]
