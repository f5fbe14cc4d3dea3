"""Read columns of a results table by name or by arithmetic over names, and choose rows with globs."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collapse.errors import CollapseError, UsageError, near_names
from collapse.plugin.metrics import Limit, limit_at
from collapse.plugin.plugin_manager import plugins

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

_READ = re.compile(
    r"\breachable\(\s*(?P<limit>[\w.]+)\s*\)|`(?P<quoted>[^`]+)`|"
    r"(?<![\w.])(?P<name>[A-Za-z_]\w*(?:\.\w+)*)(?!\s*\(|[\w.])"
)
LOGARITHM = re.compile(r"log\(\s*(.*?)\s*\)")
_ARITHMETIC = re.compile(r"[\w\s.+\-*/()]*")
_HOW = (
    "write column names, numbers, + - * / **, log(…), reachable(MEASUREMENT) and parentheses, such as "
    "norms_log_std/norms_log_mean; put a column name with other characters in `backticks`"
)


@dataclass(frozen=True)
class Column:
    """One column of numbers, read from a table or computed from its columns.

    Attributes:
        label: The column's name: the text before ``=``, or the expression if there is none.
        expression: A column name or arithmetic.
        names: The columns of the table that the expression reads.
        values: Float64, shape (rows,); NaN where a value that the expression reads is missing.
    """

    label: str
    expression: str
    names: tuple[str, ...]
    values: Floats


def split_columns(columns: str | Sequence[str], frame: "pd.DataFrame") -> dict[str, bool]:
    """Split lists of columns at commas, and expand each prefix, such as ``nc1``, to the columns ``nc1.…``.

    A text that is exactly the name of a column is neither split nor expanded. A piece that is neither a column nor a
    prefix, such as arithmetic, stays as it is.

    Returns:
        The columns in order, each with True if ``columns`` names it in full, or False if only a prefix of it is named.

    >>> import pandas as pd
    >>> split_columns("a, b/a, nc1", pd.DataFrame(columns=["a", "b", "nc1.cdnv", "nc1.trace_ratio"]))
    {'a': True, 'b/a': True, 'nc1.cdnv': False, 'nc1.trace_ratio': False}
    """
    given = [columns] if isinstance(columns, str) else columns
    pieces = [piece.strip() for each in given for piece in ([each] if each in frame else each.split(","))]
    found: dict[str, bool] = {}
    for piece in filter(None, pieces):
        of_prefix = [str(name) for name in frame.columns if str(name).startswith(f"{piece.lower()}.")]
        for name in [piece] if piece in frame else of_prefix or [piece]:
            found[name] = found.get(name, False) or name == piece
    return found


def read_column(frame: "pd.DataFrame", text: str) -> Column:
    """Read the column given as ``name``, ``expression`` or ``label=expression``; an exact column name takes precedence.

    Args:
        frame: A results table.
        text: The column. Names may have dots; names with other characters need backticks. Arithmetic has
            ``+ - * / **``, unary signs, numbers, parentheses, ``log(…)`` (natural) and ``reachable(measurement)``.
            The last is the reachable value of a measurement in each row, for C and d from the columns ``classes`` and
            ``dim``.

    Raises:
        UsageError: A column does not exist or holds text, ``reachable`` names no measurement, or the arithmetic is not
            supported.
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
    if expression in frame:
        values = _numbers(frame, expression)
        names = {expression: values}
    else:
        values, names = _computed(frame, expression)
    missing = np.any([np.isnan(each) for each in names.values()], axis=0)
    wrong = ~missing & ~np.isfinite(values)
    if wrong.any():
        at = int(wrong.argmax())
        raise CollapseError(
            f"{expression} is {values[at]} in {_row_name(frame, at)}: exclude such rows with --where, or choose "
            "another column"
        )
    return Column(label, expression, tuple(names), np.where(missing, np.nan, values))


def _computed(frame: "pd.DataFrame", expression: str) -> tuple[Floats, dict[str, Floats]]:
    """Evaluate arithmetic with pandas; return its values and the columns that it reads."""
    import pandas as pd

    read, names = dict[str, Floats](), dict[str, Floats]()

    def stored(found: re.Match[str]) -> str:
        if found["limit"]:
            names.update({name: _numbers(frame, name) for name in ("classes", "dim")})
            values = _reachable(found["limit"], names["classes"], names["dim"])
        else:
            name = found["quoted"] or found["name"]
            names[name] = values = _numbers(frame, name)
        read[f"x{len(read)}"] = values
        return f" x{len(read) - 1} "

    replaced = _READ.sub(stored, expression).strip()
    if not names:
        raise UsageError(f"the expression {expression!r} names no column of the table: {_HOW}")
    try:
        if not _ARITHMETIC.fullmatch(replaced):
            raise ValueError("a character that is not part of arithmetic")
        with np.errstate(all="ignore"):  # values that are not finite are reported with their row
            return np.array(pd.DataFrame(read).eval(replaced, engine="python"), dtype=np.float64), names
    except Exception as error:  # pandas raises many kinds of exceptions for invalid arithmetic
        raise UsageError(f"the expression {expression!r} is invalid: {_HOW}") from error


def _reachable(measurement: str, classes: Floats, dims: Floats) -> Floats:
    """Return the reachable value of a measurement for C and d of each row; NaN if C or d is missing."""
    known = plugins().measurements()
    if measurement not in known:
        raise UsageError(f"no measurement is called {measurement!r}; {near_names(measurement, known)}")
    reachable, sizes = known[measurement][1].reachable, zip(classes, dims, strict=True)
    return np.array([np.nan if np.isnan(C + d) else limit_at(reachable, int(C), int(d)) for C, d in sizes], np.float64)


def choose_rows(frame: "pd.DataFrame", where: str | Sequence[str] | None) -> "pd.DataFrame":
    """Return the rows that match every filter ``column=glob``.

    Case matters. A glob for a whole number is written without a decimal point (4, not 4.0).

    Raises:
        UsageError: A filter has no ``=`` or an unknown column, or matches no row (the message shows some values).

    >>> import pandas as pd
    >>> choose_rows(pd.DataFrame({"model": ["2x8@0", "2x8@1", "4x8@0"]}), "model=2x*@?")["model"].tolist()
    ['2x8@0', '2x8@1']
    """
    for each in [where] if isinstance(where, str) else where or ():
        name, equals, glob = (part.strip() for part in each.partition("="))
        if not equals:
            raise UsageError(f"{each!r} is not a filter: write column=glob, such as 'model=02x0768_01d*@0'")
        if name not in frame:
            raise UsageError(f"no column is called {name!r} (--where); {near_names(name, map(str, frame.columns))}")
        texts = [_text(value) for value in frame[name]]
        kept = [text == glob or fnmatchcase(text, glob) for text in texts]
        if not any(kept):
            different = list(dict.fromkeys(texts))
            shown = ", ".join(text or "(nothing)" for text in different[:6]) or "none"
            more = f", … ({len(different):,} different)" if len(different) > 6 else ""
            raise UsageError(f"no row matches --where {each!r}: use a value of {name}: {shown}{more}")
        frame = frame.loc[kept]
    return frame


def _numbers(frame: "pd.DataFrame", name: str) -> Floats:
    """Return a column of the table as float64, NaN for missing values."""
    import pandas as pd

    if name not in frame:
        raise UsageError(f"no column is called {name!r}; {near_names(name, map(str, frame.columns))}")
    column = frame[name]
    numbers = pd.to_numeric(column, errors="coerce")
    wrong = np.flatnonzero(column.notna() & numbers.isna())
    if len(wrong):
        at = int(wrong[0])
        raise UsageError(
            f"column {name!r} must hold numbers: it holds {column.iloc[at]!r:.60} in {_row_name(frame, at)}"
        )
    return numbers.to_numpy(np.float64, na_value=np.nan)


def _row_name(frame: "pd.DataFrame", at: int) -> str:
    row = f"row {frame.index[at] + 1}"  # counted in the whole table, before filtering
    return f"{row} ({frame['model'].iloc[at]})" if "model" in frame else row


def _text(value: Any) -> str:
    import pandas as pd

    # pandas stores a column of integers as floats if a value is missing
    return "" if pd.isna(value) else str(int(value) if isinstance(value, float) and value.is_integer() else value)


def direction(column: Column, frame: "pd.DataFrame", one_width: bool) -> int | None:
    """Return 1 if lower values are better (nearer to full collapse), −1 if higher values are, None if unknown.

    The direction depends on the column's expression, not on its label. The logarithm of a measurement has the same
    direction. A measurement that depends on the scale of the embeddings has a direction only if all compared models
    have the same width (``one_width``), because the scale cannot be compared between widths. The numbers of classes
    and dimensions are read from ``frame``.
    """
    known, logarithm = plugins().measurements(), LOGARITHM.fullmatch(column.expression)
    name = logarithm[1] if logarithm else column.expression
    if name not in known:
        return None
    metric, measure = known[name]
    without_unit = metric.scale_of(measure) == 0 or "validation" in metric.needs  # loss and shares of samples
    if not (without_unit or one_width):
        return None
    if metric.better is not None:
        return 1 if metric.better == "lower" else -1
    limits = _limits(measure.towards, frame)
    if limits is None:
        return None
    values = np.exp(column.values) if logarithm else column.values
    above, below = bool((values > limits).any()), bool((values < limits).any())
    return None if above == below else 1 if above else -1


def one_width(frame: "pd.DataFrame", groups_n: Any = None) -> bool:
    """Return whether all rows have one width or, with ``groups_n``, whether all rows of a group have one width.

    The scale of embeddings can be compared only within a width. The result is False if the width of a row is unknown.
    ``groups_n`` has the group of each row.
    """
    name = next((each for each in ("dim", "width") if each in frame), None)
    if name is None or frame[name].isna().any():
        return False
    return bool((frame[name].groupby(np.zeros(len(frame)) if groups_n is None else groups_n).nunique() == 1).all())


def _limits(towards: Limit, frame: "pd.DataFrame") -> Floats | float | None:
    """Return a measurement's value at full collapse: one number, or a number per row if it depends on C and d.

    ``towards`` is this number or a function of C, the number of classes, and d, the number of dimensions. Return None
    if a row has no such value, or if ``towards`` is a function and a row lacks C or d.
    """
    if not callable(towards):
        return None if towards is None else float(towards)
    if not {"classes", "dim"} <= set(frame) or frame[["classes", "dim"]].isna().any(axis=None):
        return None
    limits = [limit_at(towards, int(C), int(d)) for C, d in zip(frame["classes"], frame["dim"], strict=True)]
    return None if None in limits else np.array(limits, dtype=np.float64)
