"""Measure a model beside its null baselines: the model before training, and the embeddings with shuffled labels.

inputs/permuted_labels.py permutes the labels.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from collapse.collection.collecting import collect
from collapse.collection.named_store import how_to_measure
from collapse.core.progress import Report
from collapse.errors import CollapseError
from collapse.inputs.accepted_options import NO_PART, accepts
from collapse.inputs.collection_spec import NULLS
from collapse.inputs.features import is_features_file
from collapse.inputs.held_options import options_held, refuse_store
from collapse.measurement.measuring import measure_store
from collapse.measurement.rows import Note, Row
from collapse.stores.identity_differences import differences
from collapse.stores.manifest import KNOWN_LATER
from collapse.stores.store import Store

_NO_MODEL = "untrained: a features file has no model to initialize"
_GGUF = "untrained: a GGUF file does not record how its model was initialized"


@accepts(part=NO_PART, null="it measures every null; remove null=")
def measure_with_nulls(
    model: str | Path,
    *,
    metrics: Any = None,
    min_count: int = 1,
    progress: Report | None = None,
    **options: Any,
) -> Row:
    """Measure a model beside two null baselines on the same text: the untrained model, and shuffled labels.

    The stores of the null baselines are made in the local cache and reused from there; for a features file, they are
    in memory. Published stores of null baselines are never used.

    Args:
        model: A local folder, a Hub id, a GGUF file, or a features file; for the last two, there is no untrained model.
        metrics, min_count: As in :func:`collapse.measure`.
        progress: Called as progress(what, done, total[, note]).
        {options}

    Returns:
        The row of the model; its ``nulls`` hold the measurements of each null baseline.

    Raises:
        UsageError: An option is invalid, or a store is given.
        CollapseError: As in :func:`collapse.collect` and :func:`collapse.measure`.
    """
    how = how_to_measure(metrics, options.get("device"), min_count=min_count)
    refuse_store(model)
    store = collect(model, progress=progress, **options)
    row = measure_store(store, progress=progress, **how)
    return with_nulls(row, collect_nulls(store, model, options, progress), how, progress)


def with_nulls(row: Row, nulls: Mapping[str, Store | str], how: Mapping[str, Any], progress: Report | None) -> Row:
    """Add the measurements of null baselines to a row, and a note for each null baseline that is not available.

    ``nulls`` maps the name of each null baseline to its store, or to the reason why it has none. ``how`` has arguments
    of ``measure_store()``.
    """
    stores = {name: store for name, store in nulls.items() if isinstance(store, Store)}
    values = {name: measure_store(store, progress=progress, **how).measurements for name, store in stores.items()}
    notes = [Note("*", "null", reason) for reason in nulls.values() if isinstance(reason, str)]
    return replace(row, nulls=values, notes=(*row.notes, *notes))


def collect_nulls(
    store: Store, model: str | Path, options: Mapping[str, Any], progress: Report | None
) -> dict[str, Store | str]:
    """Collect the null baselines of a store on the same text.

    Returns:
        For each name of a null baseline, its store, or the reason why it has none.

    Raises:
        CollapseError: The model or text has changed since ``store`` was collected; or as in :func:`collapse.collect`.
    """
    if is_features_file(model):
        return {"untrained": _NO_MODEL, "shuffled": collect(model, null="shuffled", progress=progress)}
    given = {name: value for name, value in options.items() if value is not None and name not in ("part", "null")}
    wanted = options_held(store.identity, given)
    made: dict[str, Store | str] = {}
    for null in NULLS:
        if null == "untrained" and "gguf_file" in store.found_at[1]:
            made[null] = _GGUF
            continue
        found = collect(model, null=null, progress=progress, **wanted)
        differ = differences(store.identity, found.identity, ignoring=KNOWN_LATER | {"null"})
        if differ:
            raise CollapseError(
                f"cannot collect a null baseline of {store.model}: the model or text found now differs from the "
                f"store's in {'; '.join(differ)}. Give the model and text from which the store was collected"
            )
        made[null] = found
    return made
