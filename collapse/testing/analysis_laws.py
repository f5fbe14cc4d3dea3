"""Check an analysis: its table, its remarks on rows that cannot be compared, and its handling of missing values."""

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from numbers import Real
from types import NoneType
from typing import Any

from collapse.errors import CollapseError
from collapse.measurement.comparing import mixed
from collapse.measurement.results import Results, Row
from collapse.measurement.table import Table
from collapse.plugin.guarding import described
from collapse.plugin.metrics import Analysis, declaration
from collapse.plugin.plugin_manager import plugins
from collapse.testing.laws import Checked
from collapse.testing.samples import random_results

LAWS = ("table", "repeatable", "reads only", "missing values", "few rows", "mixed rows")
_ROWS = 12
_VALUES = (str, Real, NoneType)  # includes numpy numbers
_OTHERS: dict[str, Any] = {
    "corpus_id": "e" * 64,
    "validation_id": "f" * 64,
    "dtype": "bfloat16",
    "min_count": 5,
    "chunk_length": 32,
    "max_chunks": 100,
}
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
        raise CollapseError(f"{function.__name__} is no analysis: use check_metric for a metric")
    results = random_results(_ROWS, sorted(plugins().measurements())) if results is None else results
    if not results.rows:
        raise CollapseError("the results hold no rows: give what collapse.measure returns, or read a .json file")
    name = declared.name
    with Checked(LAWS, without) as checked:

        def run(law: str, table: Results, about: str = "") -> Table | None:
            """Return the analysis's table, or None if it rejects the rows with its own error."""
            try:
                found = declared(table, **options)
            except CollapseError as error:
                if law in ("table", "repeatable"):
                    checked.breach(law, name, f"{about}it refuses the rows: {error}")
                return None
            except Exception as error:  # a plugin can raise anything
                checked.breach(law, name, f"{about}it raises {described(error)}")
                return None
            wrong = _no_table(found)
            if wrong:
                checked.breach("table", name, about + wrong)
                return None
            return found

        before = copy.deepcopy([row.to_dict() for row in results.rows]), results.frame().copy(deep=True)
        first = run("table", results)
        if first is None:
            return
        if [row.to_dict() for row in results.rows] != before[0] or not results.frame().equals(before[1]):
            checked.breach("reads only", name, "it changes the rows that it is given")
        again = run("repeatable", results)
        if again is not None and repr(vars(again)) != repr(vars(first)):
            checked.breach("repeatable", name, "called twice on the same rows, it gives different tables")
        for column in list(results.rows[0].measurements)[:_GAPS]:
            run("missing values", _without_value(results, column), f"where {column} is null in one row, ")
        for count in (0, 1, 2):
            run("few rows", Results(results.rows[:count]), f"of {count} rows, ")
        _check_mixed(checked, name, results, run)


def _check_mixed(
    checked: Checked, name: str, results: Results, run: Callable[[str, Results, str], Table | None]
) -> None:
    """Check rows that cannot be compared: the analysis must remark on them, reject them, or ignore one half of them."""
    half = len(results.rows) // 2
    for field, other in _OTHERS.items():
        rows = [replace(row, **({field: other} if i < half else {})) for i, row in enumerate(results.rows)]
        remarks = mixed(rows)
        if len(remarks) != 1:  # these rows have that value already, or other things are mixed in them
            continue
        (remark,), found = remarks, run("mixed rows", Results(rows), "")
        if found is None or remark in found.notes:
            continue
        others = [run("mixed rows", Results(_ten_times(rows, part)), "") for part in (slice(half), slice(half, None))]
        if not any(each is not None and repr(each.rows) == repr(found.rows) for each in others):
            remedy = "add collapse.measurement.comparing.mixed(…) of the rows that it uses"
            said = f"its notes do not say that {remark}: {remedy}"
            checked.breach("mixed rows", name, said)


def _ten_times(rows: Sequence[Row], part: slice) -> list[Row]:
    """Return the rows, with all numbers of some of them multiplied by ten."""
    made = list(rows)
    for index in range(*part.indices(len(rows))):
        numbers = {name: None if x is None else 10 * x for name, x in rows[index].measurements.items()}
        made[index] = replace(rows[index], measurements=numbers)
    return made


def _no_table(found: Any) -> str:
    if not isinstance(found, Table):
        return f"it returns {type(found).__name__}, not a collapse.Table"
    odd = [value for row in found.rows for value in row if not isinstance(value, _VALUES)]
    if odd:
        return f"a value is {type(odd[0]).__name__}: give texts, numbers or None"
    wrong = [row for row in found.rows if len(row) != len(found.columns)]
    if wrong:
        return f"a row has {len(wrong[0])} values for {len(found.columns)} columns"
    return ""


def _without_value(results: Results, column: str) -> Results:
    first, *others = results.rows
    return Results([replace(first, measurements={**first.measurements, column: None}), *others])
