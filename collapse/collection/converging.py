"""How measurements converge with the amount of text: measured on growing merges of the parts of a collection."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from collapse.collection.merging import classifier_rows, comparable, mergeable
from collapse.collection.trained import moments_of
from collapse.errors import StoreError, UsageError, counted
from collapse.measurement.measuring import measure_store
from collapse.measurement.table import Table
from collapse.numerics.accumulate import ClassMoments
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.plugin.guarding import outside_inference_mode
from collapse.plugin.plugin_manager import plugins
from collapse.progress import Report
from collapse.stores.manifest import differences
from collapse.stores.store import Store


@outside_inference_mode
def convergence(
    parts: Iterable[str | Path | Store],
    *,
    metrics: str | Iterable[str] | None = None,
    min_count: int = 1,
    progress: Report | None = None,
) -> Table:
    """Measure the first part of a collection, the first two, and so on, in the order of their slices.

    A store holds only totals of its text, so the curve needs a collection in parts (``collapse collect … --part k/n``).
    No file is written. What needs a validation text has no number, because parts are validated after merging.

    Args:
        parts: Two or more stores of parts, or their folders; not all parts of the text need be there.
        metrics, min_count: As of :func:`collapse.measure`.
        progress: Called as progress(what, done, total).

    Returns:
        A table with the columns parts, samples and classes, and one for each measurement that has a number anywhere;
        a row for each merge. ``frame()`` gives it as a pandas DataFrame.

    Raises:
        UsageError: Fewer than two parts, or an unknown metric.
        StoreError: The parts are of different collections, or overlap.
        CollapseError: As of :func:`collapse.measure`: too few classes, or an altered store.
    """
    parts = [parts] if isinstance(parts, str | Path | Store) else list(parts)
    stores = [each if isinstance(each, Store) else Store.load(each) for each in parts]
    if len(stores) < 2:
        raise UsageError(
            f"convergence() needs two parts or more, got {len(stores)}: collect them with --part 1/n to --part n/n"
        )
    stores = _in_order(stores)
    names = plugins().select(metrics)
    kinds = mergeable(stores, "train")
    total: ClassMoments | None = None
    rows = []
    for done, part in enumerate(stores, start=1):
        moments = moments_of(part.check(), kinds)
        if total is None:
            total = moments
        else:
            total.merge(moments)
        row = measure_store(_statistics(total, stores[:done]), metrics=names, min_count=min_count)
        rows.append([done, row.samples, row.classes, *(row.measurements[name] for name in names)])
        if progress:
            progress("measuring growing text", done, len(stores))
    return _table(stores[0], names, rows)


def _in_order(stores: Sequence[Store]) -> list[Store]:
    """Return the parts sorted by their slices.

    Raises:
        StoreError: They are of different collections, or overlap.
    """
    first = stores[0]
    for other in stores[1:]:
        differ = differences(comparable(first), comparable(other))
        if differ:
            raise StoreError(f"{first} and {other} are not parts of one collection: they differ in {'; '.join(differ)}")
    runs = [(run, at) for at, store in enumerate(stores) for run in store.manifest["coverage"]["train"]["done"]]
    runs.sort()
    for ((_, stop), at), ((start, _), after) in pairwise(runs):
        if start < stop:
            raise StoreError(f"{stores[at]} and {stores[after]} overlap: give parts of different slices of the text")
    return [stores[at] for at in dict.fromkeys(at for _, at in runs)]


def merged_statistics(parts: Sequence[Store]) -> EmbeddingStatistics:
    """Return the class statistics of some parts of a collection together; no file is written."""
    kinds = mergeable(parts, "train")
    total, *others = [moments_of(part.check(), kinds) for part in parts]
    for each in others:
        total.merge(each)
    return _statistics(total, parts)


def _statistics(total: ClassMoments, parts: Sequence[Store]) -> EmbeddingStatistics:
    """Return the class statistics of some parts, as a store of them would give them."""
    s = total.statistics_so_far()
    rows, about = classifier_rows(parts, s.classes), parts[0].manifest
    bias = rows["bias"].double() if "bias" in rows else None
    return replace(
        s,
        classifier=rows["weight"].double(),
        bias=bias,
        n_params=about["model"].get("n_params"),
        dtype=about["identity"].get("dtype") or "float32",
    )


def _table(store: Store, names: Sequence[str], rows: list[list[Any]]) -> Table:
    known = [at for at, name in enumerate(names, start=3) if any(row[at] is not None for row in rows)]
    lacking = len(names) - len(known)
    notes = [f"{counted(lacking, 'measurement')} left out, which parts have no numbers of"] if lacking else []
    return Table(
        f"{store.model} on growing shares of {store.corpus}",
        ["parts", "samples", "classes", *(names[at - 3] for at in known)],
        [[row[at] for at in (0, 1, 2, *known)] for row in rows],
        notes,
    )
