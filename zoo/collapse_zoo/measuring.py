"""Measure neural collapse in a run's checkpoints: collect each once on its training text, and measure it."""

from collections.abc import Collection

import collapse
from collapse.core.progress import Report
from collapse.measurement.last_results import keep_row
from collapse.measurement.results import Row
from collapse_zoo.runs import Run
from collapse_zoo.sources import Source


def measure_run(
    run: Run,
    source: Source,
    *,
    checkpoints: Collection[int] | None = None,
    device: str = "auto",
    progress: Report | None = None,
) -> list[Row]:
    """Collect and measure the checkpoints that have no row yet; after an interruption, the same call resumes.

    Args:
        run: The run.
        source: Its texts.
        checkpoints: The k of the checkpoints; None for all that training has reached.
        device: Device for collecting.
        progress: Called as progress(what, done, total).

    Returns:
        All rows of the run, in the order of its checkpoints.

    Raises:
        CollapseError: A checkpoint is missing, or its store is of other weights.
    """
    wanted = [each.k for each in run.epochs if each.k is not None] if checkpoints is None else sorted(checkpoints)
    for k in wanted:
        if k in run.measured():
            continue
        store = collapse.collect(
            run.checkpoint(k).path,
            store=run.store(k),
            chunk_length=run.recipe.chunk_length,
            device=device,
            progress=progress,
            **source.collecting(),
        )
        keep_row(store, run.add(collapse.measure(store, progress=progress), k))
    return run.results()
