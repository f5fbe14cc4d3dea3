"""A plugin of pytest that checks the laws of everything that a plugin of collapse declares, without a test file.

``pytest -p collapse.testing.pytest_plugin --collapse-laws mine.py`` adds a test for each metric, statistic, analysis
and figure of a file or module.
"""

from collections.abc import Callable
from typing import Any

import pytest

from collapse.plugin.registering import declarations, load_given
from collapse.plugin.registry import kind_of
from collapse.testing.analysis_laws import check_analysis
from collapse.testing.figure_laws import check_figure
from collapse.testing.laws import LawBroken
from collapse.testing.metric_laws import check_metric
from collapse.testing.statistic_laws import check_statistic

_CHECKS: dict[str, Callable[[Any], None]] = {
    "metric": check_metric,
    "statistic": check_statistic,
    "analysis": check_analysis,
    "figure": check_figure,
}


class Laws(pytest.Item):
    """The test of one declaration."""

    declared: Any

    def runtest(self) -> None:
        """Check every law of its kind."""
        _CHECKS[kind_of(self.declared)](self.declared)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *_: Any) -> Any:
        """Show the broken laws only."""
        return str(excinfo.value) if isinstance(excinfo.value, LawBroken) else super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[str, int, str]:
        """Return where the declaration is, and what the report calls it."""
        return self.declared.__module__, 0, self.name


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    group = parser.getgroup("collapse")
    group.addoption("--collapse-laws", action="append", default=[], metavar="PLUGIN", help="a file or module")


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add a test for each declaration of the named plugins."""
    for name in config.getoption("collapse_laws"):
        for each in declarations(load_given(name)):
            if kind_of(each) in _CHECKS:
                item = Laws.from_parent(session, name=f"{name}::{each.__name__}")
                item.declared = each
                items.append(item)
