"""Compute the fields of a tile of class pairs, such as cosines and distances.

Functions of pairs receive these fields as parameters. Products and distances are derived from one Gram product per
tile; near_pairs.py corrects the distances of near pairs.

Shapes: a tile has R rows and S columns, both of consecutive classes; C classes, d dimensions.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from collapse.numerics.near_pairs import REDO, Points
from collapse.numerics.statistics import ROUNDING, EmbeddingStatistics, unit_rows
from collapse.numerics.values import Values, as_tensor, call_by_names, plain, remarked
from collapse.plugin.metrics import Noted
from collapse.plugin.parameters import Asked, of_tiles


def tile_side(device: torch.device) -> int:
    """Return the number of rows, and of columns, of a tile: enough for fast matrix products on the device."""
    return 768 if device.type == "cpu" else 4096


def tiles(n: int, side: int) -> Iterator[tuple[slice, slice]]:
    """Yield the rows and columns of the tiles of the upper triangle, including the diagonal."""
    runs = [slice(start, min(start + side, n)) for start in range(0, n, side)]
    for index, rows in enumerate(runs):
        for columns in runs[index:]:
            yield rows, columns


class ClassGeometry:
    """Norms and points of the classes, from which the fields of all tiles are computed.

    Attributes:
        pair_counts: By the name of a field of pairs, such as "sqdist": the number of pairs, in all tiles so far, whose
            field was set to 0, because the two points differ only by float64 rounding.
    """

    @torch.no_grad()
    def __init__(self, s: EmbeddingStatistics) -> None:
        lengths_C = s.means.norm(dim=1)
        ones_C = torch.ones_like(s.norms)
        self.centred, self.uncentred, self.variances = s.centred_means, s.means, s.variances
        self.sqnorms = torch.einsum("cd,cd->c", s.centred_means, s.centred_means)  # without a temporary C × d tensor
        self.inverse_norms = (1 / s.norms).where(s.norms > 0, torch.nan)
        self.inverse_lengths = (1 / lengths_C).where(lengths_C > 0, torch.nan)
        self.projections = s.centred_means @ s.global_mean  # ⟨μ_c − μ̄, μ̄⟩
        self.global_sqnorm = float(s.global_mean @ s.global_mean)
        # for a mean shorter than this, ‖μ̄‖² dominates: its uncentred products are inaccurate if made from centred ones
        least = math.sqrt(self.global_sqnorm * REDO)
        self.has_short_means = bool(((lengths_C > 0) & (lengths_C < least)).any())
        rounding_C = (s.mean_rounding / s.norms).where(s.norms > 0, 0)
        # uncentred means, because centring would add rounding errors to their differences
        self.mean_points = Points(lambda i: s.means[i], self.sqnorms, ROUNDING / 2 * lengths_C)
        self.directions = Points(lambda i: s.centred_means[i] / s.norms[i, None], ones_C, rounding_C)
        self.uncentred_directions = Points(lambda i: unit_rows(s.means[i]), ones_C, ROUNDING * ones_C)
        self.pair_counts = Counter[str]()


class Tile:
    """Compute the fields of one tile of class pairs, and the values of functions of pairs for this tile.

    Args:
        geometry: Norms and points of the classes.
        values: The values of functions of classes.
        rows, columns: Slices of the classes in the tile's rows and columns.
        gram: ⟨μ_c − μ̄, μ_c′ − μ̄⟩, shape (R, S); computed if not given.
        kept: Functions of pairs whose values are kept, because they are parameters of other functions.

    Attributes:
        rows, columns, gram: The arguments; ``gram`` is computed if it was not given.
    """

    def __init__(
        self,
        geometry: ClassGeometry,
        values: Values,
        rows: slice,
        columns: slice,
        gram: Float[Tensor, "R S"] | None = None,
        kept: Collection[Callable[..., Any]] = (),
    ) -> None:
        self._geometry, self._values, self._kept = geometry, values, kept
        self.rows, self.columns = rows, columns
        self._held: dict[Any, Any] = {}
        with torch.no_grad():
            self.gram = geometry.centred[rows] @ geometry.centred[columns].T if gram is None else gram
        self._held["gram"] = self.gram

    @property
    def diagonal(self) -> bool:
        """Whether rows and columns are the same classes; such a tile holds every pair twice."""
        return self.rows.start == self.columns.start

    def value(self, function: Callable[..., Any]) -> Float[Tensor, "R S"] | Noted:
        """Return a function's values for this tile.

        The result is a :class:`Noted` if the function's value or the value of a parameter has a remark.

        Raises:
            Failed: The function failed.
        """
        if function in self._held:
            return self._held[function]
        found = call_by_names(function, self._argument)
        if isinstance(found, Noted) and found.value is None:
            return found
        tile = remarked(found, as_tensor(function, plain(found), self.gram, self.gram.shape).contiguous())
        if function in self._kept:
            self._held[function] = tile
        return tile

    @torch.no_grad()
    def field(self, name: str) -> Float[Tensor, "R S"]:
        """Return one number per class pair; ``name`` is a key of :data:`collapse.plugin.parameter_names.OF_PAIRS`."""
        if name not in self._held:
            self._held[name] = getattr(self, f"_{name}")()
        found: Tensor = self._held[name]
        return found

    def _argument(self, each: Asked) -> Any:
        if each.kind == "field":
            return self.field(each.name)
        if each.kind == "side":
            if each.name not in self._held:
                self._held[each.name] = self._side(each)
            return self._held[each.name]
        if each.kind == "function" and of_tiles(each.target):
            return self.value(each.target)
        return self._values.argument(each)

    def _side(self, each: Asked) -> Any:
        """Return the value of a parameter ``row_X`` or ``column_X``: X of the classes in the tile's rows or columns.

        If each class has one number, the shape is (R, 1) for rows and (1, S) for columns. If each class has a vector,
        the shape is (R, d) for rows and (S, d) for columns.
        """
        of_rows = each.name.startswith("row_")
        found = self._values.argument(each.target)
        value = plain(found)
        if not isinstance(value, Tensor):
            return found
        side = value[self.rows if of_rows else self.columns]
        if side.dim() == 1:
            side = side.unsqueeze(1 if of_rows else 0)
        return remarked(found, side)

    def _sides(self, values_C: Float[Tensor, " C"]) -> tuple[Float[Tensor, "R 1"], Float[Tensor, " S"]]:
        """Return the values of the classes in the rows, and of those in the columns."""
        return values_C[self.rows].unsqueeze(1), values_C[self.columns]

    def _variance_sum(self) -> Tensor:
        a_R1, b_S = self._sides(self._geometry.variances)
        return a_R1 + b_S

    def _sqdist(self) -> Tensor:
        a_R1, b_S = self._sides(self._geometry.sqnorms)
        return self._corrected("sqdist", (a_R1 + b_S).sub_(self.gram, alpha=2), self._geometry.mean_points)

    def _distance(self) -> Tensor:
        return self.field("sqdist").sqrt()

    def _cosine(self) -> Tensor:
        return self._cosines(self.gram, self._geometry.inverse_norms)

    def _unit_sqdist(self) -> Tensor:
        sqdist = torch.rsub(self.field("cosine"), 2, alpha=2)  # 2 − 2·cosine
        return self._corrected("unit_sqdist", sqdist, self._geometry.directions)

    def _uncentred_unit_sqdist(self) -> Tensor:
        """Return the squared distances between uncentred directions μ/‖μ‖.

        They are derived from ⟨μ, μ′⟩ = gram + ⟨μ − μ̄, μ̄⟩ + ⟨μ′ − μ̄, μ̄⟩ + ‖μ̄‖². If some means are much shorter than
        μ̄, this sum loses digits, so ⟨μ, μ′⟩ is computed directly.
        """
        geometry = self._geometry
        if geometry.has_short_means:
            product = geometry.uncentred[self.rows] @ geometry.uncentred[self.columns].T
        else:
            a_R1, b_S = self._sides(geometry.projections)
            product = (a_R1 + geometry.global_sqnorm + b_S).add_(self.gram)
        cosine = self._cosines(product, geometry.inverse_lengths)
        sqdist = torch.rsub(cosine, 2, alpha=2)  # 2 − 2·cosine
        return self._corrected("uncentred_unit_sqdist", sqdist, geometry.uncentred_directions)

    def _cosines(self, product: Tensor, inverse_C: Tensor) -> Tensor:
        """Return ⟨a, b⟩ / (‖a‖ ‖b‖) from the products and the inverse norms, which are NaN for a zero vector."""
        a_R1, b_S = self._sides(inverse_C)
        return (product * a_R1).mul_(b_S)

    def _corrected(self, name: str, sqdist: Tensor, points: Points) -> Tensor:
        self._geometry.pair_counts[name] += points.correct(sqdist, self.rows, self.columns)
        return sqdist
