"""The fields of a tile of class pairs, as pure functions of the Gram product and of per-class values.

The code never waits for a device and never branches on a value. Squared distances
of near points lose digits; near_pairs.py recomputes those.

Shapes: a tile has R rows and S columns.
"""

import torch
from jaxtyping import Float
from torch import Tensor

Tile = Float[Tensor, "R S"]


def squared_distances(gram: Tile, rows: Float[Tensor, " R"], columns: Float[Tensor, " S"]) -> Tile:
    """‖a − b‖² = ‖a‖² + ‖b‖² − 2⟨a, b⟩ from the squared norms of rows and columns."""
    return (rows.unsqueeze(1) + columns).sub_(gram, alpha=2)


def cosines(product: Tile, inverse_rows: Float[Tensor, " R"], inverse_columns: Float[Tensor, " S"]) -> Tile:
    """⟨a, b⟩ / (‖a‖ ‖b‖) from inverse norms, which are 0 for a zero vector."""
    return (product * inverse_rows.unsqueeze(1)).mul_(inverse_columns)


def unit_squared_distances(cosine: Tile) -> Tile:
    """‖u − v‖² = 2 − 2⟨u, v⟩ of unit vectors."""
    return torch.rsub(cosine, 2, alpha=2)


def uncentred_products(
    gram: Tile, rows: Float[Tensor, " R"], columns: Float[Tensor, " S"], global_sqnorm: float
) -> Tile:
    """⟨μ, μ′⟩ = ⟨μ − μ̄, μ′ − μ̄⟩ + ⟨μ − μ̄, μ̄⟩ + ⟨μ′ − μ̄, μ̄⟩ + ‖μ̄‖² from projections on the global mean."""
    return ((rows + global_sqnorm).unsqueeze(1) + columns).add_(gram)


def sums(rows: Float[Tensor, " R"], columns: Float[Tensor, " S"]) -> Tile:
    """a + b of one number per class."""
    return rows.unsqueeze(1) + columns
