"""Measure growing merges of the parts of a collection, to see how measurements converge with more text."""

from collections.abc import Iterable

from collapse.core.progress import Report
from collapse.errors import counted
from collapse.measurement.measuring import measure_store
from collapse.measurement.table import Table
from collapse.plugin.plugin_manager import plugins
from collapse.stores.folding_shards import statistics_of_shards
from collapse.stores.merging import Parts, joined


def convergence(
    parts: Parts,
    *,
    metrics: str | Iterable[str] | None = None,
    min_count: int = 1,
    progress: Report | None = None,
) -> Table:
    """Measure the first part of a collection, the first two, and so on, in the order of their slices.

    The curve needs a collection in parts (``collapse collect … --part k/n``), because a store holds only totals of its
    text. Measurements of the validation text are excluded: parts are validated only after merging. No file is written.
    A part that several ranks collected counts as several parts, because each rank writes its own shard.

    Args:
        parts: Two or more parts, their folders, or the folder that holds them. Parts of the text may be missing.
        metrics, min_count: As in :func:`collapse.measure`.
        progress: Called as progress(what, done, total[, note]).

    Returns:
        A table with a row per merge. Its columns are parts, samples, classes, and each measurement that has a number in
        at least one row. ``frame()`` returns the table as a pandas DataFrame.

    Raises:
        UsageError: There are fewer than two parts, or a metric is unknown.
        StoreError: The parts are of different collections, or overlap.
        CollapseError: There are too few classes, or a file was altered.
    """
    part, names = joined(parts), plugins().select(metrics)
    shards, records = part.shards, list[dict[str, float | None]]()
    for done in range(1, len(shards) + 1):
        row = measure_store(statistics_of_shards(shards[:done]), metrics=names, min_count=min_count)
        records.append({"parts": done, "samples": row.samples, "classes": row.classes, **row.measurements})
        if progress:
            progress("measuring growing text", done, len(shards))
    columns = [name for name in records[0] if any(each[name] is not None for each in records)]
    lacking = len(records[0]) - len(columns)
    return Table(
        f"{part.model} on growing shares of {part.corpus}",
        columns,
        [[each[name] for name in columns] for each in records],
        [f"{counted(lacking, 'measurement')} excluded, because parts have no numbers for them"] if lacking else [],
    )
