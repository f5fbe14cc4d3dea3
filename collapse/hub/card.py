"""Write the card (README.md) of a store on the Hub from its manifest and measurements."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from collapse.core.escaping import markdown, visible
from collapse.hub.client import is_repo_id
from collapse.stores.store_columns import kept_results

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

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

_CARD = """---
{metadata}
---

# Embedding statistics of {model}

The statistics that [collapse](https://pypi.org/project/linguistic-collapse/) needs to measure neural collapse: counts,
means and variances of the top-layer embeddings of each next token, the classifier's rows, and decisions on the
validation text. They contain no text, and no other weights.

| | |
| --- | --- |
{about}

## Load it

```console
$ collapse measure {name}
```

```python
import collapse

store = collapse.load("{name}")
row = collapse.measure(store)
```
{measured}
The licence of the text applies to data derived from it.

{cite}"""


def card(store: "Store", name: str) -> str:
    """Return the card of a store, with metadata.

    The card shows the model, text and measurements of the store, how to load it, and how it was collected.

    Args:
        store: The store.
        name: The repository to which the store is pushed, followed by the store's folder there.
    """
    row = kept_results(store)
    return _CARD.format(
        metadata=_metadata(store, row),
        model=markdown(store.model),
        about="\n".join(f"| {name} | {markdown(value)} |" for name, value in _about(store).items() if value),
        name=name,
        measured=_measured(row) if row else "",
        cite=CITE,
    )


def eval_results(measurements: Mapping[str, float | None], corpus: str) -> "list[EvalResult] | None":
    """Convert measurements, except ``n_params``, to the Hub's evaluation results; return None if none has a value.

    ``corpus`` is the name of the text.
    """
    from huggingface_hub import EvalResult

    task, on = "text-generation", visible(corpus)
    return [
        # no split, because a metric can be of the training text, of the validation text, or of both
        EvalResult(task, on, on, visible(name), value, metric_name=visible(name))
        for name, value in sorted(measurements.items())
        if value is not None and name != "n_params"
    ] or None


def _metadata(store: "Store", row: Mapping[str, Any] | None) -> str:
    from huggingface_hub import ModelCardData

    named = store.found_at[0]
    on_hub = bool((store.identity.get("corpus") or {}).get("revision"))
    corpus = store.corpus.partition(":")[0] if on_hub else store.corpus  # without the configuration
    return ModelCardData(
        library_name="linguistic-collapse",
        tags=[*TAGS, visible(corpus.split("/")[-1])],
        datasets=[corpus] if on_hub and is_repo_id(corpus) else None,
        base_model=named if store.revision and is_repo_id(named) else None,
        model_name=visible(store.model),
        # the metadata cannot record a minimum count
        eval_results=eval_results(row["measurements"], store.corpus) if row and row["min_count"] == 1 else None,
    ).to_yaml()


def _about(store: "Store") -> dict[str, Any]:
    manifest, identity = store.manifest, store.identity
    coverage, provenance = manifest["coverage"], manifest["provenance"]
    return {
        "model": store.model + (f" @ {store.revision}" if store.revision else ""),
        "corpus": store.corpus,
        "validation text": manifest["corpus"].get("validation"),
        "tokens per chunk": identity.get("chunk_length"),
        "chunks of each text, at most": identity.get("max_chunks"),
        "chunks of the validation text, at most": identity.get("max_validation_chunks"),
        "training samples": f"{int(store.tensors('train')['counts'].sum()):,}",
        **{f"{phase} chunks": (coverage.get(phase) or {}).get("chunks") for phase in ("train", "validation")},
        "attention": identity.get("attention"),
        "dtype": identity.get("dtype"),
        "digest": store.digest,
        "collected by": provenance.get("command") or "collapse.collect(…)",
        "versions": ", ".join(f"{k} {v}" for k, v in (provenance.get("versions") or {}).items()),
    }


def _measured(row: Mapping[str, Any]) -> str:
    least = row["min_count"]
    kept = f"the {row['classes']:,} classes of at least {least:,} samples" if least > 1 else "all classes"
    lines = [
        f"\n## Measured\n\nOver {kept} (`--min-count {least}`): C = {row['classes']:,}, d = {row['dim']:,}, "
        f"N = {row['samples']:,}.\n\n| measurement | value |\n| --- | --- |",
        *(
            f"| {markdown(name)} | {'–' if value is None else format(value, '.6g')} |"
            for name, value in sorted(row["measurements"].items())
        ),
        *(f"\n{markdown(note['text'])} ({markdown(note['measurement'])})" for note in row["notes"]),
    ]
    return "\n".join(lines) + "\n"
