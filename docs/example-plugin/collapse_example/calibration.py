"""Whether the model's confidence equals its accuracy: a statistic of the validation text, and its metric."""

from typing import ClassVar

import torch

from collapse import State, ValidationStatistic, metric

BINS = 15


class Calibration(ValidationStatistic):
    """Samples, confidence and hits in 15 bins of equal width of the confidence."""

    name = "example_calibration"
    state: ClassVar = {each: State((BINS,)) for each in ("samples", "confidence", "hits")}

    def update(self, batch):
        """Count a batch into its bins."""
        bins = (batch.confidence * BINS).long().clamp(max=BINS - 1)
        hits = (batch.vocabulary == batch.y).double()
        for total, values in (
            (self.samples, torch.ones_like(hits)),
            (self.confidence, batch.confidence),
            (self.hits, hits),
        ):
            total.index_add_(0, bins, values)


@metric("calibration.error", scale=None, translation=False, better="lower")
def calibration_error(example_calibration):
    """Expected calibration error in 15 bins, from 0 to 1.

    Equation: Σ_b |hits_b − confidence_b| / n
    Source: Guo et al. 2017
    """
    held = example_calibration
    return (held["hits"] - held["confidence"]).abs().sum() / held["samples"].sum()
