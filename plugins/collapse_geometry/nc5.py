"""NC5: embeddings of another distribution are orthogonal to the class means."""

from torch import Tensor

from collapse import EmbeddingStatistics, Mean, class_metric, row_cosine


@class_metric(Mean("nc5.ood_orthogonality", towards=0), translation=False)
def ood_cosines(means: Tensor, ood: EmbeddingStatistics) -> Tensor:
    """Absolute cosine of each class mean with the mean embedding of an out-of-distribution text, in [0, 1].

    Neither mean is centred. Every sample of the other text counts equally. At full collapse the value is 0.

    Equation: |cos(μ_c, μ_OOD)|
    Source: Ammar et al. 2024, Eq. 5

    >>> import dataclasses
    >>> s = dataclasses.replace(statistics_of([[3.0, 0.0], [0.0, -1.0]]), ood=statistics_of([[6.0, 8.0]]))
    >>> [round(each, 12) for each in value(ood_cosines, s).tolist()]
    [0.6, 0.8]
    """
    mean_d = ood.counts.double() @ ood.means / ood.counts.sum()
    return row_cosine(means, mean_d.expand_as(means)).abs()
