"""A pytest plugin that checks the laws for all metrics and statistics of a collapse plugin, without a test file.

``pytest -p collapse.testing.pytest_plugin --collapse-laws mine.py`` adds a test for each metric and statistic of a file
or module.
"""

from typing import Any

import pytest

from collapse import testing
from collapse.errors import CollapseError
from collapse.plugin.guarding import error_line
from collapse.plugin.loading import declarations, load_given
from collapse.plugin.metrics import Metric, declaration


class Laws(pytest.Item):
    """The test of one metric or statistic that a plugin declares."""

    declared: Any

    def runtest(self) -> None:
        """Check every law of the declared metric or statistic."""
        check = testing.check_statistic if isinstance(self.declared, type) else testing.check_metric
        check(self.declared)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *_: Any) -> Any:
        """Show a broken law or a CollapseError as its message, and other exceptions with their traceback."""
        told = isinstance(excinfo.value, testing.LawBroken | CollapseError)
        return str(excinfo.value) if told else super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[str, int, str]:
        """Return what pytest reports: the declaration's module, line 0, and the name of the test."""
        return self.declared.__module__, 0, self.name


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--collapse-laws``."""
    group = parser.getgroup("collapse")
    group.addoption("--collapse-laws", action="append", default=[], metavar="PLUGIN", help="a file or a module")


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add a test for each metric and statistic of the named plugins."""
    for name in config.getoption("collapse_laws"):
        try:
            module = load_given(name)
        except Exception as error:  # importing a plugin can raise anything
            hint = "; give a .py file or a module" if getattr(error, "name", "") == name else ""
            raise pytest.UsageError(f"--collapse-laws {name}: {error_line(error)}{hint}") from error
        checked = [
            each for each in declarations(module) if isinstance(each, type) or isinstance(declaration(each), Metric)
        ]
        if not checked:
            raise pytest.UsageError(f"--collapse-laws {name} defines no metric or statistic: name a module that does")
        for each in checked:
            item = Laws.from_parent(session, name=f"{name}::{each.__name__}")
            item.declared = each
            items.append(item)
