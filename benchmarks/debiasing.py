"""Compare biased and debiased measurements of few samples per class with their true values.

There are 60 classes in 128 dimensions. Their means have unequal lengths, and most lie on one side; their variances have
unequal size and shape. N_c samples of each class are drawn 60 times. The true value of a measurement is its value for
N_c = ∞. The script prints the table of the docs: the mean of the estimates ± their standard deviation, which is the
standard error of one estimate.

    python benchmarks/debiasing.py
"""

from dataclasses import dataclass

import torch
from torch import Tensor

import collapse
from collapse import EmbeddingStatistics

COUNTS = (2, 3, 5, 20)
PAIRS = {
    "nc1.cdnv_ratio": "nc1.cdnv_ratio_debiased",
    "nc1.cdnv_k2_ratio": "nc1.cdnv_k2_ratio_debiased",
    "nc1.trace_ratio": "nc1.trace_ratio_debiased",
    "nc2.scaled_norm": "nc2.scaled_norm_debiased",
    "nc2.interference": "nc2.interference_debiased",
    "nc3.self_duality_ratio": "nc3.self_duality_ratio_debiased",
}
"""The debiased counterpart of each biased measurement."""
NAMES = [name for pair in PAIRS.items() for name in pair]
_INFINITE = 10**12  # samples per class; the noise of their mean is negligible


@dataclass(frozen=True)
class Population:
    """Classes whose true means (C, d), standard deviations (C, d) and classifier rows (C, d) are known."""

    means: Tensor
    stds: Tensor
    rows: Tensor

    @classmethod
    def drawn(cls, classes: int = 60, dim: int = 128, seed: int = 0) -> "Population":
        """Draw classes whose variances are of the order of the squared distances between means, as in real models."""
        draw = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=draw, dtype=torch.float64)

        def uniform() -> Tensor:
            return torch.rand(classes, 1, generator=draw, dtype=torch.float64)

        side = torch.where(torch.arange(classes) % 5 == 0, -3.2, 0.8).double()  # the mean cosine is then not −1/(C−1)
        means = normal(classes, dim) / dim**0.5 * (1 + 0.3 * uniform())
        means[:, 0] += side
        shape = (1 + torch.arange(dim)).double() ** -0.25  # some directions have more of the variance
        stds = (shape / shape.norm() * (0.7 + uniform()))[:, torch.randperm(dim, generator=draw)]
        return cls(means, stds, means - means.mean(dim=0) + normal(classes, dim) / 12)

    def truth(self) -> EmbeddingStatistics:
        """Return the statistics of infinitely many samples."""
        return self._statistics(_INFINITE, self.means, self.stds.square().sum(dim=1))

    def sampled(self, count: int, draw: torch.Generator) -> EmbeddingStatistics:
        """Return the statistics of ``count`` samples per class."""
        classes, dim = self.means.shape
        h_CNd = torch.randn(classes, count, dim, generator=draw, dtype=torch.float64) * self.stds[:, None]
        h_CNd += self.means[:, None]
        return self._statistics(count, h_CNd.mean(dim=1), h_CNd.var(dim=1, correction=0).sum(dim=1))

    def _statistics(self, count: int, means: Tensor, variances: Tensor) -> EmbeddingStatistics:
        classes = torch.arange(len(means))
        counts = torch.full_like(classes, count)
        return EmbeddingStatistics(
            classes=classes, counts=counts, means=means, variances=variances, classifier=self.rows, dtype="float64"
        )


def simulate(draws: int = 60, seed: int = 1) -> tuple[dict[str, float], dict[int, dict[str, tuple[float, float]]]]:
    """Return the true value of each measurement, and, by N_c, the mean and standard deviation of its estimates."""
    population = Population.drawn()
    draw = torch.Generator().manual_seed(seed)
    estimates = {}
    for count in COUNTS:
        found = torch.tensor([_measured(population.sampled(count, draw)) for _ in range(draws)], dtype=torch.float64)
        pairs = zip(found.mean(dim=0).tolist(), found.std(dim=0).tolist(), strict=True)
        estimates[count] = dict(zip(NAMES, pairs, strict=True))
    return dict(zip(NAMES, _measured(population.truth()), strict=True)), estimates


def _measured(s: EmbeddingStatistics) -> list[float]:
    found = collapse.measure(s, metrics=NAMES).measurements
    return [float(found[name] or "nan") for name in NAMES]


def table(truth: dict[str, float], estimates: dict[int, dict[str, tuple[float, float]]]) -> str:
    """Return the results of :func:`simulate` as a Markdown table."""
    columns = ["measurement", "truth", *(f"N_c = {count}" for count in COUNTS)]
    rows = [
        [f"`{name}`", f"{truth[name]:.4f}", *(f"{mean:.4f} ± {std:.4f}" for mean, std in of_counts)]
        for name, of_counts in ((name, [estimates[count][name] for count in COUNTS]) for name in NAMES)
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns), *rows))


if __name__ == "__main__":
    print(table(*simulate()))  # noqa: T201  # a script's output
