"""Measure the layers of a model or store: a row for each."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from collapse.collection.collecting import collect
from collapse.collection.named_store import check_options, named_store
from collapse.collection.out_of_distribution import check_ood, open_ood
from collapse.core.progress import Report, shows_progress
from collapse.errors import UsageError
from collapse.inputs.accepted_options import accepts
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.held_options import refuse_options
from collapse.inputs.live_model import is_live
from collapse.measurement.measuring import Classes, Other, measure_store, open_measurable
from collapse.measurement.results import Results
from collapse.measurement.rows import Row
from collapse.numerics.devices import pick_device
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.registry import Wanted
from collapse.stores.layers import layers_of
from collapse.stores.store import Store


@accepts("part")
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
    The nearest class means are the layer's own.

    Args:
        model: A model, also a loaded one, which is collected first; or a store, its folder or its name on the Hub.
        layers: ``"all"`` (of a store, all that it holds), ``"every:4"``, or numbers such as ``[0, 4, -2]``. Layer l is
            the input of block l. The last layer, -1, is always measured.
        store, metrics, min_count, classes_of, ood_text, device, progress, name: As in :func:`collapse.measure`.
        {options}

    Returns:
        A row per layer, in order of depth.

    Raises:
        UsageError: There is no such layer, or an option is invalid or does not apply.
        StoreError: The store does not hold a layer.
        CollapseError: As in :func:`collapse.measure`.
    """
    if options.get("part") is not None:
        raise UsageError("measure_layers() takes no part: collect the parts, merge them, and measure the store")
    wanted = None if metrics is None else plugins().chosen(metrics)  # report an unknown name before collecting
    pick_device(device or "cpu")
    asked = CollectionSpec(**options, layers=layers).layers
    check_ood(model, ood_text, options)
    opened = open_with_layers(model, asked, store=store, device=device, progress=progress, name=name, **options)
    how: dict[str, Any] = {"metrics": wanted, "min_count": min_count, "classes_of": classes_of}
    how |= {"device": None if device == "auto" else device, "progress": progress}
    if ood_text is not None:
        given = {"layers": asked, "device": device, **options}
        how["ood"] = open_ood(opened, model, ood_text, given, progress)
    return Results(rows_of_layers(opened, asked, {}, **how))


def open_with_layers(
    model: Any,
    asked: Any,
    *,
    store: str | Path | None,
    device: str | None = None,
    progress: Report | None = None,
    name: str | None = None,
    **options: Any,
) -> Store:
    """Open a model's store with some layers, or collect it; arguments and exceptions of :func:`measure_layers`."""
    if isinstance(model, str | Path):
        given = {"layers": asked, "device": device, **options}
        given = {name: each for name, each in given.items() if each is not None}
        check_options(str(model), given, null=False)
        return named_store(str(model), store=None if store is None else str(store), progress=progress, **given)
    if is_live(model):
        return collect(model, store=store, name=name, layers=asked, progress=progress, **options)
    opened: Store = open_measurable(model, Store)
    refuse_options(opened, options)
    return opened


def rows_of_layers(
    store: Store,
    asked: Any,
    before: dict[str, tuple[Store, str]],
    *,
    ood: Any = None,
    of_models: bool = False,
    **how: Any,
) -> list[Row]:
    """Measure layers of a store; metrics can read the row before as ``previous``.

    Args:
        store: The store.
        asked: The layers, as ``--layers`` names them.
        before: The last measured store by layer, which this updates; if not ``of_models``, by "".
        ood: The store of an out-of-distribution text.
        of_models: Whether the row before is the same layer of another model or checkpoint, instead of another layer.
        **how: Arguments of :func:`collapse.measurement.measuring.measured`.
    """
    rows, layers = [], layers_held(store, asked)
    for layer in layers:
        others: dict[str, Other | None] = {"ood": (ood, layer)} if ood else {}
        if of_models or len(layers) > 1:
            last = before.get(layer if of_models else "")
            comparable = last is not None and last[0].identity.get("tokenizer") == store.identity.get("tokenizer")
            others["previous"] = last if comparable else None
        rows.append(measure_store(store, layer=layer, others=others, **how))
        before[layer if of_models else ""] = store, layer
    return rows


def layers_held(store: Store, asked: Any) -> list[str]:
    """Return the layers that ``--layers`` names, in order of depth; ``all`` means every layer that the store holds."""
    return store.layers if asked == "all" else layers_of(asked, store.depth())
