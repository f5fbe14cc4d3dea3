"""Pairs of rows that differ in one column and are equal in others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from collapse import CollapseError
from collapse.errors import UsageError
from collapse.measurement.comparing import COMPARED
from collapse.measurement.model_names import ARCHITECTURE, RECIPE, part_names
from collapse_analyses.choosing import names_of, whole
from collapse_analyses.fits import Codes

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Pairs:
    """Pairs of rows.

    Attributes:
        values: The two values in which they differ.
        equal: The columns in which they are equal.
        first, second: (pairs,) places of the rows with the first and with the second value.
        units_n: (pairs,) what each pair counts as: pairs of the same architectures as one, unless names say none or
            all share one.
    """

    values: tuple[Any, Any]
    equal: list[str]
    first: Codes
    second: Codes
    units_n: Codes


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
    >>> pairs.first.tolist(), pairs.second.tolist()
    ([0, 2], [1, 3])
    """
    one, two = _values(frame, by, values)
    names = names_of(equal, frame, "equal")
    if equal is None:
        known = dict.fromkeys([*part_names(frame), "corpus", *COMPARED])
        names = [each for each in known if each in frame and each not in (by, ARCHITECTURE, RECIPE)]
    sides = []
    for value in (one, two):
        side = frame[names].assign(place=np.arange(len(frame)), of="one")[(frame[by] == value).to_numpy()]
        if (again := side.duplicated(["of", *names])).any():
            model = frame.get("model", frame.index.to_series()).iloc[side["place"][again].iloc[0]]
            raise CollapseError(
                f"two rows ({model} is one) have {by} = {value} and are equal in {', '.join(names) or 'nothing'}: "
                "choose rows with --where, or name more columns with --equal"
            )
        sides.append(side)
    both = sides[0].merge(sides[1], on=["of", *names])
    first, second = both["place_x"].to_numpy(), both["place_y"].to_numpy()
    used = [name for name in names if frame[name].nunique() > 0]
    return Pairs((one, two), used, first, second, _units(frame, first, second))


def _units(frame: "pd.DataFrame", first: Codes, second: Codes) -> Codes:
    if ARCHITECTURE not in frame or not len(first) or frame[ARCHITECTURE].iloc[[*first, *second]].isna().any():
        return np.arange(len(first))
    one, two = (frame[ARCHITECTURE].iloc[places].reset_index(drop=True) for places in (first, second))
    codes = one.to_frame("one").assign(two=two).groupby(["one", "two"]).ngroup().to_numpy(np.int64)
    return codes if codes.max() else np.arange(len(first))


def _values(frame: "pd.DataFrame", by: str, wanted: str | None) -> tuple[Any, Any]:
    """The two values of the column that are named, or that it has."""
    known = {str(value): value for value in map(whole, sorted(frame[by].dropna().unique()))}
    names = list(known) if wanted is None else [text.strip() for text in wanted.split(",")]
    if len(names) != 2 or len(set(names)) != 2 or not set(names) <= set(known):
        raise UsageError(
            f"{by} has {len(known)} values ({', '.join([*known][:8])}): name two with --values, or use --where"
        )
    return known[names[0]], known[names[1]]
