"""Measure the layers of a model or store, and the checkpoints of a training run: a row for each.

inputs/blocks_and_lens.py finds the blocks and the logit lens; accumulators.py applies the lens during validation.
"""

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from collapse.collection.named_store import Measured, how_to_measure, open_or_collect, place_among
from collapse.core.progress import Report, numbered, shows_progress
from collapse.errors import CollapseError, StoreError
from collapse.hub.references import find_revisions
from collapse.inputs.accepted_options import NO_PART, accepts
from collapse.inputs.collection_spec import CollectionSpec
from collapse.measurement.measuring import Classes, Other, measure_store, open_measurable
from collapse.measurement.results import Results
from collapse.measurement.rows import Row
from collapse.plugin.registry import Wanted
from collapse.stores.layer_names import TOP, layers_of
from collapse.stores.store import Store

log = logging.getLogger("collapse")


@accepts(part=NO_PART)
@shows_progress
def measure_layers(
    model: Any,
    *,
    layers: str | Iterable[int] = "all",
    store: str | Path | None = None,
    metrics: Wanted = None,
    min_count: int = 1,
    classes_of: Classes = (),
    ood_text: Any = None,
    device: str | None = None,
    progress: Report | None = None,
    name: str | None = None,
    **options: Any,
) -> Results:
    """Measure layers of a model or store, as ``collapse measure --layers`` does.

    NC4 and the loss of an inner layer use the logit lens: the model's own final norm and head are applied to the layer.
    The nearest class centre (NCC) is found among the class means of this layer.

    Args:
        model: A store, its folder or its name on the Hub; or a model or loaded model, which is run first if needed.
        layers: ``"all"``, ``"every:4"``, or numbers such as ``[0, 4, -2]``. Layer l is the input of the model's block
            l. The last layer, -1, is always measured. For a store, ``"all"`` means all layers in it; if it holds only
            ``top``, this is an error.
        store, metrics, min_count, classes_of, ood_text, device, progress, name: As in :func:`collapse.measure`.
        {options}

    Returns:
        A row per layer, in order of depth.

    Raises:
        UsageError: There is no such layer, or an option is invalid or does not apply.
        StoreError: The store does not hold a layer.
        CollapseError: As in :func:`collapse.measure`.
    """
    how = how_to_measure(metrics, device, min_count=min_count, classes_of=classes_of, progress=progress)
    asked = CollectionSpec(**options, layers=layers).layers
    options |= {"layers": asked, "device": device, "name": name}
    opened, ood = open_or_collect(model, ood_text, store=store, progress=progress, **options)
    return Results(rows_of_layers(opened, asked, {}, ood=ood, **how))


def rows_of_layers(
    opened: Measured,
    asked: Any,
    previous: dict[str, Other],
    *,
    ood: Any = None,
    of_models: bool = False,
    **how: Any,
) -> list[Row]:
    """Measure layers of a store; metrics can read the statistics of the previous row as ``previous``.

    Args:
        opened: The store.
        asked: The layers, as ``--layers`` names them.
        previous: Dictionary with the store and layer of the previous row; this call updates it. The key is the layer if
            ``of_models``, otherwise "".
        ood: The store of an out-of-distribution text, or None.
        of_models: Whether the previous row is the same layer of another model or checkpoint. If False, the previous row
            is another layer of this model.
        **how: Arguments of :func:`collapse.measurement.measuring.row_and_results`.
    """
    store: Store = open_measurable(opened, Store)
    rows, layers = [], layers_held(store, asked)
    for layer in layers:
        others: dict[str, Other | None] = {"ood": (ood, layer)} if ood else {}
        key = layer if of_models else ""
        if of_models or len(layers) > 1:
            last, _ = previous.get(key, (None, ""))
            comparable = isinstance(last, Store) and last.identity.get("tokenizer") == store.identity.get("tokenizer")
            others["previous"] = previous[key] if comparable else None
        rows.append(measure_store(store, layer=layer, others=others, **how))
        previous[key] = store, layer
    return rows


def layers_held(store: Store, asked: Any) -> list[str]:
    """Return the layers that ``--layers`` names, in order of depth; ``all`` means every layer that the store holds.

    Raises:
        StoreError: ``asked`` is ``all``, but the store holds only ``top``.
    """
    if asked != "all":
        return layers_of(asked, store.n_layers)
    if store.layers == [TOP]:
        raise StoreError(
            f"{store} holds only the layer {TOP}: to collect the other layers, give the model and its text, as in "
            "collapse measure MODEL --text FILES --layers all"
        )
    return store.layers


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
        revisions: A name of a revision, or a pattern such as ``"step*"``. Give several in a list, or in one string,
            separated by commas.
        store: Folder of the stores, one for each checkpoint; None for the local cache, where checkpoints with equal
            weights share a store.
        metrics, min_count, ood_text: As in :func:`collapse.measure`.
        layers: As in :func:`collapse.measure_layers`; only the top layer by default.
        progress: Called as progress(what, done, total[, note]); ``what`` begins with the checkpoint's number, such as
            "2 of 5".
        {options}

    Returns:
        A row per checkpoint and layer, in the order of the checkpoints' steps.

    Raises:
        UsageError: A pattern matches nothing, or an option is invalid.
        CollapseError: No checkpoint can be measured.
    """
    how = how_to_measure(metrics, options.get("device"), min_count=min_count)
    asked = CollectionSpec(**options, layers=layers).layers
    names, rows = find_revisions(str(model), revisions), []
    previous: dict[str, Other] = {}
    for at, name in enumerate(names, 1):
        try:
            place = None if store is None else place_among(name, str(store))
            report = progress and numbered(progress, at, len(names))
            opened, ood = open_or_collect(name, ood_text, store=place, progress=report, layers=asked, **options)
            made = rows_of_layers(opened, asked, previous, of_models=True, ood=ood, progress=report, **how)
            rows += [of_revision(row, name) for row in made]
        except CollapseError as error:
            if at == len(names) and not rows:
                raise
            log.warning("%s is not measured: %s", name, error)
    return Results(rows)


def of_revision(row: Row, name: str) -> Row:
    """Return a checkpoint's row; a row without a step gets ``name`` as its model's name if ``name`` has a revision."""
    return replace(row, model=name) if row.step is None and "@" in name else row
