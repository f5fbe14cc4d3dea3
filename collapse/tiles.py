"""One tile of class pairs: what every pair metric sees, each field derived from one Gram product at most once.

Shapes: a tile has R rows and S columns, each a run of classes; d dimensions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from collapse.metrics import Over
from collapse.statistics import ROUNDING, EmbeddingStatistics, unit_rows

# Below this share of ‖a‖² + ‖b‖², a squared distance taken from a Gram product has lost too many digits.
_REDO = {torch.float64: 1e-6, torch.float32: 1e-2}
# A distance below this share of the largest ‖μ‖ is rounding of the embeddings themselves.
_ROUNDING = {"float64": 2.0**-51, "float32": 2.0**-22, "float16": 2.0**-9, "bfloat16": 2.0**-7}
_GATHER = 1 << 21  # numbers gathered at a time when distances are redone

LEAVES_OUT_ZEROS: Mapping[str, str] = {
    "distinct": "sqdist",
    "distinct_directions": "unit_sqdist",
    "distinct_uncentred_directions": "uncentred_unit_sqdist",
}
"""The field that says by a zero which pairs an ``over`` leaves out."""


@dataclass(frozen=True)
class Points:
    """What a sweep knows of each class, in the sweep's dtype, computed once."""

    statistics: EmbeddingStatistics
    means: Float[Tensor, "C d"]
    sqnorms: Float[Tensor, " C"]
    inverse_norms: Float[Tensor, " C"]
    variances: Float[Tensor, " C"]
    projections: Float[Tensor, " C"]
    uncentred_inverse_norms: Float[Tensor, " C"]
    global_sqnorm: float
    rounding: float
    equal: Float[Tensor, " C"]
    equal_directions: Float[Tensor, " C"]

    @classmethod
    def of(cls, s: EmbeddingStatistics, dtype: torch.dtype) -> "Points":
        """Prepare the centred means of a store for a sweep."""
        means_Cd = s.centred_means
        projections_C = means_Cd @ s.global_mean  # ⟨μ_c − μ̄, μ̄⟩: turns centred products into uncentred ones
        uncentred_norms_C = s.means.norm(dim=1)
        rounding = _ROUNDING.get(s.dtype, _ROUNDING["float32"]) * float(uncentred_norms_C.max())
        return cls(
            statistics=s,
            means=means_Cd.to(dtype),
            sqnorms=torch.linalg.vecdot(means_Cd, means_Cd).to(dtype),
            inverse_norms=torch.where(s.has_direction, 1 / s.norms, 0.0).to(dtype),
            variances=s.variances.to(dtype),
            projections=projections_C.to(dtype),
            uncentred_inverse_norms=_inverse(uncentred_norms_C).to(dtype),
            global_sqnorm=float(s.global_mean @ s.global_mean),
            rounding=rounding**2,
            equal=ROUNDING / 2 * uncentred_norms_C,
            equal_directions=torch.where(s.has_direction, s.mean_rounding / s.norms, 0.0),
        )

    def tensors(self) -> dict[str, Tensor]:
        """Its tensors by a name that no tensor of the statistics has."""
        return {f"points.{name}": value for name, value in vars(self).items() if isinstance(value, Tensor)}


class _Field(cached_property[Tensor]):
    """A field of a pair that is computed when first read; what it was then, and its version counter, are noted."""

    def __get__(self, pair: Any, owner: type | None = None) -> Any:
        value = super().__get__(pair, owner)
        if pair is not None:
            pair._made[self.attrname] = (value, value._version)
        return value


class Pair:
    """One tile of class pairs as a pair metric sees it. Fields are shared: a metric that writes to one fails.

    Attributes:
        gram: ⟨μ_c − μ̄, μ_c′ − μ̄⟩, shape (R, S).
        diagonal: Whether rows and columns are the same classes.
        close_pairs: Once ``sqdist`` is known, pairs closer than the rounding of the embeddings, but not equal.
        rounded: Once they are known, pairs of means or directions that differ by the rounding of float64 only and are
            taken as equal, by field.
    """

    def __init__(self, points: Points, rows: slice, columns: slice, gram: Tensor) -> None:
        self._points = points
        self._rows, self._columns = rows, columns
        self.gram = gram
        self._made: dict[str, tuple[Tensor, int]] = {"gram": (gram, gram._version)}
        self.diagonal = rows.start == columns.start
        self.close_pairs = 0
        self.rounded: dict[str, int] = {}
        self._near: set[str] = set()  # fields with a pair so near that it may be 0

    def written(self) -> list[str]:
        """Fields that are not as they were computed: written to, replaced or deleted."""
        have = vars(self)
        return [name for name, (made, n) in self._made.items() if have.get(name) is not made or made._version != n]

    def fields(self) -> dict[str, Tensor]:
        """Every field by name, computed now."""
        names = [name for name, each in vars(Pair).items() if isinstance(each, _Field)]
        return {name: getattr(self, name) for name in ("gram", *names)}

    def rows(self, name: str) -> Tensor:
        """The raw block of a per-class tensor for this tile's rows: means (not centred), centred_means, counts, ..."""
        return self._block(name, self._rows)

    def columns(self, name: str) -> Tensor:
        """The raw block of a per-class tensor for this tile's columns."""
        return self._block(name, self._columns)

    def _block(self, name: str, run: slice) -> Tensor:
        if name == "centred_means":
            return self._points.means[run]
        value = getattr(self._points.statistics, name)[run]
        return value.to(self.gram.dtype) if value.is_floating_point() else value

    @property
    def norms(self) -> tuple[Tensor, Tensor]:
        """‖μ_c − μ̄‖ of rows (R, 1) and columns (1, S)."""
        return self.rows("norms").unsqueeze(1), self.columns("norms").unsqueeze(0)

    @property
    def counts(self) -> tuple[Tensor, Tensor]:
        """N_c of rows (R, 1) and columns (1, S)."""
        return self.rows("counts").unsqueeze(1), self.columns("counts").unsqueeze(0)

    @_Field
    def variance_sum(self) -> Tensor:
        """σ_c² + σ_c′²."""
        variances = self._points.variances
        return variances[self._rows].unsqueeze(1) + variances[self._columns]

    @_Field
    def sqdist(self) -> Tensor:
        """‖μ_c − μ_c′‖², exactly 0 where the two means are equal to the rounding of float64."""
        sqnorms, means = self._points.sqnorms, self._points.statistics.means
        rows, columns = sqnorms[self._rows].unsqueeze(1), sqnorms[self._columns]
        sqdist = (rows + columns).sub_(self.gram, alpha=2)
        if self.diagonal:  # a class is no neighbour of its own
            sqdist.fill_diagonal_(float("inf"))
        redo = _REDO[sqdist.dtype]
        least = sqdist.amin()
        if least < redo * (rows.amax() + columns.amax()):
            self._redo(sqdist, sqdist < redo * (rows + columns), lambda index: means[index])  # uncentred: no digit lost
            least = sqdist.amin()
        if least <= max(self._points.rounding, 4 * float(self._points.equal.max()) ** 2):
            self._round("sqdist", sqdist, self._points.equal)
            close = int(((sqdist > 0) & (sqdist < self._points.rounding)).sum())
            self.close_pairs = close // 2 if self.diagonal else close
        return sqdist.fill_diagonal_(0) if self.diagonal else sqdist

    @_Field
    def distance(self) -> Tensor:
        """‖μ_c − μ_c′‖."""
        return self.sqdist.sqrt()

    @_Field
    def cosine(self) -> Tensor:
        """⟨u_c, u_c′⟩; 0 where a centred mean is zero."""
        inverse = self._points.inverse_norms
        return (self.gram * inverse[self._rows].unsqueeze(1)).mul_(inverse[self._columns])

    @_Field
    def unit_sqdist(self) -> Tensor:
        """‖u_c − u_c′‖² of unit centred means, exactly 0 where the directions are equal to the rounding of float64."""
        points = self._points
        s = points.statistics
        return self._unit(
            "unit_sqdist",
            self.cosine,
            lambda i: s.centred_means[i] / s.norms[i].unsqueeze(1),
            points.equal_directions,
        )

    @_Field
    def uncentred_unit_sqdist(self) -> Tensor:
        """The same for μ_c/‖μ_c‖, not centred. No second product: ⟨μ, μ′⟩ follows from the centred one.

        Where a mean is short beside the global one, little would be left of that sum, and the product is taken.
        """
        points = self._points
        inverse = points.uncentred_inverse_norms
        longest = float(inverse[self._rows].amax() * inverse[self._columns].amax())
        if points.global_sqnorm * longest * _REDO[self.gram.dtype] > 1:
            product = self.rows("means") @ self.columns("means").T
        else:
            rows = (points.projections[self._rows] + points.global_sqnorm).unsqueeze(1)
            product = (rows + points.projections[self._columns]).add_(self.gram)
        cosine = product.mul_(inverse[self._rows].unsqueeze(1)).mul_(inverse[self._columns])
        rounding_C = torch.full_like(points.equal, ROUNDING)
        return self._unit("uncentred_unit_sqdist", cosine, lambda i: unit_rows(points.statistics.means[i]), rounding_C)

    def _unit(self, name: str, cosine: Tensor, unit: Callable[[Tensor], Tensor], rounding_C: Tensor) -> Tensor:
        sqdist = torch.rsub(cosine, 2, alpha=2)
        if self.diagonal:
            sqdist.fill_diagonal_(float("inf"))
        redo = 2 * _REDO[sqdist.dtype]
        least = sqdist.amin()
        if least < redo:
            self._redo(sqdist, sqdist < redo, unit)
        if least <= max(redo, 4 * float(rounding_C.max()) ** 2):
            self._round(name, sqdist, rounding_C)
        return sqdist.fill_diagonal_(0) if self.diagonal else sqdist

    def _round(self, name: str, sqdist: Tensor, rounding_C: Tensor) -> None:
        """Set to 0 what is no more than the rounding of both classes, and count it under a name."""
        self._near.add(name)
        least = (rounding_C[self._rows].unsqueeze(1) + rounding_C[self._columns]).square()
        equal = (sqdist > 0) & (sqdist <= least)
        if found := int(equal.sum()):
            self.rounded[name] = found // 2 if self.diagonal else found
            sqdist.masked_fill_(equal, 0)

    def _redo(self, sqdist: Tensor, close: Tensor, points: Callable[[Tensor], Tensor]) -> None:
        """Replace the marked squared distances by those of direct differences."""
        pairs = close.nonzero()
        for some in pairs.split(max(1, _GATHER // self._points.means.shape[1])):
            delta = points(some[:, 0] + self._rows.start) - points(some[:, 1] + self._columns.start)
            sqdist[some[:, 0], some[:, 1]] = torch.linalg.vecdot(delta, delta).to(sqdist.dtype)

    def left_out(self, over: Over) -> Bool[Tensor, "R S"] | None:
        """The pairs that a metric declared over ``over`` leaves out, or None where there are none."""
        points, masks = self._points, []
        if over in LEAVES_OUT_ZEROS:
            name = LEAVES_OUT_ZEROS[over]
            field: Tensor = getattr(self, name)
            if name in self._near and field.amin() <= 0:
                masks.append(field <= 0)
        zero = None  # where a class has no direction
        if over in ("directions", "distinct_directions"):
            zero = points.inverse_norms
        elif over == "distinct_uncentred_directions":
            zero = points.uncentred_inverse_norms
        if zero is not None and (zero[self._rows].amin() == 0 or zero[self._columns].amin() == 0):
            masks.append((zero[self._rows] == 0).unsqueeze(1) | (zero[self._columns] == 0))
        return torch.stack(masks).any(dim=0) if masks else None


def _inverse(norms: Tensor) -> Tensor:
    return torch.where(norms > 0, 1 / norms, torch.zeros_like(norms))
