"""The card of a store on the Hub: README.md, written from the manifest and what was measured."""

from typing import TYPE_CHECKING

from collapse.escaping import markdown, visible
from collapse.hub import is_repo_id

if TYPE_CHECKING:
    from collapse.store import Store

TAGS = ("collapse", "neural-collapse")


def card(store: "Store", repo: str, folder: str) -> str:
    """Markdown with its metadata: what was measured, on what, how to load it, what made it."""
    from huggingface_hub import ModelCardData

    manifest, identity = store.manifest, store.identity
    on_hub = bool((identity.get("corpus") or {}).get("revision"))
    data = ModelCardData(
        library_name="collapse",
        tags=[*TAGS, visible(store.corpus.split("/")[-1])],
        datasets=[store.corpus] if on_hub and is_repo_id(store.corpus) else None,
        base_model=store.model if store.revision and is_repo_id(store.model) else None,
    )
    train, validation = (manifest["coverage"].get(phase) or {} for phase in ("train", "validation"))
    rows = [
        ("model", store.model + (f" @ {store.revision}" if store.revision else "")),
        ("corpus", store.corpus),
        ("tokens a chunk", identity.get("chunk_length")),
        ("training chunks", train.get("chunks")),
        ("validation chunks", validation.get("chunks")),
        ("attention", identity.get("attention")),
        ("dtype", identity.get("dtype")),
        ("digest", store.digest),
        ("bytes", f"{store.size:,}"),
        ("collected by", manifest["provenance"].get("command") or "collapse.collect(…)"),
        ("versions", ", ".join(f"{k} {v}" for k, v in (manifest["provenance"].get("versions") or {}).items())),
    ]
    lines = [f"| {name} | {markdown(value)} |" for name, value in rows if value is not None]
    return (
        f"---\n{data.to_yaml()}\n---\n\n# Embedding statistics of {markdown(store.model)}\n\n"
        f"What [collapse](https://pypi.org/project/linguistic-collapse/) needs to measure neural collapse: counts, "
        f"means and variances of the top-layer embeddings of each next token, the classifier's rows, and decisions on "
        f"the validation text. No text and no weights beyond those rows.\n\n"
        f"| | |\n| --- | --- |\n" + "\n".join(lines) + "\n\n"
        f"## Load it\n\n```console\n$ collapse measure {repo}/{folder}\n```\n\n```python\nimport collapse\n\n"
        f'store = collapse.load("{repo}/{folder}")\nrow = collapse.measure(store)\n```\n'
        f"{_measured(store)}\nThe text's own licence applies to what is derived from it.\n"
    )


def _measured(store: "Store") -> str:
    row = store.results()
    if row is None:
        return ""
    lines = [
        f"| {markdown(name)} | {'–' if value is None else format(value, '.6g')} |"
        for name, value in sorted(row.measurements.items())
    ]
    return "\n## Measured\n\n| measurement | value |\n| --- | --- |\n" + "\n".join(lines) + "\n"
