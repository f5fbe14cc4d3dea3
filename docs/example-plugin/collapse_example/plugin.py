"""What this package offers to collapse."""

from collapse_example.calibration import Calibration, calibration_error
from collapse_example.longest import Longest, longest
from collapse_example.ranking import ranking
from collapse_example.spread import dimensions, distance, within

COLLAPSE_API = 2
"""The version of the contract that it was written for."""

OFFERED = [Longest, Calibration, dimensions, within, distance, longest, calibration_error, ranking]
"""Statistics, metrics and an analysis of other modules; what a plugin's own module declares needs no list."""
