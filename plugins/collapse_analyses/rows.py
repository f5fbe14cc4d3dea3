"""The rows that an analysis can use, their groups, and remarks on rows that are not independent of each other."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from collapse.errors import UsageError, counted, near_names
from collapse.measurement.columns import Column
from collapse.measurement.comparing import corpora_of, mixed
from collapse.measurement.model_names import ARCHITECTURE, training_of
from collapse_analyses.jackknife import FEWEST
from collapse_analyses.shuffling import Groups

if TYPE_CHECKING:
    import pandas as pd


def names_of(texts: str | Sequence[str] | None, frame: "pd.DataFrame", option: str) -> list[str]:
    """Split lists of column names at commas, except inside the exact name of a column.

    Raises:
        UsageError: The table has no such column, or no column is named.
    """
    if texts is None:
        return []
    given = [texts] if isinstance(texts, str) else list(texts)
    names = [piece.strip() for text in given for piece in ([text] if text in frame else text.split(","))]
    names = list(dict.fromkeys(filter(None, names)))
    if not names:
        raise UsageError(f"{option} names no column: name some, or leave the option out")
    for name in names:
        if name not in frame:
            raise UsageError(f"no column is called {name!r} ({option}); {near_names(name, map(str, frame.columns))}")
    return names


def complete_rows(
    frame: "pd.DataFrame", columns: Sequence[Column], named: Iterable[str] = ()
) -> tuple["pd.DataFrame", list[Column], list[str]]:
    """The rows with a value in every column, so that all are tested on the same models; a note on the others.

    Args:
        frame: The table.
        columns: Columns of numbers.
        named: Columns of any values that a row needs too, such as those of its group: rows without one are no group.
    """
    missing = [(column.label, np.isnan(column.values)) for column in columns]
    missing += [(name, np.asarray(frame[name].isna() | (frame[name] == ""), dtype=np.bool_)) for name in named]
    kept = ~np.any([rows for _, rows in missing], axis=0)
    if kept.all():
        return frame, list(columns), []
    lacking = ", ".join(f"{label} in {int(rows.sum()):,}" for label, rows in missing if rows.any())
    note = f"{counted(int((~kept).sum()), 'row')} left out for missing values: {lacking}"
    return frame.loc[kept], [Column(c.label, c.expression, c.names, c.values[kept]) for c in columns], [note]


def remarks(frame: "pd.DataFrame") -> list[str]:
    """Remarks on rows that cannot be compared, or that are not models of their own."""
    found = mixed(frame.to_dict("records"))
    if not any("training texts" in each for each in found) and len(corpora := corpora_of(frame)) > 1:
        found.append(f"rows of {len(corpora)} corpora are mixed: {', '.join(corpora[:4])}")
    return [*found, *_repeated(frame)]


def _repeated(frame: "pd.DataFrame") -> list[str]:
    """Notes on rows of one store, which make a p-value too small, and on rows of one model's name."""
    notes = []
    if {"store", "min_count"} <= set(frame.columns):
        stores = frame.loc[frame["store"].notna() & (frame["store"] != ""), ["store", "min_count"]]
        again = int(stores.duplicated().sum())
        one = "row repeats the store of another row and counts as a model of its own"
        several = "rows repeat the store of another row and count as models of their own"
        notes += [f"{again:,} {one if again == 1 else several}"] if again else []
    if "model" in frame and not notes:
        again = int(frame["model"].duplicated().sum())
        if 0 < again < len(frame) - 1:  # a table in which all rows are of one name has other columns to tell them apart
            one, several = "row has the model name of another row", "rows have the model name of another row"
            said = one if again == 1 else several
            notes.append(f"{again:,} {said}: measurements of one model are not independent")
    return notes


def groups_of(frame: "pd.DataFrame", names: Sequence[str]) -> Groups:
    """Return the group of each row by the values of columns that have one in every row, 0 to G−1."""
    codes = np.zeros(len(frame), dtype=np.int64)
    for name in names:
        values = np.unique([str(value) for value in frame[name]], return_inverse=True)[1]
        codes = np.unique(codes * (values.max() + 1) + values, return_inverse=True)[1]
    return np.asarray(codes, dtype=np.int64)


def one_width(frame: "pd.DataFrame", groups: Groups | None = None) -> bool:
    """Whether all rows, or those of each group, have one width, and so one unit of h; False where no column says it."""
    name = next((each for each in ("dim", "width") if each in frame), None)
    if name is None or frame[name].isna().any():
        return False
    return bool((frame[name].groupby(np.zeros(len(frame)) if groups is None else groups).nunique() == 1).all())


def trained_note(frame: "pd.DataFrame", names: Sequence[str], groups: Groups) -> list[str]:
    """A warning about groups whose models differ in training, which a trend in both columns would drive."""
    within = training_of(frame, groups)
    if not within or within in names:
        return []
    return [
        f"models of equal {' and '.join(names)} differ in {within}: training time may drive both sides; "
        f"--within {names[0]},{within} compares what neither explains"
    ]


_ADVICE = {"--within": "permutes models of equal {name} only"}


def sizes_note(
    frame: "pd.DataFrame",
    groups: Groups | None = None,
    *,
    advice: Mapping[str, str] = _ADVICE,
    exchangeable: bool = True,
) -> list[str]:
    """A warning about models of different sizes, whose rows are not exchangeable; with groups, on those within one.

    Args:
        frame: The table, with the parts of its models' names.
        groups: The group of each row.
        advice: What each option of the analysis does about it, with ``{name}`` for the column.
        exchangeable: Whether p assumes that rows are exchangeable; with clusters it does not.
    """
    names = (ARCHITECTURE, "n_params", "dim")
    name = next((each for each in names if each in frame and frame[each].nunique() > 1), None)
    if name is None:
        return []
    if groups is not None:
        differ = int((frame[name].groupby(groups).nunique() > 1).sum())
        within = f"models of different {name} are permuted within {differ} groups: size may drive both sides there"
        return [within] if differ else []
    options = [f"; {option} {name} {what.format(name=name)}" for option, what in advice.items()]
    assumed = ", and p assumes that rows are exchangeable" if exchangeable else ""
    many = frame[name].nunique()
    few = (
        f"; {many} values support no p-value over all rows" if many < FEWEST and frame[name].duplicated().any() else ""
    )
    return [
        f"the models have {many} values of {name}: size may drive both sides of a correlation"
        f"{assumed}{few}{''.join(options) if frame[name].duplicated().any() else ''}"
    ]
