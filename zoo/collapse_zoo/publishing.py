"""Publish a run on the Hub: the model and store of epoch k + 1 become a revision with the tag k; main is the last."""

import json
from pathlib import Path
from typing import Any

from collapse.core.escaping import markdown, visible
from collapse.errors import UsageError
from collapse.hub.card import CITE, TAGS, eval_results
from collapse.hub.committing import commit_files, create_repo, move_tag, read_branch, user_name
from collapse.hub.remote import reach
from collapse.hub.sharing import files_of, folder_of
from collapse.stores.files import sha256_file
from collapse.stores.manifest import is_store
from collapse.stores.provenance import without_folders
from collapse.stores.store import Store
from collapse_zoo.runs import RECORD, RESUMING, STATE, Checkpoint, Run

_LICENCES = {"roneneldan/TinyStories": "cdla-sharing-1.0"}

Revision = dict[str, Path | bytes]
"""The content of a revision: files or bytes, by their paths in the repository."""


def revisions(run: Run, repo: str) -> dict[int, Revision]:
    """Return the revisions that publishing a run would make, without sending anything; keys are the tags k, ascending.

    Raises:
        UsageError: The run is not finished, or a checkpoint was deleted.
    """
    _check_finished(run)
    made = {each.k: _revision(run, repo, run.checkpoint(each.k)) for each in run.epochs}
    last = made[max(made)]
    last[RECORD] = _record(run)
    last |= {name: run.path / name for name in (STATE, "results.json", "results.csv") if (run.path / name).is_file()}
    return made


def publish(run: Run, repo: str | None = None, *, private: bool = False) -> tuple[str, list[int]]:
    """Publish a run; after an interruption, call it again to resume without sending files twice.

    Args:
        run: A finished run.
        repo: ``user/name``; None for the logged-in user and the run's name.
        private: Create the repository as private.

    Returns:
        The repository, and the k of each revision that this call sent.

    Raises:
        UsageError: The run is not finished, or the repository holds another run.
        CollapseError: The Hub cannot be reached, or rejects the request.
    """
    _check_finished(run)
    repo = repo or f"{user_name()}/{run.name}"
    planned = revisions(run, repo)
    create_repo(repo, private=private)
    sent = [k for k, revision in planned.items() if _send(run, k, revision, repo, last=k == max(planned))]
    run.update(published=repo)
    return repo, sent


def _check_finished(run: Run) -> None:
    if not run.finished:
        raise UsageError(
            f"{run.path} holds no finished run: give the folder of a finished run, or train it first (collapse zoo "
            "status shows the progress)"
        )


def _send(run: Run, k: int, revision: Revision, repo: str, *, last: bool) -> bool:
    """Send the revision of checkpoint @k and set its tag; return whether files were sent.

    If the tag already exists, send changed files only if this is the run's ``last`` revision.

    Raises:
        UsageError: The tag already exists with other weights.
    """
    try:
        there = reach(f"{repo}@{k}")
    except UsageError:  # no such tag yet
        there = None
    if there and there.files.get("model.safetensors") != sha256_file(run.checkpoint(k).path / "model.safetensors"):
        raise UsageError(f"{repo}@{k} holds the weights of another run: publish to another repository")
    if there and not last:
        return False
    # replaces the store of an earlier epoch
    made = commit_files(read_branch(repo), revision, f"{run.name}@{k}", replaced="collapse/")
    if made or not there:
        move_tag(repo, str(k))
    return made is not None


def _revision(run: Run, repo: str, checkpoint: Checkpoint) -> Revision:
    files = [file for file in checkpoint.path.iterdir() if not any(file.match(each) for each in (*RESUMING, STATE))]
    content: Revision = {file.name: file for file in files}
    if is_store(run.store(checkpoint.k)):
        store = Store.load(run.store(checkpoint.k))
        content |= files_of(store, folder_of(store))
    content["README.md"] = model_card(run, repo, checkpoint).encode()
    return content


def _record(run: Run) -> bytes:
    """Return the run's record as JSON, without facts about the machine that trained it."""
    record = {key: value for key, value in run.record.items() if key not in ("published", "here")}
    return (json.dumps(without_folders(record), indent=1, ensure_ascii=False) + "\n").encode()


def model_card(run: Run, repo: str, checkpoint: Checkpoint) -> str:
    """Return the model card of a checkpoint: Markdown, with the measurements as a table and in the metadata."""
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
