"""Options of a collection that were given on the command line, beside a store or features file that is there."""

from collections.abc import Mapping
from typing import Any

from collapse.held import check_features_options, check_store_options

# what collect() does not compare with a store that is there, unless one of these texts is named
_NOT_COMPARED: dict[str, tuple[str, ...]] = {
    "split": ("text",),
    "validation_split": ("validation_text",),
    "text_column": ("text", "validation_text"),
    "without": (),
}


def check_collect_options(model: str, folder: str | None, given: Mapping[str, Any]) -> None:
    """Refuse options that a collection into this folder would pass over, because its store is there already.

    Raises:
        UsageError: An option does not apply; the message says what is there.
    """
    from collapse.features import is_features_file
    from collapse.manifest import is_store
    from collapse.store import Store

    if is_features_file(model):
        check_features_options(model, given, alone=True)
    elif folder and is_store(folder) and not given.get("recollect"):
        left = {n: given[n] for n, texts in _NOT_COMPARED.items() if n in given and not given.keys() & set(texts)}
        check_store_options(Store.load(folder), left)
