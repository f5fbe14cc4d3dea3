"""collapse info: what a store holds and where it came from."""

import click

from collapse.cli._terminal import say_json


@click.command()
@click.argument("path", metavar="STORE")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
def command(path: str, as_json: bool) -> None:
    """Show what a store holds and how it was made."""
    from collapse.cli._render import print_records
    from collapse.store import load

    store = load(path).check()
    if as_json:
        say_json(store.manifest)
        return
    identity, coverage = store.identity, store.manifest["coverage"]
    rows: list[list[object]] = [
        ["model", store.model + (f" @ {store.revision[:12]}" if store.revision else "")],
        ["corpus", store.corpus],
        ["validation", store.manifest["corpus"].get("validation")],
        ["state", store.state if store.state != "part" else f"part: {store.covered()}"],
        ["digest", store.digest],
    ]
    last = store.results()
    if last is not None:
        rows.append(["last measured", f"{len(last.measurements)} measurements, min_count {last.min_count}"])
    phases = [phase for phase in ("train", "validation") if "chunks" in (coverage[phase] or {})]
    rows += [[f"{phase} chunks", coverage[phase]["chunks"]] for phase in phases]
    rows += [[key, _flat(value)] for key, value in identity.items() if key not in ("corpus", "validation")]
    rows += [[key, _flat(value)] for key, value in store.manifest["provenance"].items()]
    print_records(["", ""], rows)
    files = [
        [
            name,
            f"{entry['size'] / 1e6:,.2f} MB",
            ", ".join(f"{n} {t['dtype']} {t['shape']}" for n, t in entry["tensors"].items()),
        ]
        for name, entry in store.manifest["files"].items()
    ]
    print_records(["file", "size", "tensors"], files)


def _flat(value: object) -> object:
    if isinstance(value, dict):
        return ", ".join(f"{key}={_flat(each)}" for key, each in value.items()) or None
    if isinstance(value, list):
        return ", ".join(str(_flat(each)) for each in value)
    return value
