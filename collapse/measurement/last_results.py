"""The last measurements of a store, written next to its tensors."""

from contextlib import suppress

from collapse.core.reading import read_json
from collapse.errors import CollapseError
from collapse.measurement.rows import Row
from collapse.stores.files import canonical, sha256_of
from collapse.stores.lock import locked
from collapse.stores.manifest import RESULTS
from collapse.stores.store import Store
from collapse.stores.writing import write_atomic


def kept_row(store: Store) -> Row | None:
    """Return the last measurements of this content, or None; a damaged or outdated file is ignored."""
    if store.path is None:
        return None
    try:
        kept = read_json(store.path / RESULTS)
        if kept["store"] != store.digest or kept["sha256"] != sha256_of(kept["row"]):
            return None
        return Row.from_dict(kept["row"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep_row(store: Store, row: Row) -> None:
    """Write the measurements next to the tensors; does nothing if the store cannot be written or is in use.

    Under the store's lock, so that the file of a killed process has a known name, which the next writer replaces.
    """
    if store.path is None or store.is_remote:
        return
    measured = row.to_dict()
    kept = {"store": store.digest, "sha256": sha256_of(measured), "row": measured}
    with suppress(CollapseError), locked(store.path):
        write_atomic(store.path / RESULTS, canonical(kept))
