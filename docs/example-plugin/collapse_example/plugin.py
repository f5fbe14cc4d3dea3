"""What this package offers to collapse."""

from collapse import hookimpl
from collapse_example.calibration import Calibration, calibration_error
from collapse_example.longest import Longest, longest
from collapse_example.ranking import ranking
from collapse_example.spread import dimensions, distance, within

COLLAPSE_API = 1
"""The version of the contract that it was written for."""


@hookimpl
def collapse_statistics():
    """Statistics, filled in the same pass as the class means."""
    return [Longest, Calibration]


@hookimpl
def collapse_metrics():
    """Metrics, of what a store holds."""
    return [dimensions, within, distance, longest, calibration_error]


@hookimpl
def collapse_analyses():
    """Analyses, of a results table."""
    return [ranking]
