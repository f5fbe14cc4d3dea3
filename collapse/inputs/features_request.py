"""A request for a features file, which is read at once: its content is its identity."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collapse.errors import UsageError
from collapse.inputs.collection_spec import CollectionSpec, flag_of
from collapse.inputs.features import open_features
from collapse.numerics.devices import pick_device
from collapse.stores.request import Request

_OPTIONS = ("without", "null", "recollect", "batch_size", "device", "deterministic", "trust_remote_code")


def features_request(path: Path, spec: CollectionSpec, folder: Path | None = None) -> Request:
    """Return the request for a features file.

    Args:
        path: The features file.
        spec: The options, of which few apply.
        folder: Folder of the store; None for one in memory.

    Raises:
        UsageError: An option does not apply to a features file.
        CollapseError: A tensor is missing or of the wrong shape, or a label lies outside the classifier.
    """
    check_features_options(path, spec.given)
    pick_device(spec.device)  # not used, but an unavailable device is an error
    source = open_features(path, shuffled=spec.null == "shuffled")
    return Request(
        identity=source.identity,
        names={"model": source.model["name"], "corpus": source.corpus["name"]},
        load=lambda trained, report: source,
        validates=source.validation is not None,
        folder=folder,
        recollect=spec.recollect,
        without=tuple(spec.without),
    )


def check_features_options(path: str | Path, given: Mapping[str, Any]) -> None:
    """Raise UsageError for options that do not apply to a features file."""
    for name in given:
        if name not in _OPTIONS:
            raise UsageError(f"{path} is a features file: {flag_of(name)} does not apply; leave the option out")
    if given.get("null") == "untrained":
        raise UsageError(f"{path} has no model to initialize: --null untrained does not apply, --null shuffled does")
