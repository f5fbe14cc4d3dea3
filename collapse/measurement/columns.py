"""Columns of a results table, given by name or by arithmetic over names, and globs that choose its rows.

Published tables lack our measurements but have their components: ``norms_log_std/norms_log_mean``. Such an expression
is computed by walking its syntax tree; it is never evaluated as Python.
"""

import ast
import operator
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collapse.errors import CollapseError, UsageError, near_names
from collapse.plugin.metrics import limit_at
from collapse.plugin.plugin_manager import plugins

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_HOW = (
    "write column names, numbers, + - * / **, log(…), reachable(MEASUREMENT) and parentheses, such as "
    "norms_log_std/norms_log_mean"
)


@dataclass(frozen=True)
class Column:
    """One column of numbers, read from a table or computed from its columns.

    Attributes:
        label: Its name: the text before ``=``, else the expression.
        expression: The column name or arithmetic.
        names: The table's columns that it reads.
        values: (rows,) float64, NaN if a value that it reads is missing.
    """

    label: str
    expression: str
    names: tuple[str, ...]
    values: Floats


def split_columns(columns: str | Sequence[str], frame: "pd.DataFrame") -> dict[str, bool]:
    """Split lists of columns at commas, except inside the exact name of a column; a prefix means all of its columns.

    Returns:
        The columns in order, and whether each was named itself, not by a prefix.

    >>> import pandas as pd
    >>> split_columns("a, b/a, nc1", pd.DataFrame(columns=["a", "b", "nc1.cdnv", "nc1.trace_ratio"]))
    {'a': True, 'b/a': True, 'nc1.cdnv': False, 'nc1.trace_ratio': False}
    """
    given = [columns] if isinstance(columns, str) or not isinstance(columns, Iterable) else list(columns)
    for each in given:
        if not isinstance(each, str):
            raise UsageError(f"columns must be names of columns; there is a {type(each).__name__}: {each!r:.40}")
    pieces = [piece.strip() for each in given for piece in ([each] if each in frame else each.split(","))]
    found: dict[str, bool] = {}
    for piece in filter(None, pieces):
        for name in _of_prefix(piece, frame):
            found[name] = found.get(name, False) or name == piece
    return found


def _of_prefix(piece: str, frame: "pd.DataFrame") -> list[str]:
    if piece in frame:
        return [piece]
    return [str(name) for name in frame.columns if str(name).startswith(f"{piece.lower()}.")] or [piece]


def read_column(frame: "pd.DataFrame", text: str) -> Column:
    """Read the column given as ``name``, ``expression`` or ``label=expression``; an exact column name takes precedence.

    Args:
        frame: A results table.
        text: Names may have dots; ``+ - * / **``, unary signs, numbers, parentheses, ``log(…)`` (natural) and
            ``reachable(measurement)`` are supported. The latter is the value that each row's C classes in d dimensions
            can reach, and needs the columns ``classes`` and ``dim``.

    Raises:
        UsageError: A column does not exist or holds text, or the arithmetic is not supported.
        CollapseError: A value is not finite, for example after a division by zero; the message names the row.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"nc2.norm": [2.0, 4.0], "nc2.norm_std": [1.0, 1.0]})
    >>> read_column(table, "cov = nc2.norm_std / nc2.norm").values.tolist()
    [0.5, 0.25]
    """
    text = text.strip()
    label, expression = text, text
    if text not in frame and "=" in text:
        label, expression = (part.strip() for part in text.split("=", 1))
        if not label:
            raise UsageError(f"the column {text!r} has no label before its =: write label=expression")
    names: dict[str, Floats] = {}
    if expression in frame:
        names[expression] = values = _numbers(frame, expression)
    else:
        values = _compute(frame, expression, names)
    missing = np.any([np.isnan(each) for each in names.values()], axis=0)
    wrong = ~missing & ~np.isfinite(values)
    if wrong.any():
        at = int(wrong.argmax())
        read = ", ".join(f"{name} = {each[at]:.6g}" for name, each in names.items())
        why = "" if expression in names else f" ({read})"
        raise CollapseError(
            f"{expression} is {values[at]} in {_row_name(frame, at)}{why}: leave such rows out with --where, "
            "or choose another column"
        )
    return Column(label, expression, tuple(names), np.where(missing, np.nan, values))


def choose_rows(frame: "pd.DataFrame", where: str | Sequence[str] | None) -> "pd.DataFrame":
    """Return the rows that match every ``column=glob``, case-sensitively; whole numbers are matched as integers.

    Args:
        frame: A results table.
        where: One filter or several; None keeps every row.

    Raises:
        UsageError: A filter has no ``=`` or an unknown column, or no row matches it (the message shows some values).

    >>> import pandas as pd
    >>> choose_rows(pd.DataFrame({"model": ["2x8@0", "2x8@1", "4x8@0"]}), "model=2x*@?")["model"].tolist()
    ['2x8@0', '2x8@1']
    """
    for each in [where] if isinstance(where, str) else where or ():
        name, equals, glob = (part.strip() for part in each.partition("="))
        if not equals:
            raise UsageError(f"{each!r} is not a filter: write column=glob, such as 'model=TinyStories-02x0768_01d*@0'")
        if name not in frame:
            raise UsageError(f"no column is called {name!r} (--where); {near_names(name, map(str, frame.columns))}")
        texts = [_text(value) for value in frame[name]]
        kept = [text == glob or fnmatchcase(text, glob) for text in texts]
        if not any(kept):
            different = list(dict.fromkeys(texts))
            shown = ", ".join(text or "(nothing)" for text in different[:6]) or "no rows"
            more = f", … ({len(different):,} different)" if len(different) > 6 else ""
            raise UsageError(f"no row matches --where {each!r}: {name} holds {shown}{more}")
        frame = frame.loc[kept]
    return frame


def _compute(frame: "pd.DataFrame", expression: str, names: dict[str, Floats]) -> Floats:
    """Evaluate arithmetic, adding the columns that it reads to ``names``."""
    # Python's parser drops comments and normalizes names: it would read another column than is named
    if "#" in expression or unicodedata.normalize("NFKC", expression) != expression:
        raise UsageError(
            f"the column {expression!r} cannot be read: a column whose name has # or a sign such as µ can only be "
            "named by itself"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as the SyntaxWarning for `2if`; the error below is enough
            tree = ast.parse(expression, mode="eval")
        with np.errstate(all="ignore"):  # values that are not finite are reported below with their row
            values = _walk(tree.body, frame, names)
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        raise UsageError(f"the column {expression!r} cannot be read: {_HOW}") from error
    if not names:
        raise UsageError(f"the column {expression!r} reads no column of the table: {_HOW}")
    return np.broadcast_to(values, len(frame)).astype(np.float64)


def _walk(node: ast.expr, frame: "pd.DataFrame", names: dict[str, Floats]) -> Any:
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _BINARY[type(node.op)](_walk(node.left, frame, names), _walk(node.right, frame, names))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](_walk(node.operand, frame, names))
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return np.float64(node.value)  # not int: 9**9**9 is infinite for floats, and takes forever for ints
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1 and not node.keywords:
        if node.func.id == "log":
            return np.log(_walk(node.args[0], frame, names))
        measurement = _dotted(node.args[0])
        if node.func.id == "reachable" and measurement is not None:
            return _reachable(measurement, frame, names)
    name = _dotted(node)
    if name is None:
        raise SyntaxError(f"{type(node).__name__} is not arithmetic")
    if name not in names:
        names[name] = _numbers(frame, name)
    return names[name]


def _reachable(measurement: str, frame: "pd.DataFrame", names: dict[str, Floats]) -> Floats:
    """Return what each row's classes and dimensions can reach of a measurement, NaN where this is not known."""
    known = plugins().measurements()
    if measurement not in known:
        raise UsageError(f"no measurement is called {measurement!r}; {near_names(measurement, known)}")
    _, measure = known[measurement]
    shape = [names.setdefault(name, _numbers(frame, name)) for name in ("classes", "dim")]
    limits = [
        None if np.isnan(pair).any() else limit_at(measure.reachable, int(pair[0]), int(pair[1]))
        for pair in np.stack(shape, axis=1)
    ]
    return np.array([np.nan if limit is None else limit for limit in limits], dtype=np.float64)


def _dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return before and f"{before}.{node.attr}"
    return None


def _numbers(frame: "pd.DataFrame", name: str) -> Floats:
    """Return a column of the table as float64, NaN for missing values."""
    import pandas as pd

    if name not in frame:
        raise UsageError(f"no column is called {name!r}; {near_names(name, map(str, frame.columns))}")
    column = frame[name]
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column.to_numpy(np.float64, na_value=np.nan)
    numbers = pd.to_numeric(column, errors="coerce")  # whole numbers above 2^64 are texts to pandas
    wrong = np.flatnonzero(column.notna() & numbers.isna())
    if len(wrong):
        at = int(wrong[0])
        raise UsageError(
            f"column {name!r} is not of numbers: it holds {column.iloc[at]!r:.60} in {_row_name(frame, at)}"
        )
    return numbers.to_numpy(np.float64, na_value=np.nan)


def _row_name(frame: "pd.DataFrame", at: int) -> str:
    index = frame.index[at]  # index in the whole table, before filtering
    row = f"row {index + 1 if isinstance(index, int | np.integer) else index}"
    return f"{row} ({frame['model'].iloc[at]})" if "model" in frame else row


def _text(value: Any) -> str:
    import pandas as pd

    if pd.isna(value) is True:  # for a list, pd.isna returns an array
        return ""
    # pandas stores a column of integers as floats if a value is missing
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
