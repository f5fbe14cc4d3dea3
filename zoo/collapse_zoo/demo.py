"""The demo: train one small model offline until long after its training loss is low, and measure it during training."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import collapse
from collapse import Table
from collapse.core.progress import Report
from collapse.core.settings import quiet
from collapse.errors import UsageError
from collapse_zoo.model import GPTNeoForCausalLM, build
from collapse_zoo.recipes import parse
from collapse_zoo.runs import CHECKPOINTS, STORES, Run, write_rows
from collapse_zoo.sources import find_source
from collapse_zoo.training import train

_RECIPE: dict[str, Any] = {"heads": 4, "chunk_length": 64, "batch_size": 8, "learning_rate": 5e-4}
_SAID = "20 stories, batches of 8 x 64 tokens, AdamW, learning rate 5e-4 to 0, decay 0.1"
_SHOWN = {
    "NC1 ↓": "nc1.cdnv_ratio_debiased",
    "NC2 norms ↓": "nc2.equinormness",
    "NC2 angle ↓": "nc2.interference_std",
    "NC3 ↑": "nc3.self_duality",
    "NC4 ↑": "nc4.agreement",
}
_NOTES = (
    "NC1 to NC3 are of the training text, NC4 of the validation text; one seed, tied head",
    "NC2 angle: std of the cosines, 1/√128 = 0.088 for random directions in 128 dimensions",
    "permuted: the last checkpoint's embeddings with permuted labels, no training; NC1 has no value there, because "
    "class means differ only by noise",
)


def demo(folder: str | Path, *, epochs: Sequence[int] = (3, 9, 27, 81, 243), progress: Report | None = None) -> Table:
    """Train a model on a few stories, and measure it at its initialization and after the ``epochs`` (ascending).

    Finished work of a previous run in the same folder is reused. ``results.csv`` and ``results.json`` are written.

    Returns:
        A table with a row for each measured step, for permuted labels, and for the values at full collapse.

    Raises:
        InUseError: Another process trains in the same folder.
        UsageError: The folder holds other files, or a demo with other epochs.
    """
    folder, name = Path(folder), parse(f"stories-2x128_{epochs[-1]}L")
    run = Run(folder / str(name))
    if not run.record and any(each != run.path for each in folder.glob("[!.]*")):
        raise UsageError(f"{folder} holds files that the demo did not write: choose another --output")
    source = find_source(generated=20, words=2)
    recipe, ks = source.recipe(name, precision="float32", **_RECIPE), [epoch - 1 for epoch in epochs]
    train(recipe, source, run.path, checkpoints=ks, device="cpu", progress=progress)
    initial, options = run.path / CHECKPOINTS / "checkpoint-0", source.collecting(recipe.chunk_length)
    tokens_NT = torch.from_numpy(source.chunks(recipe.chunk_length).tokens[:].astype("int64"))
    rows, losses = [], []
    with quiet("transformers"):
        build(recipe).save_pretrained(initial)
        source.tokenizer.save_pretrained(initial)
        for path in (initial, *(run.checkpoint(k).path for k in ks)):
            store = collapse.collect(path, store=run.path / STORES / path.name, progress=progress, **options)
            rows.append(replace(collapse.measure(store, progress=progress), model=f"{name}/{path.name}"))
            with torch.inference_mode():
                losses.append(GPTNeoForCausalLM.from_pretrained(path)(tokens_NT, labels=tokens_NT).loss.item())
    shuffled = collapse.measure(collapse.collect(path, null="shuffled", store=run.path / "shuffled", **options))
    nulls = {"untrained": rows[0].measurements, "shuffled": shuffled.measurements}
    rows[-1] = replace(rows[-1], nulls=nulls)
    write_rows(folder, rows)
    shown = [(str(row.step), loss, row.measurements) for row, loss in zip(rows, losses, strict=True)]
    shown.append(("permuted", None, shuffled.measurements))
    lines = [[at, loss, of["val_loss"], *(of[each] for each in _SHOWN.values())] for at, loss, of in shown]
    lines.append(["full collapse", None, None, 0, 0, 0, 1, 1])
    title = f"{name}: C = {shuffled.classes} classes in d = {shuffled.dim} dimensions\n{_SAID}"
    return Table(title, ["step", "train loss", "val. loss", *_SHOWN], lines, _NOTES)
