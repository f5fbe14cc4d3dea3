"""Make the request for a source that is already open: embeddings in memory, or a source of a plugin or of the user."""

from collections.abc import Collection, Iterable
from pathlib import Path

from collapse.errors import UsageError
from collapse.inputs.collection_spec import CollectionSpec, flag_of
from collapse.inputs.source import Source
from collapse.plugin.plugin_manager import plugins
from collapse.stores.request import Request

OF_SOURCE = ("without", "recollect", "batch_size", "deterministic", "part")
"""Options of a collection that apply to any source."""


def source_request(source: Source, spec: CollectionSpec, folder: Path | None) -> Request:
    """Return the request for an open source; ``folder`` is the store's folder, or None for a store in memory."""
    return Request(
        identity=source.identity,
        shown_names={"model": source.model["name"], "corpus": source.corpus["name"]},
        load=lambda existing, report: source,
        validates=source.validation is not None,
        folder=folder,
        **spec.beside_identity,
    )


def check_applies(what: str, given: Iterable[str], applying: Collection[str]) -> None:
    """Raise UsageError for a given option that is not in ``applying``; ``what`` begins the message."""
    for name in given:
        if name not in applying:
            raise UsageError(f"{what}: {flag_of(name)} does not apply; remove the option")


def plugin_source(model: str, spec: CollectionSpec) -> Source | None:
    """Return a plugin's source for a MODEL name, or None."""
    answers = plugins().answers("collapse_sources", model)
    plugin, source = next((each for each in answers if each[1] is not None), ("", None))
    if source is not None:
        check_applies(f"{model} is a source of plugin {plugin}", spec.given, OF_SOURCE)
    return source
