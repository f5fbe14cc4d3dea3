"""The card of a store on the Hub: README.md, written from the manifest and the measurements."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from collapse.core.escaping import markdown, visible
from collapse.errors import counted
from collapse.hub.requests import is_repo_id
from collapse.measurement.last_results import kept_row
from collapse.stores.naming import recorded_model

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

    from collapse.measurement.results import Row
    from collapse.stores.store import Store

TAGS = ("collapse", "neural-collapse")
CITE = """## Cite

```bibtex
@inproceedings{wu2024linguistic,
  title={Linguistic Collapse: Neural Collapse in (Large) Language Models},
  author={Wu, Robert and Papyan, Vardan},
  booktitle={Advances in Neural Information Processing Systems},
  year={2024}
}
```
"""
"""The end of a card: what to cite."""


def card(store: "Store", repo: str, folder: str, *, others: Sequence[str] = (), licence: str | None = None) -> str:
    """Return the Markdown text and metadata: what was measured, on what, how to load it, how it was made.

    Args:
        store: The store.
        repo: The repository that the store is pushed to.
        folder: The store's folder in the repository.
        others: Folders of the other stores in the repository.
        licence: Licence of the training text, from its card on the Hub.
    """
    from huggingface_hub import ModelCardData

    manifest, identity, named = store.manifest, store.identity, recorded_model(store.manifest)
    row = kept_row(store)
    on_hub = bool((identity.get("corpus") or {}).get("revision"))
    data = ModelCardData(
        library_name="linguistic-collapse",
        tags=[*TAGS, visible(store.corpus.split("/")[-1])],
        datasets=[store.corpus] if on_hub and is_repo_id(store.corpus) else None,
        base_model=named if store.revision and is_repo_id(named) else None,
        license=licence,
        model_name=visible(store.model),
        # the metadata cannot record a minimum count
        eval_results=eval_results(row.measurements, store.corpus) if row and row.min_count == 1 else None,
    )
    train, validation = (manifest["coverage"].get(phase) or {} for phase in ("train", "validation"))
    limit = identity.get("max_validation_chunks")
    rows = [
        ("model", store.model + (f" @ {store.revision}" if store.revision else "")),
        ("corpus", store.corpus),
        ("validation text", manifest["corpus"].get("validation")),
        ("tokens a chunk", identity.get("chunk_length")),
        (f"chunks of {'the training' if limit else 'each'} text, at most", identity.get("max_chunks")),
        ("chunks of the validation text, at most", limit),
        ("text's licence", licence),
        ("training samples", f"{int(store.tensors('train')['counts'].sum()):,}"),
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
        f"{_measured(row)}{_listed(repo, others)}\nThe text's own licence applies to what is derived from it.\n"
        f"\n{CITE}"
    )


def eval_results(measurements: Mapping[str, float | None], corpus: str) -> "list[EvalResult] | None":
    """Convert measurements to the Hub's evaluation results; None if there are none."""
    from huggingface_hub import EvalResult

    task, on = "text-generation", visible(corpus)
    return [
        # no split: metrics are of the training text, of the validation text, or of both
        EvalResult(task, on, on, visible(name), value, metric_name=visible(name))
        for name, value in sorted(measurements.items())
        if value is not None and name != "n_params"
    ] or None


def _listed(repo: str, others: Sequence[str]) -> str:
    lines = [f"- `collapse measure {repo}/{each}`" for each in others]
    return "\n## Also here\n\n" + "\n".join(lines) + "\n" if lines else ""


def _measured(row: "Row | None") -> str:
    if row is None:
        return ""
    lines = [
        f"| {markdown(name)} | {'–' if value is None else format(value, '.6g')} |"
        for name, value in sorted(row.measurements.items())
    ]
    kept = f"the {row.classes:,} classes of at least {row.min_count:,} samples" if row.min_count > 1 else "all classes"
    of = f"Over {kept} (`--min-count {row.min_count}`): C = {row.classes:,}, d = {row.dim:,}, N = {row.samples:,}.\n\n"
    return f"\n## Measured\n\n{of}| measurement | value |\n| --- | --- |\n" + "\n".join(lines) + "\n" + _remarks(row)


def _remarks(row: "Row") -> str:
    """Return the notes of a row, grouping those of equal text, and the number of excluded pairs."""
    grouped: dict[str, list[str]] = {}
    for note in row.notes:
        grouped.setdefault(note.text, []).append(note.measurement)
    for name, pairs in row.excluded.items():
        grouped.setdefault(f"{counted(pairs, 'pair')} of classes or classes left out", []).append(name)
    about = {text: "" if "*" in names else f"{markdown(', '.join(names))}: " for text, names in grouped.items()}
    lines = [f"- {names}{markdown(text)}" for text, names in about.items()]  # without names: the whole row
    return "\nNotes:\n\n" + "\n".join(lines) + "\n" if lines else ""
