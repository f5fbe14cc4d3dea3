"""Say how two collections differ in the words of their options, and which options make the second one as the first."""

from collections.abc import Mapping, Set
from typing import Any

from collapse.inputs.collection_spec import CollectionSpec, flag_of, options_of
from collapse.inputs.option import Role
from collapse.stores.manifest import differences

_GIVEN, _NOT = "given", "not given"
_VALUED = ("chunk_length", "max_chunks", "max_validation_chunks", "shards", "dtype")
"""Options with a value, which an identity records under their names; null or absent where they are not given."""


def differing(there: Mapping[str, Any], now: Mapping[str, Any], *, apart: Set[str] = frozenset()) -> list[str]:
    """List the fields in which two identities differ, as :func:`collapse.stores.manifest.differences` does.

    An option without a value, which an identity records only where it is given, is named as on the command line.

    >>> differing({"dtype": "float32", "exact_loss": True}, {"dtype": "float32"})
    ['--exact-loss: given and not given']
    """
    return differences(in_options(there), in_options(now), apart=apart)


def in_options(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return an identity with ``--exact-loss: given`` in place of ``exact_loss: true``, or ``not given``."""
    flags = {name: _GIVEN if name in identity else _NOT for name in _flags()}
    return {name: value for name, value in identity.items() if name not in flags} | {
        flag_of(name): said for name, said in flags.items()
    }


def another_store(there: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Say what to do about a store of other options: give them as there, or choose another store.

    >>> another_store({"exact_loss": True, "max_chunks": 9}, {"fast_attention": False, "max_chunks": None})
    'add --exact-loss --max-chunks 9 and leave out --no-fast-attention, or choose another --store'
    >>> another_store({}, {})
    'choose another --store'
    """
    add = [flag_of(name) for name in _flags() if name in there and name not in now]
    leave = [flag_of(name) for name in _flags() if name in now and name not in there]
    for name in _VALUED:
        if there.get(name) is None and now.get(name) is not None:
            leave.append(flag_of(name))
        elif there.get(name) != now.get(name):
            add.append(f"{flag_of(name)} {there[name]}")
    ways = [f"{verb} {' '.join(flags)}" for verb, flags in (("add", add), ("leave out", leave)) if flags]
    return " and ".join(ways) + ", or choose another --store" if ways else "choose another --store"


def _flags() -> list[str]:
    """Return the names of the options without a value that an identity records only where they are given."""
    plain = CollectionSpec()
    return [
        name
        for name, about in options_of().items()
        if about.role is Role.CHANGED and isinstance(getattr(plain, name), bool)
    ]
