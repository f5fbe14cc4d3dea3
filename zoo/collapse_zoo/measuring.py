"""Neural collapse of a run's checkpoints: each collected on the text it was trained on, and measured, once."""

from collections.abc import Collection
from typing import Any

import collapse
from collapse.errors import CollapseError
from collapse.lock import locked
from collapse.reporting import Report
from collapse.results import Row
from collapse_zoo.checkpoints import Checkpoint
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
    """Collect and measure the checkpoints that have no row yet; interrupted, the same call resumes it.

    Args:
        run: The run.
        source: Its texts.
        checkpoints: Which k; None for all.
        device: Where to collect.
        progress: Called as progress(what, done, total).
        collecting: Further arguments of :func:`collapse.collect`.

    Returns:
        All the run's rows, its checkpoints in order.

    Raises:
        InUseError: Another process trains or measures the run.
        CollapseError: A checkpoint is missing, is not as it was written, or the text is not what it was trained on.
    """
    with locked(run.path, option="--output"):
        return measure_locked(run, source, checkpoints=checkpoints, device=device, progress=progress, **collecting)


def measure_locked(
    run: Run,
    source: Source,
    *,
    checkpoints: Collection[int] | None = None,
    device: str = "auto",
    progress: Report | None = None,
    **collecting: Any,
) -> list[Row]:
    """As :func:`measure_run`, by whom holds the run's lock."""
    record = run.record or {}
    wanted = [epoch["k"] for epoch in record.get("epochs", [])] if checkpoints is None else sorted(checkpoints)
    if run.finished:
        run.check_model()
    for k in wanted:
        if k in run.measured():
            continue
        checkpoint = run.checkpoint(k)
        checkpoint.check()
        store = collapse.collect(
            checkpoint.path,
            store=run.store(k),
            chunk_length=run.recipe.chunk_length,
            device=device,
            progress=progress,
            **source.collecting(),
            **collecting,
        )
        _check_what_was_read(run, checkpoint, store)
        row = run.keep(collapse.measure(store, progress=progress), k)
        store.keep_results(row)
    return run.results()


def _check_what_was_read(run: Run, checkpoint: Checkpoint, store: collapse.Store) -> None:
    """Refuse a store of other weights or other tokens than training had."""
    checkpoint.check()  # again: what was compared before is what was read
    provenance = store.manifest["provenance"]
    read = {"train": provenance.get("tokens"), "validation": (provenance.get("validation") or {}).get("tokens")}
    for phase, digest in ((run.record or {}).get("tokens") or {}).items():
        if None not in (digest, read.get(phase)) and read[phase] != digest:
            raise CollapseError(
                f"{store.path} was collected on other tokens of the {phase} text than {run.path} was trained on: "
                f"restore the text and the tokenizer, delete {store.path}, and measure again"
            )
