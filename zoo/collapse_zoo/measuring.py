"""Neural collapse of a run's checkpoints: each collected on the text it was trained on, and measured, once."""

from collections.abc import Collection
from typing import Any

import collapse
from collapse.reporting import Report
from collapse.results import Row
from collapse_zoo.runs import Run
from collapse_zoo.sources import Source


def measure_run(
    run: Run,
    source: Source,
    *,
    checkpoints: Collection[int] | None = None,
    device: str = "auto",
    progress: Report | None = None,
    **collecting: Any,
) -> list[Row]:
    """Collect and measure the checkpoints that are there and have no row yet; interrupted, it goes on.

    Args:
        run: The run.
        source: Its texts.
        checkpoints: Which k; None for all.
        device: Where to collect.
        progress: Called as progress(what, done, total).
        collecting: Further arguments of :func:`collapse.collect`.

    Returns:
        All the run's rows, its checkpoints in order.
    """
    measured = {row.model for row in run.results()}
    for checkpoint in run.checkpoints():
        k = checkpoint.k
        if k is None or (checkpoints is not None and k not in checkpoints) or f"{run.name}@{k}" in measured:
            continue
        store = collapse.collect(
            checkpoint.path,
            store=run.store(k),
            chunk_length=run.recipe.chunk_length,
            device=device,
            progress=progress,
            **source.collecting(),
            **collecting,
        )
        row = run.keep(collapse.measure(store, progress=progress), k)
        store.keep_results(row)
    return run.results()
