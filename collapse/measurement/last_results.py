"""The last measurements of a store, written next to its tensors."""

from contextlib import suppress

from collapse.errors import CollapseError
from collapse.measurement.rows import Row
from collapse.stores.files import canonical, sha256_of
from collapse.stores.lock import locked
from collapse.stores.manifest import RESULTS
from collapse.stores.store import Store
from collapse.stores.store_columns import kept_results
from collapse.stores.writing import write_atomic


def kept_row(store: Store) -> Row | None:
    """Return the last measurements of a store, or None if there are none.

    The file of measurements is ignored if it is damaged, or if the store has changed since the file was written.
    """
    row = kept_results(store)
    return None if row is None else Row.from_dict(row)


def keep_row(store: Store, row: Row) -> None:
    """Write a store's measurements next to its tensors; do nothing if the store is on the Hub, in use or read-only.

    The store is locked during the write, so the temporary file can have a fixed name. If the process is killed, the
    next writer replaces this temporary file.
    """
    if store.path is None or store.origin is not None:
        return
    measured = row.to_dict()
    kept = {"store": store.digest, "sha256": sha256_of(measured), "row": measured}
    with suppress(CollapseError), locked(store.path):
        write_atomic(store.path / RESULTS, canonical(kept))
