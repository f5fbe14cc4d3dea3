"""collapse info: show what a store holds and how it was made."""

from collections.abc import Mapping
from typing import Any

import click

from collapse.cli.terminal import say_json


@click.command()
@click.argument("path", metavar="STORE")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
def command(path: str, as_json: bool) -> None:
    """Show what a store holds and how it was made.

    STORE is a folder, the digest or the model of a cached store, or user/name or user/name/folder on the Hub. From the
    Hub, only the manifest is downloaded.
    """
    from collapse.cli.rendering import print_table
    from collapse.hub.opening import load
    from collapse.measurement.table import Table
    from collapse.showing.report_tables import manifest_table
    from collapse.stores.manifest import is_part
    from collapse.stores.shards import Part, ranges_of

    if is_part(path):
        part = Part.load(path)
        manifest: Mapping[str, Any] = {**part.about, "slices": ranges_of(part.shards)}
        state: dict[str, Any] = {"part": path, "model": part.model, "state": f"part: {part.covered()}"}
        state["chunks per slice"] = part.about["coverage"].get("slice_chunks")
        made = {"provenance": {"parts": [shard.header["provenance"] for shard in part.shards]}}
    else:
        store = load(path)
        if store.origin is None:
            store.check()
        manifest, made = store.manifest, {}
        model = store.model + (f" @ {store.revision}" if store.revision else "")
        state = {"store": str(store), "model": model, "state": store.state, "digest": store.digest}
        state["layers"] = store.layers
        state["pulled from"] = store.pulled_from if store.origin is None else None
        state |= {f"{phase} chunks": (of or {}).get("chunks") for phase, of in manifest["coverage"].items()}
    if as_json:
        say_json(manifest)
        return
    state |= {"text": manifest["corpus"].get("name"), "validation text": manifest["corpus"].get("validation")}
    print_table(manifest_table("", state, {**manifest, **made}))
    sizes = [
        (name, f"{each['size'] / 1e6:,.2f} MB", _tensors(each)) for name, each in manifest.get("files", {}).items()
    ]
    if sizes:
        print_table(Table("", ["file", "size", "tensors"], sizes))


def _tensors(file: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {each['dtype']} {each['shape']}" for name, each in file["tensors"].items())
