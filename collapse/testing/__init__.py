"""Tools to test a plugin: sample data, and checks of every law that the built-in plugins obey."""

from collapse.testing.laws import LawBroken
from collapse.testing.metric_laws import check_metric
from collapse.testing.sample_data import random_features, statistics_of, tiny_statistics, two_classes, value
from collapse.testing.statistic_laws import check_statistic

__all__ = [
    "LawBroken",
    "check_metric",
    "check_statistic",
    "random_features",
    "statistics_of",
    "tiny_statistics",
    "two_classes",
    "value",
]
