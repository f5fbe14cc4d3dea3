"""What figures are drawn of: results files, joined, and stores."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from collapse.errors import UsageError
from collapse.hub.opening import load
from collapse.measurement.columns import choose_rows
from collapse.measurement.last_results import kept_row
from collapse.measurement.results import Results
from collapse.stores.store import Store

Source = str | Path | Results | Store


@dataclass(frozen=True)
class Sources:
    """What figures are drawn of.

    Attributes:
        results: Rows of every results file; of stores alone, what was last measured of them. None if there is none.
        stores: The stores.
    """

    results: Results | None
    stores: tuple[Store, ...]


def opened(sources: Source | Iterable[Source], *, where: str | Sequence[str] | None = None) -> Sources:
    """Open results files and stores.

    Args:
        sources: Results files (.csv, .json, .parquet), folders of stores, names of stores on the Hub; or results
            tables and stores.
        where: Keep the rows whose column matches a glob, such as ``model=*_10L@9``.

    Raises:
        CollapseError: One cannot be read, or is not a results table or a store.
        UsageError: There is none, or a filter matches no row.
    """
    given = [sources] if isinstance(sources, str | Path | Results | Store) else list(sources)
    if not given:
        raise UsageError("name a results file or a store")
    made = [each if isinstance(each, Results | Store) else _read(each) for each in given]
    stores = tuple(each for each in made if isinstance(each, Store))
    tables = [each for each in made if isinstance(each, Results)]
    if not tables:
        rows = [row for row in map(kept_row, stores) if row is not None]
        tables = [Results(rows)] if rows else []
    results = joined(tables) if tables else None
    if where and results is None:
        raise UsageError("--where chooses rows of a results file, and none is named")
    if where and results is not None:
        results = _chosen(results, where)
    return Sources(results, stores)


def _read(source: str | Path) -> Results | Store:
    path = Path(source)
    if path.is_dir() or (not path.suffix and "/" in str(source) and not path.is_absolute() and not path.exists()):
        return load(source)
    return Results.read(path)


def joined(tables: Sequence[Results]) -> Results:
    """Return the rows of several tables as one; columns that a table lacks are missing values."""
    if len(tables) == 1:
        return tables[0]
    if all(len(each.rows) == len(each) for each in tables):
        return Results([row for each in tables for row in each.rows])
    import pandas as pd

    return Results.from_frame(pd.concat([each.frame() for each in tables], ignore_index=True))


def _chosen(results: Results, where: str | Sequence[str]) -> Results:
    frame = results.frame()
    kept = choose_rows(frame, where)
    if len(results.rows) == len(frame):  # rows hold more than a table: notes, and the training step
        return Results([results.rows[int(index)] for index in kept.index])
    return Results.from_frame(kept)
