"""Open what is measured: a local store, a store on the Hub, or a store collected from a model or features file."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collapse.collection.collecting import collect
from collapse.collection.out_of_distribution import check_ood, open_ood
from collapse.core.paths import expanded
from collapse.core.progress import Report
from collapse.errors import UsageError
from collapse.hub.client import at_revision
from collapse.hub.opening import open_named
from collapse.inputs.features import check_features_options, is_features_file
from collapse.inputs.held_options import refuse_options, refuse_store
from collapse.inputs.live_model import is_live
from collapse.measurement.measuring import open_measurable
from collapse.numerics.devices import pick_device
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.registry import Wanted
from collapse.stores.manifest import is_part, is_store
from collapse.stores.store import Store

Measured = Store | EmbeddingStatistics


def how_to_measure(metrics: Wanted, device: str | None, **more: Any) -> dict[str, Any]:
    """Return arguments of measure_store(). Unknown metrics and devices raise UsageError now, before hours of work."""
    pick_device(device or "cpu")
    wanted = None if metrics is None else plugins().chosen(metrics)  # None means all; measure_store() chooses them
    # "auto" chooses a device for the model only; the statistics stay on their device
    return {"metrics": wanted, "device": None if device == "auto" else device, **more}


def open_or_collect(
    model: Any,
    ood_text: Any,
    *,
    store: Any,
    progress: Report | None,
    name: str | None = None,
    device: str | None = None,
    **options: Any,
) -> tuple[Measured, Measured | None]:
    """Open or collect what :func:`collapse.measure` measures, and the store of an out-of-distribution text, if given.

    The arguments and exceptions are those of :func:`collapse.measure`.
    """
    given = {key: each for key, each in options.items() if each is not None}
    opened: Measured
    if isinstance(model, str | Path):
        given |= {"device": device} if device else {}  # a loaded model stays on its own device
        check_options(str(model), given, null=False, ood_text=ood_text)
        place = None if store is None else str(store)
        opened = open_or_collect_named(str(model), store=place, progress=progress, **given)
    elif is_live(model):
        opened = collect(model, store=store, name=name, progress=progress, **given)
    else:
        opened = open_measurable(model)
        refuse_options(
            f"{opened} is a finished store" if isinstance(opened, Store) else "statistics are already collected", given
        )
    return opened, open_ood(opened, model, ood_text, given, progress)


def open_or_collect_named(name: str, *, store: str | None, progress: Report | None, **options: Any) -> Store:
    """Open the store called ``name``, or open or collect the store of the model or features file called ``name``.

    ``name`` is a path or a name on the Hub. ``store`` is the folder of a model's store; None for the local cache.
    """
    if is_store(name) or is_part(name):  # for a part, load() raises an error that says what to do
        if store is not None:
            raise UsageError(f"{name} is a store or a part: --store {store} does not apply; remove the option")
        return Store.load(name)
    may_be_on_hub = not is_features_file(name) and not expanded(name).exists()
    if may_be_on_hub and not options.get("recollect"):
        named = open_named(at_revision(name, options.get("revision")))
        if named is not None:
            # open_named() has already used the revision, as that of the store's repository
            refuse_options(f"{named} is a finished store", [each for each in options if each != "revision"])
            return named
    return collect(name, store=store, progress=progress, **options)


def place_among(model: str, folder: str) -> str:
    """Return the folder for the store of one of several models: a subfolder of ``folder``, with the model's name.

    ``folder`` is the value of ``--store``.

    Raises:
        UsageError: ``folder`` is itself a store.
    """
    if is_store(folder):
        raise UsageError(f"{folder} is a store: for several models, give a folder of stores with --store")
    path = Path(os.path.abspath(expanded(model)))  # "." and ".." are not names
    return str(Path(folder) / (path.stem if is_features_file(model) else path.name))


def check_options(name: str, options: Mapping[str, Any], *, null: bool, ood_text: Any = None) -> None:
    """Raise UsageError if options of :func:`open_or_collect_named` do not apply, or if ``ood_text`` does not exist.

    ``null`` says whether null baselines are requested. If they are, also raise UsageError if ``name`` is a store.
    """
    if is_store(name):
        if null:
            refuse_store(name)
        refuse_options(f"{name} is a finished store", options)
    elif is_features_file(name):
        check_features_options(name, options)
    check_ood(name, ood_text, options)
