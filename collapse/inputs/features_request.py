"""A request for a features file, which is read at once: its content is its identity."""

from pathlib import Path
from typing import Any

from collapse.core.progress import Report
from collapse.errors import UsageError
from collapse.inputs.collection_spec import CollectionSpec, flag_of
from collapse.inputs.features import open_features
from collapse.inputs.request import Request
from collapse.inputs.source import Source, shuffled
from collapse.numerics.devices import pick_device
from collapse.stores.store import Store

_OPTIONS = ("without", "null", "recollect", "batch_size", "device", "deterministic", "trust_remote_code")


class FeaturesRequest(Request):
    """A request for a features file.

    Args:
        path: The features file.
        spec: The options, of which few apply.

    Raises:
        UsageError: An option does not apply to a features file.
        CollapseError: A tensor is missing or of the wrong shape, or a label lies outside the classifier.
    """

    def __init__(self, path: str | Path, spec: CollectionSpec) -> None:
        check_features_options(path, spec.given)
        pick_device(spec.device)  # not used, but an unavailable device is an error
        source = open_features(Path(path))
        self._source = shuffled(source, {"null": spec.null}) if spec.null else source
        self.without, self.recollect = tuple(spec.without), spec.recollect

    @property
    def identity(self) -> dict[str, Any]:
        """See :class:`Request`."""
        return self._source.identity

    @property
    def names(self) -> dict[str, str | None]:
        """See :class:`Request`."""
        return {"model": self._source.model["name"], "corpus": self._source.corpus["name"]}

    def validates_beside(self, validation: str | None) -> bool:
        """See :class:`Request`."""
        return self._source.validation is not None

    def source(self, trained: Store | None, report: Report | None) -> Source:
        """See :class:`Request`."""
        return self._source


def check_features_options(path: str | Path, given: dict[str, Any]) -> None:
    """Raise UsageError for options that do not apply to a features file."""
    for name in given:
        if name not in _OPTIONS:
            raise UsageError(f"{path} is a features file: {flag_of(name)} does not apply; leave the option out")
    if given.get("null") == "untrained":
        raise UsageError(f"{path} has no model to initialize: --null untrained does not apply, --null shuffled does")
