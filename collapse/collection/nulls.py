"""Measure references beside a model: the same model before training, and its embeddings with shuffled labels."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from collapse.collection.collecting import collect
from collapse.core.paths import expanded
from collapse.core.progress import Report
from collapse.errors import CollapseError, UsageError
from collapse.inputs.collection_spec import NULLS, accepts, options_held
from collapse.inputs.features import is_features_file
from collapse.measurement.measuring import measure_store
from collapse.measurement.rows import Note, Row
from collapse.stores.manifest import KNOWN_LATER, differences, is_store
from collapse.stores.naming import recorded_arguments, recorded_model
from collapse.stores.store import Store

_NO_MODEL = "untrained: a features file has no model to initialize"
_GGUF = "untrained: a GGUF file does not say how its model was initialized"


@accepts
def measure_with_nulls(
    model: str | Path,
    *,
    metrics: Any = None,
    min_count: int = 1,
    progress: Report | None = None,
    **options: Any,
) -> Row:
    """Measure a model beside its nulls: untrained, and with shuffled labels, both on the same text.

    The nulls are collected into the local cache, where they are found again; never from what others published.

    Args:
        model: A local folder, a Hub id, a GGUF file, or a features file; the last two have no untrained null.
        metrics, min_count: As of :func:`collapse.measure`.
        progress: Called as progress(what, done, total).
        {options}

    Returns:
        The row of the model; its ``nulls`` hold the measurements of each reference.

    Raises:
        UsageError: An option is wrong, or a store is given whose model or text is not known here.
        CollapseError: As of :func:`collapse.collect` and :func:`collapse.measure`.
    """
    if options.get("null") is not None:
        raise UsageError("measure_with_nulls() measures every null: leave null out")
    device = options.get("device")
    how = {"metrics": metrics, "min_count": min_count, "device": None if device == "auto" else device}
    store = Store.load(model) if is_store(model) else collect(model, progress=progress, **options)
    row = measure_store(store, progress=progress, **how)
    return with_nulls(row, collect_nulls(store, model, options, progress), how, progress)


def with_nulls(row: Row, nulls: Mapping[str, Store | str], how: Mapping[str, Any], progress: Report | None) -> Row:
    """Return a row with the measurements of null stores, or with a note on each one that there is not."""
    stores = {name: store for name, store in nulls.items() if isinstance(store, Store)}
    values = {name: measure_store(store, progress=progress, **how).measurements for name, store in stores.items()}
    notes = [Note("*", "null", reason) for reason in nulls.values() if isinstance(reason, str)]
    return replace(row, nulls=values, notes=(*row.notes, *notes))


def collect_nulls(
    store: Store, model: str | Path, options: Mapping[str, Any], progress: Report | None
) -> dict[str, Store | str]:
    """Collect the nulls of a store's model on the store's text; or say why one is not available.

    Args:
        store: The store of the trained model.
        model: What was measured: the model, or the store itself.
        options: Options of the collection as they were given.
        progress: Called as progress(what, done, total).

    Raises:
        UsageError: The model is a store, and its model or text is not known here.
        CollapseError: What is found here is not what the store holds.
    """
    if is_features_file(model):
        return {"untrained": _NO_MODEL, "shuffled": collect(model, null="shuffled", progress=progress)}
    if store.identity.get("null"):
        raise UsageError(f"{store} is a null itself ({store.identity['null']}): name a model")
    if is_store(model) or "features" in store.identity:
        model = _model_of(store, options)
    given = {name: value for name, value in options.items() if value is not None and name not in ("part", "null")}
    wanted = options_held(store.identity, given)
    made: dict[str, Store | str] = {}
    for null in NULLS:
        if null == "untrained" and _is_gguf(store, model):
            made[null] = _GGUF
            continue
        found = collect(model, null=null, progress=progress, **wanted)
        differ = differences(store.identity, found.identity, apart=KNOWN_LATER | {"null"})
        if differ:
            raise CollapseError(
                f"cannot collect the null of {store.model}: these fields differ from the store's: {'; '.join(differ)}. "
                "Give the model and text of the store"
            )
        made[null] = found
    return made


def _model_of(store: Store, options: Mapping[str, Any]) -> str:
    """Return the name of a store's model, if model and text can be found again."""
    if "features" in store.identity:
        raise UsageError(f"{store} was made from a features file: run collapse measure FILE --null")
    named, gguf_file = recorded_model(store.manifest), recorded_arguments(store.manifest).get("gguf_file")
    if gguf_file and store.revision is None:
        named = str(Path(named) / str(gguf_file))
    known = expanded(named).exists() or store.revision is not None
    text = options.get("text") or (store.identity.get("corpus") or {}).get("revision")
    if not known or not text:
        lacks = " and ".join(what for what, there in (("model", known), ("text", text)) if not there)
        raise UsageError(
            f"{store} holds statistics of {store.model} on {store.corpus}; to collect a null, its {lacks} must be "
            "named: collapse measure MODEL --text FILES --null"
        )
    return f"{named}@{store.revision}" if store.revision else named


def _is_gguf(store: Store, model: str | Path) -> bool:
    return str(model).endswith(".gguf") or bool(recorded_arguments(store.manifest).get("gguf_file"))
