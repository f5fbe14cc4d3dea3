"""Join results tables: the rows of several files in one table, with columns added."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from collapse.errors import CollapseError, UsageError, counted
from collapse.measurement.columns import choose_rows
from collapse.measurement.model_names import with_parts
from collapse.measurement.results import Results

if TYPE_CHECKING:
    import pandas as pd


def join(
    tables: Iterable["Results | str | Path"],
    *,
    columns: Mapping[str, str | int | float] | None = None,
    parts: bool = False,
    where: str | Iterable[str] | None = None,
) -> Results:
    """Return one table with the rows of several, in order; a column that a table lacks is missing in its rows.

    Args:
        tables: Tables or their files; ``paper`` names the published measurements.
        columns: Columns to add, each with one value for all rows.
        parts: Add what the models' names say: depth, width, epochs, decay, seed, checkpoint, architecture, recipe.
        where: Keep the rows whose column matches a glob, such as ``width=64``; several filters must all match.

    Raises:
        UsageError: There is no table, a column to add is there already, or a filter is wrong.
        CollapseError: A table cannot be read, or a column holds texts in one table and numbers in another.

    >>> import pandas as pd
    >>> tables = [Results.from_frame(pd.DataFrame({"model": [name], "val_loss": [1.5]})) for name in "ab"]
    >>> join(tables, columns={"seed": 3}).frame().to_dict("records")
    [{'model': 'a', 'val_loss': 1.5, 'seed': 3}, {'model': 'b', 'val_loss': 1.5, 'seed': 3}]
    """
    import pandas as pd

    read = [each if isinstance(each, Results) else Results.read(each) for each in tables]
    if not read:
        raise UsageError("there is no table to join: name one or several results files")
    if not columns and not parts and all(each._frame is None for each in read):  # rows hold notes and the step too
        rows = [row for each in read for row in each.rows]
        kept = None if where is None else choose_rows(with_parts(Results(rows).frame()), _listed(where)).index
        return Results(rows if kept is None else (rows[int(at)] for at in kept))
    frames = [each.frame() for each in read]
    _check_kinds(frames)
    full = _whole_numbers([frame for frame in frames if len(frame)] or frames[:1])
    frame = pd.concat(full, ignore_index=True) if len(full) > 1 else full[0].copy()
    if parts or where is not None:
        whole = with_parts(frame)
        kept = whole if where is None else choose_rows(whole, _listed(where))
        frame = kept if parts else kept[list(frame.columns)]
    for name, value in (columns or {}).items():
        if not name or name in frame:
            there = "there is a column of this name" if name else "it has no name"
            raise UsageError(f"--set {name}={value}: {there}; choose another name")
        frame = frame.assign(**{name: value})
    return Results.from_frame(frame)


def _listed(where: str | Iterable[str]) -> list[str]:
    return [where] if isinstance(where, str) else list(where)


def _whole_numbers(frames: Sequence["pd.DataFrame"]) -> list["pd.DataFrame"]:
    """Give whole numbers a type that can miss values where a table lacks some: pandas would round those above 2^53."""
    from pandas.api.types import is_integer_dtype

    kinds = {}
    for name in dict.fromkeys(name for frame in frames for name in frame.columns):
        given = [frame[name].dtype for frame in frames if name in frame and frame[name].notna().any()]
        if given and all(map(is_integer_dtype, given)) and len(given) < len(frames):
            kinds[name] = "Int64"
    return [frame.astype({name: kind for name, kind in kinds.items() if name in frame}) for frame in frames]


def _check_kinds(frames: Sequence["pd.DataFrame"]) -> None:
    """Refuse a column that holds numbers in one table and texts in another: its numbers would become texts."""
    from pandas.api.types import is_numeric_dtype

    for name in dict.fromkeys(name for frame in frames for name in frame.columns):
        given = {at: frame[name].dropna() for at, frame in enumerate(frames, start=1) if name in frame}
        numeric = {at: is_numeric_dtype(column.dtype) for at, column in given.items() if len(column)}
        if len(set(numeric.values())) > 1:
            said = [f"{'numbers' if each else 'texts'} in table {at}" for at, each in numeric.items()]
            raise CollapseError(
                f"the column {name!r} holds {' and '.join(said[:2])} of {counted(len(frames), 'table')}: they cannot "
                "be joined"
            )
