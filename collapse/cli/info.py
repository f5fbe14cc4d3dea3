"""collapse info: show what a store holds and how it was made."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from collapse.cli.terminal import say_json
from collapse.errors import counted

if TYPE_CHECKING:
    from collapse.stores.shards import Part


@click.command()
@click.argument("path", metavar="STORE")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
def command(path: str, as_json: bool) -> None:
    """Show what a store holds and how it was made.

    STORE is a folder, the digest or the model of a cached store, or user/name or user/name/folder on the Hub, of which
    only the manifest is downloaded.
    """
    from collapse.cli.rendering import print_table
    from collapse.hub.opening import load
    from collapse.measurement.last_results import kept_row
    from collapse.measurement.table import Table
    from collapse.stores.manifest import is_part
    from collapse.stores.shards import Part

    if is_part(path):
        _show_part(Part.load(path), as_json=as_json)
        return
    store = load(path)
    if store.origin is None:
        store.check()
    if as_json:
        say_json(store.manifest)
        return
    identity, coverage, corpus = store.identity, store.manifest["coverage"], store.manifest["corpus"]
    rows: list[list[object]] = [
        ["store", str(store)],
        ["model", store.model + (f" @ {store.revision}" if store.revision else "")],
        ["corpus", _corpus(store.corpus, identity.get("corpus"))],
        ["validation", _corpus(corpus.get("validation"), identity.get("validation"))],
        ["state", store.state],
        ["digest", store.digest],
    ]
    if store.origin is None and store.pulled_from is not None:
        rows.append(["pulled from", store.pulled_from])
    last = kept_row(store)
    if last is not None:
        rows.append(["last measured", f"{counted(len(last.measurements), 'measurement')}, min_count {last.min_count}"])
    phases = [phase for phase in ("train", "validation") if "chunks" in (coverage[phase] or {})]
    rows += [[f"{phase} chunks", f"{coverage[phase]['chunks']:,}"] for phase in phases]
    rows += [[_words(key), _flat(value)] for key, value in identity.items() if key not in ("corpus", "validation")]
    print_table(Table("", ["holds", ""], rows))
    print_table(Table("", ["made", ""], _made(store.manifest["provenance"])))
    files = [
        [
            name,
            f"{entry['size'] / 1e6:,.2f} MB",
            ", ".join(f"{n} {t['dtype']} {t['shape']}" for n, t in entry["tensors"].items()),
        ]
        for name, entry in store.manifest["files"].items()
    ]
    print_table(Table("", ["file", "size", "tensors"], files))


def _show_part(part: "Part", *, as_json: bool) -> None:
    from collapse.cli.rendering import print_table
    from collapse.measurement.table import Table
    from collapse.stores.shards import runs_of

    if as_json:
        say_json({**part.about, "slices": runs_of(part.shards)})
        return
    rows: list[list[object]] = [
        ["part", str(part)],
        ["model", part.model],
        ["corpus", _corpus(part.corpus, part.identity.get("corpus"))],
        ["state", f"part: {part.covered()}"],
        ["chunks a slice", part.about["coverage"]["slice_chunks"]],
    ]
    rows += [[_words(key), _flat(value)] for key, value in part.identity.items() if key not in ("corpus", "validation")]
    print_table(Table("", ["holds", ""], rows))
    for shard in part.shards:
        print_table(Table("", ["made", ""], _made(shard.about["provenance"])))


def _corpus(name: str | None, identity: Mapping[str, Any] | None) -> str | None:
    """Describe a text by its name and its identity: a commit, or the hash of its files."""
    told = _flat({key: value for key, value in (identity or {}).items() if key != "name"})
    return f"{name} ({told})" if name and told else name


_WORDS = {
    # of a published manifest: without folders and --store, and with options that were taken over
    "command": "options, as a command",
}


def _made(provenance: Mapping[str, Any], of: str = "") -> list[list[object]]:
    """List date, duration, device, versions and command of each phase and part."""
    rows: list[list[object]] = []
    train = "train, " if "seconds" in provenance and not of.endswith("validation, ") else ""
    for key, value in provenance.items():
        if key == "validation" and isinstance(value, dict):
            rows += _made(value, f"{of}validation, ")
        elif key == "parts" and isinstance(value, list):
            for index, part in enumerate(value):
                rows += _made(part, f"{of}part {index + 1}, ")
        else:
            rows.append([f"{of}{train}{_words(key)}", _flat(value)])
    return rows


def _words(key: str) -> str:
    return _WORDS.get(key, key.replace("_", " "))


def _flat(value: object) -> object:
    if isinstance(value, dict):
        return ", ".join(f"{key}={_flat(each)}" for key, each in value.items()) or None
    if isinstance(value, list):
        return ", ".join(str(_flat(each)) for each in value)
    return value
