"""Measure the layers of a model or store: a row for each."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from collapse.collection.collecting import collect
from collapse.collection.named_store import check_options, named_store
from collapse.core.progress import Report, shows_progress
from collapse.errors import UsageError
from collapse.inputs.accepted_options import accepts
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.held_options import refuse_options
from collapse.inputs.live_model import is_live
from collapse.measurement.measuring import Classes, measure_store, open_measurable
from collapse.measurement.results import Results
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
    device: str | None = None,
    progress: Report | None = None,
    name: str | None = None,
    **options: Any,
) -> Results:
    """Measure layers of a model or store, as ``collapse measure --layers`` does.

    NC4 and the loss of an inner layer are of the logit lens: the model's own final norm and head, applied to the layer.
    The nearest class centres are the layer's own.

    Args:
        model: A model, also a loaded one, which is collected first; or a store, its folder or its name on the Hub.
        layers: ``"all"`` (of a store, all that it holds), ``"every:4"``, or numbers such as ``[0, 4, -2]``. Layer l is
            the input of block l. The last layer, -1, is always measured.
        store, metrics, min_count, classes_of, device, progress, name: As in :func:`collapse.measure`.
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
    wanted = plugins().chosen(metrics)  # report an unknown name now, not after hours of collecting
    pick_device(device or "cpu")
    asked = CollectionSpec(**options, layers=layers).layers
    if isinstance(model, str | Path):
        given = {"layers": asked, "device": device, **options}
        given = {name: each for name, each in given.items() if each is not None}
        check_options(str(model), given, null=False)
        opened = named_store(str(model), store=None if store is None else str(store), progress=progress, **given)
    elif is_live(model):
        opened = collect(model, store=store, name=name, layers=asked, progress=progress, **options)
    else:
        opened = open_measurable(model, Store)
        refuse_options(opened, options)
    how: dict[str, Any] = {"metrics": wanted, "min_count": min_count, "classes_of": classes_of}
    how |= {"device": None if device == "auto" else device, "progress": progress}
    return Results(measure_store(opened, layer=layer, **how) for layer in layers_held(opened, asked))


def layers_held(store: Store, asked: Any) -> list[str]:
    """Return the layers that ``--layers`` names, in order of depth; ``all`` means every layer that the store holds."""
    return store.layers if asked == "all" else layers_of(asked, store.depth())
