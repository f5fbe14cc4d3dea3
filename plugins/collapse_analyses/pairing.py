"""Pairs of rows that differ in one column and are equal in others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from collapse import CollapseError
from collapse.errors import UsageError
from collapse.measurement.comparing import COMPARED
from collapse.measurement.model_names import ARCHITECTURE, RECIPE, part_names
from collapse_analyses.residuals import Codes
from collapse_analyses.rows import names_of
from collapse_analyses.shown import plain

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Pairs:
    """Pairs of rows.

    Attributes:
        values: The two values in which they differ.
        equal: The columns in which they are equal.
        first, second: Places of the rows with the first and with the second value, pair by pair.
    """

    values: tuple[Any, Any]
    equal: list[str]
    first: list[int]
    second: list[int]


def pairs_of(
    frame: "pd.DataFrame", by: str, *, values: str | None = None, equal: str | Sequence[str] | None = None
) -> Pairs:
    """Pair the rows of a table.

    Args:
        frame: The table, with the parts of its models' names.
        by: The column in which the rows of a pair differ.
        values: Its two values, separated by a comma; None for the two that it has.
        equal: The columns in which they are equal; None for the parts of names, texts and settings.

    Raises:
        UsageError: The column has not two values, or not these.
        CollapseError: Several rows of one value are equal in everything.

    >>> import pandas as pd
    >>> pairs = pairs_of(pd.DataFrame({"lr": [1, 2, 1, 2], "size": [8, 8, 9, 9]}), "lr", equal="size")
    >>> pairs.first, pairs.second
    ([0, 2], [1, 3])
    """
    one, two = _values(frame, by, values)
    if equal is not None:
        names = names_of(equal, frame, "--equal")
    else:
        known = [*part_names(frame), "corpus", *COMPARED]
        names = [each for each in dict.fromkeys(known) if each in frame and each not in (by, ARCHITECTURE, RECIPE)]
    if by in names:
        raise UsageError(f"rows of a pair differ in {by}, and cannot be equal in it: leave it out of --equal")
    keys = [tuple(_key(frame[name].iloc[at]) for name in names) for at in range(len(frame))]
    places: list[dict[tuple[Any, ...], int]] = [{}, {}]
    for at, value in enumerate(frame[by]):
        for side, wanted in zip(places, (one, two), strict=True):
            if value != wanted:
                continue
            if keys[at] in side:
                models = frame.get("model", frame.index).tolist()
                raise CollapseError(
                    f"two rows ({models[side[keys[at]]]} and {models[at]}) have {by} = {wanted} and are equal in "
                    f"{', '.join(names) or 'nothing'}: choose rows with --where, or name more columns with --equal"
                )
            side[keys[at]] = at
    both = [key for key in places[0] if key in places[1]]
    used = [name for name in names if frame[name].nunique() > 0]
    return Pairs((one, two), used, [places[0][key] for key in both], [places[1][key] for key in both])


def units_of(frame: "pd.DataFrame", pairs: Pairs) -> Codes:
    """Return what each pair counts as: pairs of the same architectures as one, unless names say none or all share one.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"architecture": ["2x8", "2x8", "2x8", "2x8", "4x8", "4x8"]})
    >>> units_of(frame, Pairs((0, 1), [], [0, 2, 4], [1, 3, 5])).tolist()
    [0, 0, 1]
    """
    each = np.arange(len(pairs.first), dtype=np.int64)
    if ARCHITECTURE not in frame or frame[ARCHITECTURE].iloc[[*pairs.first, *pairs.second]].isna().any():
        return each
    one, two = (frame[ARCHITECTURE].iloc[places].astype(str) for places in (pairs.first, pairs.second))
    codes = np.unique([f"{a} {b}" for a, b in zip(one, two, strict=True)], return_inverse=True)[1]
    return np.asarray(codes, dtype=np.int64) if codes.max() else each


def _values(frame: "pd.DataFrame", by: str, wanted: str | None) -> tuple[Any, Any]:
    different = map(plain, frame[by].dropna().unique().tolist())
    there = sorted(different, key=lambda value: (isinstance(value, str), value))
    listed = ", ".join(str(value) for value in there[:8])
    if wanted is None:
        if len(there) != 2:
            raise UsageError(
                f"{by} has {len(there)} values ({listed}): name two with --values, or choose rows with --where"
            )
        return there[0], there[1]
    named = [piece.strip() for piece in wanted.split(",")]
    found = [value for text in named for value in there if _is(value, text)]
    if len(named) != 2 or len(found) != 2 or found[0] == found[1]:
        raise UsageError(
            f"--values must be two different values of {by}, with a comma, got {wanted!r}; it has {listed}"
        )
    return found[0], found[1]


def _is(value: Any, text: str) -> bool:
    try:
        return bool(float(value) == float(text))
    except (TypeError, ValueError):
        return str(value) == text


def _key(value: Any) -> Any:
    """Return a value that equals those that mean the same: all missing values are one."""
    import pandas as pd

    return None if pd.isna(value) is True else value
