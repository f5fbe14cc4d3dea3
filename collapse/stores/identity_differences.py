"""Compare two identities, and list the fields in which they differ."""

import json
from collections.abc import Mapping, Set
from typing import Any

from collapse.stores.files import canonical


def differences(
    mine: Mapping[str, Any],
    theirs: Mapping[str, Any],
    *,
    ignoring: Set[str] = frozenset(),
    prefix: str = "",
    sides: tuple[str, str] = ("stored", "requested"),
) -> list[str]:
    """List the fields in which two identities differ, each with both values.

    For rows of tables, use :func:`collapse.measurement.comparable.differing`.

    Args:
        mine: An identity.
        theirs: Another identity.
        ignoring: Top-level fields that are not compared.
        prefix: Prefix of the names of fields.
        sides: Names of the two identities in the result.

    >>> differences({"dtype": "float32", "corpus": {"split": "a"}}, {"dtype": "float32", "corpus": {"split": "b"}})
    ['corpus.split: a (stored), b (requested)']
    """
    found = []
    for key in sorted({*mine, *theirs} - ignoring):
        a, b = mine.get(key), theirs.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found += differences(a, b, prefix=f"{prefix}{key}.", sides=sides)
        elif canonical(a) != canonical(b):
            found.append(f"{prefix}{key}: {_short(a)} ({sides[0]}), {_short(b)} ({sides[1]})")
    return found


def _short(value: Any) -> str:
    text = "none" if value is None else value if isinstance(value, str) else json.dumps(value)
    return f"{text[:12]}…" if len(text) > 60 and " " not in text else text
