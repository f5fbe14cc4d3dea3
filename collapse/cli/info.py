"""collapse info: show what a store holds and how it was made."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from collapse.cli.terminal import say_json

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
    from collapse.stores.shards import Part, runs_of

    if is_part(path):
        part = Part.load(path)
        manifest: Mapping[str, Any] = {**part.about, "slices": runs_of(part.shards)}
        made = [shard.about["provenance"] for shard in part.shards]
        state: Rows = [("part", str(part)), ("model", part.model), ("state", f"part: {part.covered()}")]
        state.append(("chunks per slice", part.about["coverage"]["slice_chunks"]))
    else:
        store = load(path)
        if store.origin is None:
            store.check()
        manifest, made = store.manifest, [store.manifest["provenance"]]
        model = store.model + (f" @ {store.revision}" if store.revision else "")
        state = [("store", str(store)), ("model", model), ("state", store.state), ("digest", store.digest)]
        if store.origin is None and store.pulled_from is not None:
            state.append(("pulled from", store.pulled_from))
    if as_json:
        say_json(manifest)
        return
    _print(("holds", ""), [*state, *_texts(manifest), *_rows(manifest["identity"], ("corpus", "validation"))])
    for each in made:
        _print(("made", ""), _made(each))
    files = manifest.get("files", {})
    _print(("file", "size", "tensors"), [(name, _size(each), _tensors(each)) for name, each in files.items()])


def _print(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    from collapse.cli.rendering import print_table
    from collapse.measurement.table import Table

    if rows:
        print_table(Table("", columns, rows))


def _texts(manifest: Mapping[str, Any]) -> Rows:
    """Describe each text by its name, its identity (a commit, or the hash of its files), and how much was read."""
    rows: Rows = []
    for kind, key, phase in (("corpus", "name", "train"), ("validation", "validation", "validation")):
        identity = {name: value for name, value in (manifest["identity"].get(kind) or {}).items() if name != "name"}
        name, told = manifest["corpus"].get(key), _flat(identity)
        rows.append((kind, f"{name} ({told})" if name and told else name))
        covered = manifest["coverage"].get(phase)
        if isinstance(covered, dict) and "chunks" in covered:
            rows.append((f"{phase} chunks", f"{covered['chunks']:,}"))
    return rows


def _made(provenance: Mapping[str, Any], of: str = "") -> Rows:
    """List date, duration, device, versions and command of each phase and part."""
    parts = {f"part {at}": each for at, each in enumerate(provenance.get("parts") or [], 1)}
    rows = _rows(provenance, ("validation", "parts"), of)
    for name, each in {"validation": provenance.get("validation"), **parts}.items():
        rows += _made(each, f"{of}{name}, ") if each else []
    return rows


def _rows(values: Mapping[str, Any], apart: Sequence[str], of: str = "") -> Rows:
    return [(of + key.replace("_", " "), _flat(value)) for key, value in values.items() if key not in apart]


def _size(file: Mapping[str, Any]) -> str:
    return f"{file['size'] / 1e6:,.2f} MB"


def _tensors(file: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {each['dtype']} {each['shape']}" for name, each in file["tensors"].items())


def _flat(value: object) -> object:
    if isinstance(value, dict):
        return ", ".join(f"{key}={_flat(each)}" for key, each in value.items()) or None
    if isinstance(value, list):
        return ", ".join(str(_flat(each)) for each in value)
    return value
