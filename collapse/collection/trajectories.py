"""Measure the checkpoints of a training run: revisions of a model on the Hub, or checkpoint folders."""

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from collapse.collection.measuring_layers import rows_of_layers
from collapse.collection.named_store import how_to_measure, open_or_collect, place_among
from collapse.core.progress import Report, numbered, shows_progress
from collapse.errors import CollapseError
from collapse.hub.references import find_revisions
from collapse.inputs.accepted_options import NO_PART, accepts
from collapse.inputs.collection_spec import CollectionSpec
from collapse.measurement.results import Results
from collapse.measurement.rows import Row
from collapse.plugin.registry import Wanted
from collapse.stores.layer_names import TOP
from collapse.stores.store import Store

log = logging.getLogger("collapse")


@accepts(part=NO_PART)
@shows_progress
def trajectory(
    model: str | Path,
    *,
    revisions: str | Iterable[str],
    store: str | Path | None = None,
    metrics: Wanted = None,
    min_count: int = 1,
    ood_text: Any = None,
    layers: str | Iterable[int] = TOP,
    progress: Report | None = None,
    **options: Any,
) -> Results:
    """Measure the checkpoints of a training run, as ``collapse measure --revisions`` does.

    A checkpoint that cannot be measured has no row; a log record says why. To resume an interrupted call, repeat it.

    Args:
        model: A Hub id, to measure its branches and tags; or a folder, to measure its subfolders.
        revisions: Names of revisions, or patterns such as ``"step*"``; several as one text with commas, or as a list.
        store: Folder of the stores, one for each checkpoint; None for the local cache, where checkpoints with equal
            weights share a store.
        metrics, min_count, ood_text: As in :func:`collapse.measure`.
        layers: As in :func:`collapse.measure_layers`; only the top layer by default.
        progress: Called as progress(what, done, total[, note]); ``what`` begins with the checkpoint's number, such as
            "2 of 5".
        {options}

    Returns:
        A row per checkpoint and layer, in the order of their steps.

    Raises:
        UsageError: A pattern matches nothing, or an option is invalid.
        CollapseError: No checkpoint can be measured.
    """
    how = how_to_measure(metrics, options.get("device"), min_count=min_count)
    asked = CollectionSpec(**options, layers=layers).layers
    names, rows = find_revisions(str(model), revisions), []
    before: dict[str, tuple[Store, str]] = {}
    for at, name in enumerate(names, 1):
        try:
            place = None if store is None else place_among(name, str(store))
            report = progress and numbered(progress, at, len(names))
            opened, ood = open_or_collect(name, ood_text, store=place, progress=report, layers=asked, **options)
            made = rows_of_layers(opened, asked, before, of_models=True, ood=ood, progress=report, **how)
            rows += [of_revision(row, name) for row in made]
        except CollapseError as error:
            if at == len(names) and not rows:
                raise
            log.warning("%s is not measured: %s", name, error)
    return Results(rows)


def of_revision(row: Row, name: str) -> Row:
    """Return a revision's row; if it has no step and ``name`` is ``id@revision``, ``name`` becomes the row's model."""
    return replace(row, model=name) if row.step is None and "@" in name else row
