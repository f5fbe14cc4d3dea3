"""The Hub address from which a store was pulled, recorded next to its tensors."""

import re
from contextlib import suppress
from pathlib import Path

from collapse.core.reading import read_json
from collapse.errors import CollapseError
from collapse.stores.files import canonical
from collapse.stores.manifest import ORIGIN
from collapse.stores.store import Store
from collapse.stores.writing import write_atomic

_ORIGIN = re.compile(r"[\w./-]{1,500}@[0-9a-f]{40}")


def pulled_from(store: Store) -> str | None:
    """Return the Hub address from which a store was pulled, or None. A damaged or outdated record is ignored."""
    if store.path is None:
        return None
    try:
        kept = read_json(store.path / ORIGIN)
        origin = kept["origin"]
        return origin if kept["store"] == store.digest and _ORIGIN.fullmatch(origin) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep_origin(folder: Path, digest: str, origin: str) -> None:
    """Record in a store's folder the Hub address from which the store is pulled; a failed write is ignored."""
    with suppress(CollapseError):
        write_atomic(folder / ORIGIN, canonical({"store": digest, "origin": origin}))
