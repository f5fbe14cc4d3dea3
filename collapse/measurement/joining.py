"""Join results tables."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from collapse.measurement.results import Results

if TYPE_CHECKING:
    import pandas as pd

_SAME = ("store", "min_count", "layer")


def joined(tables: Sequence[Results]) -> Results:
    """Return the rows of several tables as one; rows of one store with equal ``min_count`` appear once.

    >>> from collapse.measurement.rows import Row
    >>> row = Row("m", None, "", "a1", 1, 9, 4, 99, {"val_loss": 2.0})
    >>> len(joined([Results([row]), Results([row])]))
    1
    """
    if len(tables) == 1:
        return tables[0]
    import pandas as pd

    frames = [table.frame() for table in tables if len(table)]
    if not frames:
        return Results()
    columns = list(dict.fromkeys(name for frame in frames for name in frame))
    # pandas warns of columns without a value, whose dtype says nothing
    whole = pd.concat([frame.dropna(axis="columns", how="all") for frame in frames], ignore_index=True)
    return Results.from_frame(_each_once(whole.reindex(columns=columns)))


def _each_once(frame: "pd.DataFrame") -> "pd.DataFrame":
    keys = [name for name in _SAME if name in frame]
    if "store" not in keys:
        return frame
    named = frame["store"].notna() & (frame["store"] != "")
    return frame[~(named & frame.duplicated(keys))]
