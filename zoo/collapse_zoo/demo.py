"""The demo: train toy models, measure NC1–NC4 and run a permutation test, offline, in a few minutes on a laptop."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import collapse
from collapse import Table
from collapse.core.progress import Report
from collapse.errors import UsageError
from collapse.measurement.results import Results, Row
from collapse.plugin.plugin_manager import plugins
from collapse.stores.lock import locked
from collapse.stores.writing import ANOTHER_OUTPUT, write_atomic
from collapse_zoo.catalogue import SHOWN
from collapse_zoo.recipes import Recipe
from collapse_zoo.sources import Source, find_source
from collapse_zoo.stories import stories, train_tokenizer, write_stories
from collapse_zoo.training import numbered, train

TESTED = SHOWN[1:]
_OURS = ".collapse-demo"  # marks the folder of a demo
_RECIPE: dict[str, Any] = {"heads": 4, "chunk_length": 128, "batch_size": 16, "learning_rate": 2e-3}


def demo(
    folder: str | Path,
    *,
    widths: Sequence[int] = (32, 64),
    seeds: Sequence[int] = (0, 1, 2, 3),
    n_stories: int = 1_600,
    steps: int = 150,
    progress: Report | None = None,
) -> tuple[list[Row], Table]:
    """Generate stories, train a tokenizer and one model per width and seed, collect, measure and test them.

    Finished work of a previous run in the same folder is reused.

    Args:
        folder: Folder for stories, models, stores and results.csv.
        widths: Dimensions of the models.
        seeds: Seeds of initialization and text order; each gives one model per width.
        n_stories: Training stories; validation has an eighth as many.
        steps: Optimizer steps per model.
        progress: Called as progress(what, done, total[, tokens/s and loss]).

    Returns:
        The measurements, one row per model, and the permutation test over the models.

    Raises:
        InUseError: Another process runs the demo in the same folder.
        UsageError: The folder holds other files.
    """
    folder = Path(folder)
    if any(folder.glob("[!.]*")) and not (folder / _OURS).exists():
        raise UsageError(f"{folder} holds files that the demo did not write: choose another --output")
    rows: list[Row] = []
    with locked(folder, option="--output"):
        write_atomic(folder / _OURS, b"", other=ANOTHER_OUTPUT)
        source = _source(folder, n_stories)
        for width, seed in product(widths, seeds):
            values = _RECIPE | {"max_steps": steps, "precision": "float32", "seed": seed, "data_seed": seed}
            recipe = Recipe(2, width, len(source.tokenizer), **values)
            name = f"2x{width}-s{seed}"
            report = numbered(progress, len(rows) + 1, len(widths) * len(seeds))
            run = train(recipe, source, folder / "models" / name, name=name, device="cpu", progress=report)
            store = collapse.collect(run.path, store=folder / "stores" / name, progress=report)
            rows.append(collapse.measure(store, progress=report))
        results = Results(rows)
        results.write(folder / "results.csv")
        return rows, plugins().analysis("permutation")(results, columns=list(TESTED), within="dim")


def _source(folder: Path, n_stories: int) -> Source:
    """Write stories and their tokenizer into the folder of a demo."""
    text, validation, tokenizer = (folder / each for each in ("text/train.jsonl", "text/validation.jsonl", "tokenizer"))
    write_stories(text, n_stories, seed=1)
    write_stories(validation, n_stories // 8, seed=2)
    train_tokenizer(stories(n_stories, seed=1), tokenizer)
    return find_source(text=text, validation_text=validation, tokenizer=tokenizer)
