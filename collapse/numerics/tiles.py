"""One tile of class pairs, as pair metrics see it; each field is derived at most once from one Gram product.

Shapes: a tile has R rows and S columns, each a run of classes; d dimensions.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from collapse.numerics import fields
from collapse.numerics.near_pairs import REDO, NearPairs
from collapse.numerics.returned import as_mask
from collapse.numerics.statistics import ROUNDING, EmbeddingStatistics, unit_rows
from collapse.plugin.metrics import Over

# A distance below this share of the largest ‖μ‖ can be a rounding error of the embeddings.
_ROUNDING = {"float64": 2.0**-51, "float32": 2.0**-22, "float16": 2.0**-9, "bfloat16": 2.0**-7}

LEAVES_OUT_ZEROS: Mapping[str, str] = {
    "distinct": "sqdist",
    "distinct_directions": "unit_sqdist",
    "distinct_uncentred_directions": "uncentred_unit_sqdist",
}
"""The field whose zeros are the pairs that an ``over`` excludes."""


@dataclass(frozen=True)
class Points:
    """Per-class values of a sweep, in the sweep's dtype, computed once.

    Attributes:
        short_means: Whether a mean is so short relative to the global mean that its uncentred products, computed from
            centred ones, are inaccurate.
        near: How to recompute near pairs, by field.
    """

    statistics: EmbeddingStatistics
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
    def of(cls, s: EmbeddingStatistics, dtype: torch.dtype) -> "Points":
        """Prepare the centred means of a store for a sweep."""
        means_Cd = s.centred_means
        uncentred_norms_C = s.means.norm(dim=1)
        rounding = _ROUNDING.get(s.dtype, _ROUNDING["float32"]) * float(uncentred_norms_C.max())
        sqnorms_C = torch.einsum("cd,cd->c", means_Cd, means_Cd).to(dtype)  # without their elementwise product
        inverse_C = torch.where(uncentred_norms_C > 0, 1 / uncentred_norms_C, 0.0)
        global_sqnorm = float(s.global_mean @ s.global_mean)
        unit_C = torch.ones_like(sqnorms_C)
        directions_C = torch.where(s.has_direction, s.mean_rounding / s.norms, 0.0)
        return cls(
            statistics=s,
            means=means_Cd.to(dtype),
            sqnorms=sqnorms_C,
            inverse_norms=torch.where(s.has_direction, 1 / s.norms, 0.0).to(dtype),
            variances=s.variances.to(dtype),
            projections=(means_Cd @ s.global_mean).to(dtype),  # ⟨μ_c − μ̄, μ̄⟩
            uncentred_inverse_norms=inverse_C.to(dtype),
            global_sqnorm=global_sqnorm,
            short_means=math.sqrt(global_sqnorm * REDO[dtype]) * float(inverse_C.max()) > 1,  # its square can overflow
            rounding=rounding**2,
            near={  # uncentred means, because centring would round their differences
                "sqdist": NearPairs(lambda i: s.means[i], s.dim, sqnorms_C, ROUNDING / 2 * uncentred_norms_C),
                "unit_sqdist": NearPairs(lambda i: s.centred_means[i] / s.norms[i, None], s.dim, unit_C, directions_C),
                "uncentred_unit_sqdist": NearPairs(
                    lambda i: unit_rows(s.means[i]), s.dim, unit_C, torch.full_like(uncentred_norms_C, ROUNDING)
                ),
            },
        )

    def tensors(self) -> dict[str, Tensor]:
        """Return its tensors, under names that no tensor of the statistics has."""
        return {f"points.{name}": value for name, value in vars(self).items() if isinstance(value, Tensor)}


class _Field(cached_property[Tensor]):
    """A field of a pair, computed on first access; its tensor and version counter are recorded then."""

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
        close_pairs: Number of unequal pairs closer than the rounding of the embeddings, once ``sqdist`` is computed.
        rounded: Number of pairs of means or directions that are treated as equal, because they differ only by the
            rounding of float64; by field, once it is computed.
    """

    def __init__(self, points: Points, rows: slice, columns: slice, gram: Tensor) -> None:
        self._points = points
        self._rows, self._columns = rows, columns
        self.gram = gram
        self._made: dict[str, tuple[Tensor, int]] = {"gram": (gram, gram._version)}
        self.diagonal = rows.start == columns.start
        self.close_pairs = 0
        self.rounded: dict[str, int] = {}
        self._has_zeros: set[str] = set()

    @property
    def statistics_of_pairs(self) -> EmbeddingStatistics:
        """The statistics of the classes, from which a pair metric may ask for values too."""
        return self._points.statistics

    @property
    def runs(self) -> tuple[slice, slice]:
        """The classes of rows and columns."""
        return self._rows, self._columns

    def written(self) -> list[str]:
        """Return the fields that were written to, replaced or deleted after they were computed."""
        have = vars(self)
        return [name for name, (made, n) in self._made.items() if have.get(name) is not made or made._version != n]

    def fields(self) -> dict[str, Tensor]:
        """Compute and return every field by name."""
        names = [name for name, each in vars(Pair).items() if isinstance(each, _Field)]
        return {name: getattr(self, name) for name in ("gram", *names)}

    def rows(self, name: str) -> Tensor:
        """Return the block of a per-class tensor for this tile's rows: means (not centred), centred_means, counts, …"""
        return self._block(name, self._rows)

    def columns(self, name: str) -> Tensor:
        """Return the block of a per-class tensor for this tile's columns."""
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
        return fields.sums(*self._of("variances"))

    @_Field
    def sqdist(self) -> Tensor:
        """‖μ_c − μ_c′‖², exactly 0 where the two means are equal to the rounding of float64."""
        sqdist = fields.squared_distances(self.gram, *self._of("sqnorms"))
        if self._correct("sqdist", sqdist) <= self._points.rounding:
            close = int(((sqdist > 0) & (sqdist < self._points.rounding)).sum())
            self.close_pairs = close // 2 if self.diagonal else close
        return sqdist

    @_Field
    def distance(self) -> Tensor:
        """‖μ_c − μ_c′‖."""
        return self.sqdist.sqrt()

    @_Field
    def cosine(self) -> Tensor:
        """⟨u_c, u_c′⟩; 0 where a centred mean is zero."""
        return fields.cosines(self.gram, *self._of("inverse_norms"))

    @_Field
    def unit_sqdist(self) -> Tensor:
        """‖u_c − u_c′‖² of unit centred means, exactly 0 where the directions are equal to the rounding of float64."""
        sqdist = fields.unit_squared_distances(self.cosine)
        self._correct("unit_sqdist", sqdist)
        return sqdist

    @_Field
    def uncentred_unit_sqdist(self) -> Tensor:
        """The same for μ_c/‖μ_c‖, not centred. It needs no second product: ⟨μ, μ′⟩ follows from the centred one."""
        points = self._points
        if points.short_means:
            product = self.rows("means") @ self.columns("means").T
        else:
            product = fields.uncentred_products(self.gram, *self._of("projections"), points.global_sqnorm)
        cosine = fields.cosines(product, *self._of("uncentred_inverse_norms"))
        sqdist = fields.unit_squared_distances(cosine)
        self._correct("uncentred_unit_sqdist", sqdist)
        return sqdist

    def _of(self, name: str) -> tuple[Tensor, Tensor]:
        """Return a value per class of :class:`Points` for the rows and for the columns."""
        values_C = getattr(self._points, name)
        return values_C[self._rows], values_C[self._columns]

    def _correct(self, name: str, sqdist: Tensor) -> float:
        """Recompute near pairs; return the smallest squared distance."""
        found = self._points.near[name].correct(sqdist, self._rows, self._columns)
        if found.rounded:
            self.rounded[name] = found.rounded
        if found.zeros:
            self._has_zeros.add(name)
        return found.least

    def left_out(self, over: Over | Callable[["Pair"], object]) -> Bool[Tensor, "R S"] | None:
        """Return the pairs that a metric's ``over`` excludes, or None if there are none.

        Raises:
            PluginError: A function did not return a mask of the tile's shape.
        """
        if not isinstance(over, str):
            return ~as_mask(over(self), self.gram)
        points, masks = self._points, []
        if over in LEAVES_OUT_ZEROS:
            name = LEAVES_OUT_ZEROS[over]
            field: Tensor = getattr(self, name)
            if name in self._has_zeros:
                masks.append(field <= 0)
        zero = None  # pairs with a class that has no direction
        if over in ("directions", "distinct_directions"):
            zero = points.inverse_norms
        elif over == "distinct_uncentred_directions":
            zero = points.uncentred_inverse_norms
        if zero is not None and (zero[self._rows].amin() == 0 or zero[self._columns].amin() == 0):
            masks.append((zero[self._rows] == 0).unsqueeze(1) | (zero[self._columns] == 0))
        return torch.stack(masks).any(dim=0) if masks else None
