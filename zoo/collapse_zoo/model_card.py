"""The card of a zoo model: what it is, how it was trained, how to load it, and its measurements."""

from typing import Any

from collapse.core.escaping import markdown, visible
from collapse.hub.card import CITE, TAGS, eval_results
from collapse_zoo.runs import Checkpoint, Run

_LICENCES = {"roneneldan/TinyStories": "cdla-sharing-1.0"}


def model_card(run: Run, repo: str, checkpoint: Checkpoint) -> str:
    """Return the Markdown text and metadata, with the measurements as a table and as evaluation results."""
    record = run.record
    corpus, name = record["corpus"], f"{run.name}@{checkpoint.k}"
    measured = next((row.measurements for row in run.results() if row.model == name), {})
    numbers = {key: value for key, value in sorted(measured.items()) if value is not None and key != "n_params"}
    recipe = {key: value for key, value in record["recipe"].items() if value not in (None, {})}
    versions = markdown(", ".join(f"{key} {value}" for key, value in record["versions"].items()))
    return f"""---
{_metadata(corpus, name, numbers)}
---

# {markdown(run.name)}

A GPT-Neo of {recipe["depth"]} layers and width {recipe["width"]} ({record["n_params"]:,} parameters), trained on the
text {markdown(corpus)} as in *Linguistic Collapse: Neural Collapse in (Large) Language Models* (Wu & Papyan,
NeurIPS 2024). This revision is the checkpoint of epoch {checkpoint.k + 1}, step {checkpoint.step:,}; the tags `0`, `1`,
… are the checkpoints of each epoch, `main` the last.

## Load it

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("{repo}", revision="{checkpoint.k}")
tokenizer = AutoTokenizer.from_pretrained("{repo}")
```

## Recipe

{_table("value", recipe)}

AdamW; the learning rate decays linearly to zero. Trained with {versions}; `training.json` on main has every argument,
`trainer_state.json` the losses. To train it again, add options for values that are not the defaults:

```console
$ collapse zoo train {visible(run.name)}
```

## Measured

Neural collapse on the training text, and loss and agreement on the validation text, measured with
[collapse](https://pypi.org/project/linguistic-collapse/).

{_table("measurement", numbers) if numbers else "Nothing was measured yet."}

```console
$ collapse measure {repo}@{checkpoint.k}
```

{CITE}"""


def _metadata(corpus: str, name: str, numbers: dict[str, Any]) -> str:
    from huggingface_hub import ModelCardData

    known = corpus in _LICENCES
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag="text-generation",
        language="en" if known else None,
        license=_LICENCES.get(corpus),
        datasets=[corpus] if known else None,
        tags=[*TAGS, "collapse-zoo"],
        model_name=visible(name),
        eval_results=eval_results(numbers, corpus),
    )
    return data.to_yaml()


def _table(heading: str, values: dict[str, Any]) -> str:
    lines = [f"| {heading} | is |", "| --- | --- |"]
    for key, value in values.items():
        shown = f"{value:.6g}" if isinstance(value, float) else markdown(value)
        lines.append(f"| {markdown(key)} | {shown} |")
    return "\n".join(lines)
