"""The effective dimension of class means: of points in known dimensions, and of the paper's models.

    python examples/effective_dimension.py

Uniform points on a sphere of D dimensions, which lies in a space of 256, have the effective dimension D and a GNC2 that
knows D, not 256. Over the paper's 210 models log d_eff then goes with the validation loss.
"""

import torch

import collapse
from collapse.testing import statistics_of

D_EFF, PR, GNC2 = "nc2.effective_dimension", "nc2.participation_ratio", "gnc2.hyperspherical_uniformity"
CLASSES, SPACE = 2_000, 256


def uniform_points(dim: int, seed: int = 0) -> torch.Tensor:
    """Return points uniform on a sphere of ``dim`` dimensions, rotated into the space, shape (CLASSES, SPACE)."""
    draw = torch.Generator().manual_seed(seed)
    points = torch.randn(CLASSES, dim, generator=draw, dtype=torch.float64)
    basis = torch.linalg.qr(torch.randn(SPACE, dim, generator=draw, dtype=torch.float64)).Q
    return torch.nn.functional.normalize(points, dim=1) @ basis.T


def main() -> None:
    """Print both tables."""
    print(f"{CLASSES} uniform points in {SPACE} dimensions, on a sphere of D:")
    for dim in (8, 16, 40, 75, 256):
        found = collapse.measure(statistics_of(uniform_points(dim)), metrics=[D_EFF, PR, GNC2]).measurements
        print(f"  D = {dim:3}  d_eff {found[D_EFF]:6.2f}  participation {found[PR]:6.2f}  GNC2 {found[GNC2]:.3f}")
    print("\nThe paper's 210 models, correlation with validation loss:")
    columns = [f"log({D_EFF})", GNC2, "log(nc1.cdnv)", "nc4.agreement"]
    for name, control in (("alone", None), ("width controlled", "log(width)")):
        table = collapse.analyze("correlation", "paper", columns=columns, where="seed=", control=control)
        said = [f"{row['column']} {row['r']:+.3f}" for row in table.records()]
        print(f"  {name}: {', '.join(said)}")


if __name__ == "__main__":
    main()
