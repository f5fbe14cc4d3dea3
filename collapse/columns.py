"""Columns of a results table by name or by arithmetic over names, and globs that choose its rows.

Published tables do not have our measurements but what they are made of: ``norms_log_std/norms_log_mean``. Such an
expression is read by walking its syntax tree; nothing is ever evaluated as Python.
"""

import ast
import operator
import unicodedata
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collapse.errors import CollapseError, UsageError, near_names

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
_HOW = "write column names, numbers, + - * / ** and parentheses, such as norms_log_std/norms_log_mean"


@dataclass(frozen=True)
class Column:
    """One column of numbers, read from a table or computed from its columns.

    Attributes:
        label: What to call it: what stood before ``=``, else the expression.
        expression: The column name or arithmetic.
        names: The table's columns that it reads.
        values: (rows,) float64, NaN where a value it reads is missing.
    """

    label: str
    expression: str
    names: tuple[str, ...]
    values: Floats


def split_columns(columns: str | Sequence[str], frame: "pd.DataFrame") -> list[str]:
    """Single columns from a list in which commas separate too; a column whose very name holds one stays whole.

    >>> import pandas as pd
    >>> split_columns("a, b/a", pd.DataFrame(columns=["a", "b"]))
    ['a', 'b/a']
    """
    given = [columns] if isinstance(columns, str) else columns
    pieces = [piece.strip() for each in given for piece in ([each] if each in frame else each.split(","))]
    return list(dict.fromkeys(piece for piece in pieces if piece))


def read_column(frame: "pd.DataFrame", text: str) -> Column:
    """The column that ``name``, ``expression`` or ``label=expression`` means; an exact column name wins.

    Args:
        frame: A results table.
        text: Names may have dots; ``+ - * / **``, unary signs, numbers and parentheses are understood.

    Raises:
        UsageError: No such column, a column of text, or no such arithmetic.
        CollapseError: A value is not finite, for one because of a division by zero; the row is named.

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
        if label[-1] in "<>!+-*/":
            raise UsageError(f"the column {text!r} would have the label {label!r}: write label=expression")
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
    """The rows that match every ``column=glob``, case and all; whole numbers are matched without a fraction.

    Args:
        frame: A results table.
        where: One filter or several; None keeps every row.

    Raises:
        UsageError: A filter without ``=``, on an unknown column, or that no row matches (some values are shown).

    >>> import pandas as pd
    >>> choose_rows(pd.DataFrame({"model": ["2x8@0", "2x8@1", "4x8@0"]}), "model=2x*@?")["model"].tolist()
    ['2x8@0', '2x8@1']
    """
    for each in [where] if isinstance(where, str) else where or ():
        name, equals, glob = (part.strip() for part in each.partition("="))
        if not equals:
            raise UsageError(f"{each!r} is no filter: write column=glob, such as 'model=02x0768_01d*@0'")
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
    """Evaluate arithmetic, noting in ``names`` the columns it reads."""
    _refuse_rewritten(expression)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python has opinions about `2if`; the error below says enough
            tree = ast.parse(expression, mode="eval")
        with np.errstate(all="ignore"):  # what is not finite is reported with its row
            values = _walk(tree.body, frame, names)
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        raise UsageError(f"the column {expression!r} cannot be read: {_HOW}") from error
    if not names:
        raise UsageError(f"the column {expression!r} reads no column of the table: {_HOW}")
    return np.broadcast_to(values, len(frame)).astype(np.float64)


def _refuse_rewritten(expression: str) -> None:
    """Refuse what Python's parser drops or replaces, so that no name in a tree is another column's."""
    alone = "can only be named by itself"
    if "#" in expression:  # the parser drops it and what follows, as a comment
        raise UsageError(
            f"the column {expression!r} cannot be read: # is no arithmetic, and a column with # in its name {alone}"
        )
    normal = unicodedata.normalize("NFKC", expression)
    if normal != expression:
        raise UsageError(
            f"the column {expression!r} cannot be read: Unicode normalization (NFKC) makes it {normal!r}, and a column "
            f"whose name that changes {alone}"
        )


def _walk(node: ast.expr, frame: "pd.DataFrame", names: dict[str, Floats]) -> Any:
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _BINARY[type(node.op)](_walk(node.left, frame, names), _walk(node.right, frame, names))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](_walk(node.operand, frame, names))
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return np.float64(node.value)  # of floats, 9**9**9 is infinite at once; of ints it would never end
    name = _dotted(node)
    if name is None:
        raise SyntaxError(f"{type(node).__name__} is not arithmetic")
    if name not in names:
        names[name] = _numbers(frame, name)
    return names[name]


def _dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return before and f"{before}.{node.attr}"
    return None


def _numbers(frame: "pd.DataFrame", name: str) -> Floats:
    """A column of the table as float64, NaN where a value is missing."""
    from pandas.api.types import is_numeric_dtype

    if name not in frame:
        raise UsageError(f"no column is called {name!r}; {near_names(name, map(str, frame.columns))}")
    column = frame[name]
    if is_numeric_dtype(column.dtype):
        return column.to_numpy(np.float64, na_value=np.nan)
    present = column.dropna()
    if len(present):
        raise UsageError(f"column {name!r} is not of numbers: it holds {present.iloc[0]!r:.60}")
    return np.full(len(column), np.nan)  # a measurement that no row has


def _row_name(frame: "pd.DataFrame", at: int) -> str:
    index = frame.index[at]  # that of the whole table, whatever was filtered out
    row = f"row {index + 1 if isinstance(index, int | np.integer) else index}"
    return f"{row} ({frame['model'].iloc[at]})" if "model" in frame else row


def _text(value: Any) -> str:
    import pandas as pd

    if pd.isna(value) is True:  # of a list it is an array
        return ""
    # pandas keeps a column of whole numbers as floats as soon as one is missing
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
