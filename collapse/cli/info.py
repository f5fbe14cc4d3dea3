"""collapse info: show what a store holds and how it was made."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from collapse.cli.terminal import say_json
from collapse.errors import counted

if TYPE_CHECKING:
    from collapse.stores.shards import Part
    from collapse.stores.store import Store

Rows = list[tuple[str, Any]]


@click.command()
@click.argument("path", metavar="STORE")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
def command(path: str, as_json: bool) -> None:
    """Show what a store holds and how it was made.

    STORE is a folder, the digest or the model of a cached store, or user/name or user/name/folder on the Hub, of which
    only the manifest is downloaded.
    """
    from collapse.hub.opening import load
    from collapse.stores.manifest import is_part
    from collapse.stores.shards import Part

    if is_part(path):
        part = Part.load(path)
        if as_json:
            say_json({**part.about, "slices": part.done})
        else:
            _show_part(part)
        return
    store = load(path)
    if store.origin is None:
        store.check()
    if as_json:
        say_json(store.manifest)
    else:
        _show_store(store)


def _show_store(store: "Store") -> None:
    from collapse.measurement.last_results import kept_row
    from collapse.stores.origin import pulled_from

    identity, corpus, last = store.identity, store.manifest["corpus"], kept_row(store)
    holds: Rows = [
        ("store", str(store)),
        ("model", store.model + (f" @ {store.revision}" if store.revision else "")),
        ("corpus", _corpus(store.corpus, identity.get("corpus"))),
        ("validation", _corpus(corpus.get("validation"), identity.get("validation"))),
        ("state", store.state),
        ("digest", store.digest),
    ]
    if store.origin is None and pulled_from(store) is not None:
        holds.append(("pulled from", pulled_from(store)))
    if last is not None:
        holds.append(("last measured", f"{counted(len(last.measurements), 'measurement')}, min_count {last.min_count}"))
    for phase, covered in store.manifest["coverage"].items():
        if "chunks" in (covered or {}):
            holds.append((f"{phase} chunks", f"{covered['chunks']:,}"))
    _print(("holds", ""), [*holds, *_identity(identity)])
    _print(("made", ""), _made(store.manifest["provenance"]))
    files = [
        (
            name,
            f"{entry['size'] / 1e6:,.2f} MB",
            ", ".join(f"{n} {t['dtype']} {t['shape']}" for n, t in entry["tensors"].items()),
        )
        for name, entry in store.manifest["files"].items()
    ]
    _print(("file", "size", "tensors"), files)


def _show_part(part: "Part") -> None:
    holds: Rows = [
        ("part", str(part)),
        ("model", part.model),
        ("corpus", _corpus(part.corpus, part.identity.get("corpus"))),
        ("state", f"part: {part.covered()}"),
        ("chunks a slice", part.about["coverage"]["slice_chunks"]),
    ]
    _print(("holds", ""), [*holds, *_identity(part.identity)])
    for shard in part.shards:
        _print(("made", ""), _made(shard.about["provenance"]))


def _print(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    from collapse.cli.rendering import print_table
    from collapse.measurement.table import Table

    print_table(Table("", columns, rows))


def _identity(identity: Mapping[str, Any]) -> Rows:
    return [(_words(key), _flat(value)) for key, value in identity.items() if key not in ("corpus", "validation")]


def _corpus(name: str | None, identity: Mapping[str, Any] | None) -> str | None:
    """Describe a text by its name and its identity: a commit, or the hash of its files."""
    told = _flat({key: value for key, value in (identity or {}).items() if key != "name"})
    return f"{name} ({told})" if name and told else name


def _made(provenance: Mapping[str, Any], of: str = "") -> Rows:
    """List date, duration, device, versions and command of each phase and part."""
    rows: Rows = []
    for key, value in provenance.items():
        if key == "validation" and isinstance(value, dict):
            rows += _made(value, f"{of}validation, ")
        elif key == "parts" and isinstance(value, list):
            for index, part in enumerate(value):
                rows += _made(part, f"{of}part {index + 1}, ")
        else:
            rows.append((of + _words(key), _flat(value)))
    return rows


def _words(key: str) -> str:
    return key.replace("_", " ")


def _flat(value: object) -> object:
    if isinstance(value, dict):
        return ", ".join(f"{key}={_flat(each)}" for key, each in value.items()) or None
    if isinstance(value, list):
        return ", ".join(str(_flat(each)) for each in value)
    return value
