"""Check an analysis: its table, its remarks on rows that cannot be compared, and its handling of missing values."""

import copy
from collections.abc import Callable, Collection
from dataclasses import replace
from numbers import Real
from types import NoneType
from typing import Any

from collapse.errors import CollapseError
from collapse.measurement.comparing import mixed
from collapse.measurement.results import Results
from collapse.measurement.table import Table
from collapse.plugin.guarding import described
from collapse.plugin.metrics import Analysis, declaration
from collapse.plugin.plugin_manager import plugins
from collapse.testing.laws import Checked
from collapse.testing.samples import random_results

LAWS = ("table", "repeatable", "reads only", "missing values", "few rows", "mixed rows")
_VALUES = (str, Real, NoneType)  # includes numpy numbers
_OTHERS: dict[str, Any] = {"corpus_id": "e" * 64, "validation_id": "f" * 64, "dtype": "bfloat16", "chunk_length": 32}
_GAPS = 5  # number of columns that are tested with a missing value, one at a time


def check_analysis(
    function: Callable[..., Any], *, results: Results | None = None, without: Collection[str] = (), **options: Any
) -> None:
    """Check that a declared analysis obeys every law of analyses.

    Args:
        function: Decorated with ``@analysis``.
        results: Rows of models that can be compared; None for 12 rows of random numbers, with one column for each
            installed measurement.
        without: Names of laws that are not checked.
        options: Passed to the analysis.

    Raises:
        LawBroken: Which laws are broken, and what was found.
        CollapseError: The function is not declared.
    """
    declared = declaration(function)
    if not isinstance(declared, Analysis):
        raise CollapseError(f"{function.__name__} is not an analysis: use check_metric for a metric")
    results = random_results(12, sorted(plugins().measurements())) if results is None else results
    with Checked(LAWS, without) as checked:

        def run(law: str, table: Results, about: str = "") -> Table | None:
            """Return the analysis's table, or None if it rejects the rows with its own error."""
            try:
                found = declared(table, **options)
            except CollapseError as error:
                if law in ("table", "repeatable"):
                    checked.breach(law, declared.name, f"it refuses the rows: {error}")
                return None
            except Exception as error:  # a plugin can raise anything
                checked.breach(law, declared.name, f"{about}it raises {described(error)}")
                return None
            if wrong := _no_table(found):
                checked.breach("table", declared.name, about + wrong)
                return None
            return found

        before = copy.deepcopy(results.rows)
        first = run("table", results)
        if first is None:
            return
        if results.rows != before:
            checked.breach("reads only", declared.name, "it changes the rows that it is given")
        if (again := run("repeatable", results)) is not None and repr(vars(again)) != repr(vars(first)):
            checked.breach("repeatable", declared.name, "called twice on the same rows, it gives different tables")
        row, *others = results.rows
        for column in [*row.measurements][:_GAPS]:
            gap = replace(row, measurements={**row.measurements, column: None})
            run("missing values", Results([gap, *others]), f"where {column} is null in one row, ")
        for count in (0, 1, 2):
            run("few rows", Results(results.rows[:count]), f"of {count} rows, ")
        for field, other in _OTHERS.items():
            rows = [replace(each, **{field: other}) for each in results.rows[::2]] + list(results.rows[1::2])
            found = run("mixed rows", Results(rows))
            for remark in set() if found is None else {*mixed(rows)} - {*found.notes}:
                remedy = "add collapse.measurement.comparing.mixed(…) of the rows that it uses"
                checked.breach("mixed rows", declared.name, f"its notes do not say that {remark}: {remedy}")


def _no_table(found: Any) -> str:
    if not isinstance(found, Table):
        return f"it returns {type(found).__name__}, not a collapse.Table"
    odd = [value for row in found.rows for value in row if not isinstance(value, _VALUES)]
    if odd:
        return f"a value is {type(odd[0]).__name__}: give texts, numbers or None"
    wrong = [row for row in found.rows if len(row) != len(found.columns)]
    return f"a row has {len(wrong[0])} values for {len(found.columns)} columns" if wrong else ""
