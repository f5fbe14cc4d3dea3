"""One tile of class pairs, as functions of pairs see it; each field is derived at most once from one Gram product.

Shapes: a tile has R rows and S columns, each a run of classes; C classes, d dimensions.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from collapse.numerics.near_pairs import REDO, NearPairs
from collapse.numerics.statistics import ROUNDING, EmbeddingStatistics, unit_rows
from collapse.numerics.values import Values, as_tensor, with_remarks
from collapse.plugin.guarding import Failed, Shared, call
from collapse.plugin.metrics import Noted
from collapse.plugin.parameters import Asked, asked

# A distance below this share of the largest ‖μ‖ can be a rounding error of the embeddings.
_ROUNDING = {"float64": 2.0**-51, "float32": 2.0**-22, "float16": 2.0**-9, "bfloat16": 2.0**-7}

NEAR = ("sqdist", "unit_sqdist", "uncentred_unit_sqdist")
"""Fields whose near pairs are recomputed; those of equal points are exactly 0."""


@dataclass(frozen=True)
class Points:
    """Per-class values of a sweep, in the sweep's dtype, computed once.

    Attributes:
        short_means: Whether a mean is so short relative to the global mean that its uncentred products, computed from
            centred ones, are inaccurate.
        rounding: Squared distance below which two means may differ by the rounding of the embeddings only.
        near: How to recompute near pairs, by field.
    """

    uncentred: Float[Tensor, "C d"]
    means: Float[Tensor, "C d"]
    sqnorms: Float[Tensor, " C"]
    inverse_norms: Float[Tensor, " C"]
    variances: Float[Tensor, " C"]
    projections: Float[Tensor, " C"]
    uncentred_inverse_norms: Float[Tensor, " C"]
    global_sqnorm: float
    short_means: bool
    rounding: float
    near: Mapping[str, NearPairs]

    @classmethod
    def of(cls, s: EmbeddingStatistics, dtype: torch.dtype = torch.float64) -> "Points":
        """Prepare the centred means of a store for a sweep."""
        means_Cd, norms_C = s.centred_means, s.norms
        uncentred_norms_C = s.means.norm(dim=1)
        rounding = _ROUNDING.get(s.dtype, _ROUNDING["float32"]) * float(uncentred_norms_C.max())
        sqnorms_C = torch.einsum("cd,cd->c", means_Cd, means_Cd).to(dtype)  # without their elementwise product
        inverse_C = torch.where(uncentred_norms_C > 0, 1 / uncentred_norms_C, 0.0)
        global_sqnorm = float(s.global_mean @ s.global_mean)
        unit_C = torch.ones_like(sqnorms_C)
        directions_C = torch.where(norms_C > 0, s.mean_rounding / norms_C, 0.0)
        return cls(
            uncentred=s.means,
            means=means_Cd.to(dtype),
            sqnorms=sqnorms_C,
            inverse_norms=torch.where(norms_C > 0, 1 / norms_C, 0.0).to(dtype),
            variances=s.variances.to(dtype),
            projections=(means_Cd @ s.global_mean).to(dtype),  # ⟨μ_c − μ̄, μ̄⟩
            uncentred_inverse_norms=inverse_C.to(dtype),
            global_sqnorm=global_sqnorm,
            short_means=math.sqrt(global_sqnorm * REDO[dtype]) * float(inverse_C.max()) > 1,  # its square can overflow
            rounding=rounding**2,
            near={  # uncentred means, because centring would round their differences
                "sqdist": NearPairs(lambda i: s.means[i], s.dim, sqnorms_C, ROUNDING / 2 * uncentred_norms_C),
                "unit_sqdist": NearPairs(lambda i: s.centred_means[i] / norms_C[i, None], s.dim, unit_C, directions_C),
                "uncentred_unit_sqdist": NearPairs(
                    lambda i: unit_rows(s.means[i]), s.dim, unit_C, torch.full_like(uncentred_norms_C, ROUNDING)
                ),
            },
        )


class Tile:
    """One tile of class pairs: its fields, blocks of class values, and values of other functions of pairs.

    Args:
        points: Per-class values of the sweep.
        values: What functions of classes give.
        rows, columns: The tile's classes.
        gram: ⟨μ_c − μ̄, μ_c′ − μ̄⟩, shape (R, S).
        kept: Functions of pairs whose values are kept, because others ask for them.

    Attributes:
        diagonal: Whether rows and columns are the same classes.
        close_pairs: Number of unequal pairs closer than the rounding of the embeddings, once ``sqdist`` is computed.
        rounded, zeros: By field, number of pairs that are treated as equal because they differ only by the rounding of
            float64, and number of all equal pairs.
    """

    def __init__(
        self,
        points: Points,
        values: Values,
        rows: slice,
        columns: slice,
        gram: Float[Tensor, "R S"],
        kept: Collection[Callable[..., Any]] = (),
    ) -> None:
        self._points, self._values, self._kept = points, values, kept
        self._runs = rows, columns
        self.diagonal = rows.start == columns.start
        self.shared = Shared()
        self._held: dict[Any, Any] = {}
        self._hold("gram", gram)
        self.gram = gram
        self.close_pairs = 0
        self.rounded: dict[str, int] = {}
        self.zeros: dict[str, int] = {}

    def value(self, function: Callable[..., Any]) -> Float[Tensor, "R S"] | Noted:
        """Return the value of a function of pairs for this tile; a remark if what it asks for has one.

        Raises:
            Failed: It failed, or wrote to a shared tensor.
        """
        if function in self._held:
            return self._held[function]
        given = {each.name: self._argument(each) for each in asked(function)}
        remarks = [each for each in given.values() if isinstance(each, Noted)]
        lacking = next((each for each in remarks if each.value is None), None)
        if lacking is not None:
            return lacking
        plain = {name: each.value if isinstance(each, Noted) else each for name, each in given.items()}
        found = call(function, plain, self.shared)
        if written := self._values.shared.written():
            raise Failed(function, f"it wrote to {', '.join(written)}, which others read too", wrote=True)
        tile = with_remarks(as_tensor(function, found, self.gram, self.gram.shape).contiguous(), remarks)
        return self._hold(function, tile) if function in self._kept else tile

    def field(self, name: str) -> Float[Tensor, "R S"]:
        """Return one of the fields of :data:`collapse.plugin.names.OF_PAIRS`."""
        if name not in self._held:
            self._hold(name, getattr(self, f"_{name}")())
        found: Tensor = self._held[name]
        return found

    def _hold(self, key: Any, value: Any) -> Any:
        self._held[key] = value
        self.shared.add(getattr(key, "__name__", key), value)
        return value

    def _argument(self, each: Asked) -> Any:
        if each.kind == "field":
            return self.field(each.name)
        if each.kind == "block":
            if each.name not in self._held:
                self._hold(each.name, self._block(each))
            return self._held[each.name]
        if each.kind == "function" and each.target in self._kept:
            return self.value(each.target)
        return self._values.argument(each)

    def _block(self, each: Asked) -> Any:
        """Return the rows or columns of a class value: (R, 1) and (1, S) of numbers, (R, d) and (S, d) of vectors."""
        of_rows = each.name.startswith("row_")
        found = self._values.argument(each.target)
        value = found.value if isinstance(found, Noted) else found
        if not isinstance(value, Tensor):
            return found
        block = value[self._runs[0 if of_rows else 1]]
        if block.is_floating_point():
            block = block.to(self.gram.dtype)
        if block.dim() == 1:
            block = block.unsqueeze(1 if of_rows else 0)
        return Noted(block, found.text, found.kind) if isinstance(found, Noted) else block

    def _of(self, name: str) -> tuple[Tensor, Tensor]:
        """Return a value per class of :class:`Points` for the rows, (R, 1), and for the columns, (S,)."""
        values_C = getattr(self._points, name)
        return values_C[self._runs[0]].unsqueeze(1), values_C[self._runs[1]]

    def _variance_sum(self) -> Tensor:
        a_R1, b_S = self._of("variances")
        return a_R1 + b_S

    def _sqdist(self) -> Tensor:
        a_R1, b_S = self._of("sqnorms")
        sqdist = (a_R1 + b_S).sub_(self.gram, alpha=2)
        if self._correct("sqdist", sqdist) <= self._points.rounding:
            close = int(((sqdist > 0) & (sqdist < self._points.rounding)).sum())
            self.close_pairs = close // 2 if self.diagonal else close
        return sqdist

    def _distance(self) -> Tensor:
        return self.field("sqdist").sqrt()

    def _cosine(self) -> Tensor:
        return self._without_zeros(_cosines(self.gram, *self._of("inverse_norms")), "inverse_norms")

    def _unit_sqdist(self) -> Tensor:
        nothing = any(bool((each == 0).any()) for each in self._of("inverse_norms"))
        # a NaN of the cosine would hide the near pairs of the others
        cosine = _cosines(self.gram, *self._of("inverse_norms")) if nothing else self.field("cosine")
        sqdist = torch.rsub(cosine, 2, alpha=2)
        self._correct("unit_sqdist", sqdist)
        return self._without_zeros(sqdist, "inverse_norms")

    def _uncentred_unit_sqdist(self) -> Tensor:
        """It needs no second product: ⟨μ, μ′⟩ = ⟨μ − μ̄, μ′ − μ̄⟩ + ⟨μ − μ̄, μ̄⟩ + ⟨μ′ − μ̄, μ̄⟩ + ‖μ̄‖²."""
        points, (rows, columns) = self._points, self._runs
        if points.short_means:
            product = points.uncentred[rows].to(self.gram) @ points.uncentred[columns].to(self.gram).T
        else:
            a_R1, b_S = self._of("projections")
            product = (a_R1 + points.global_sqnorm + b_S).add_(self.gram)
        sqdist = torch.rsub(_cosines(product, *self._of("uncentred_inverse_norms")), 2, alpha=2)
        self._correct("uncentred_unit_sqdist", sqdist)
        return self._without_zeros(sqdist, "uncentred_inverse_norms")

    def _without_zeros(self, field: Tensor, inverse_norms: str) -> Tensor:
        """Set the pairs with a vector of length 0 to NaN."""
        a_R1, b_S = self._of(inverse_norms)
        if bool((a_R1 == 0).any()) or bool((b_S == 0).any()):
            field.masked_fill_((a_R1 == 0) | (b_S == 0), math.nan)
        return field

    def _correct(self, name: str, sqdist: Tensor) -> float:
        """Recompute near pairs; return the smallest squared distance."""
        found = self._points.near[name].correct(sqdist, *self._runs)
        self.rounded[name], self.zeros[name] = found.rounded, found.zeros
        return found.least


def _cosines(product: Tensor, inverse_rows: Tensor, inverse_columns: Tensor) -> Tensor:
    """⟨a, b⟩ / (‖a‖ ‖b‖) from inverse norms, which are 0 for a zero vector."""
    return (product * inverse_rows).mul_(inverse_columns)
