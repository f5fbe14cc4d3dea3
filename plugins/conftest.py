"""Names that the doctests of the built-in metrics use without importing them."""

from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _samples(doctest_namespace: dict[str, Any]) -> None:
    """Add sample statistics, and the function that computes a metric's value from them."""
    from collapse.testing import statistics_of, tiny_statistics, two_classes, value

    doctest_namespace.update({each.__name__: each for each in (statistics_of, tiny_statistics, two_classes, value)})
