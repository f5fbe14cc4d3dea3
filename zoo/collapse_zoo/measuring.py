"""Measure neural collapse in a run's checkpoints: collect each once on its training text, and measure it."""

from collections.abc import Collection
from typing import Any

import collapse
from collapse.errors import CollapseError
from collapse.measurement.last_results import keep_row
from collapse.measurement.results import Row
from collapse.progress import Report
from collapse.stores.lock import locked
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
    """Collect and measure the checkpoints that have no row yet; after an interruption, the same call resumes.

    Args:
        run: The run.
        source: Its texts.
        checkpoints: The k of the checkpoints; None for all.
        device: Device for collecting.
        progress: Called as progress(what, done, total).
        collecting: Further arguments of :func:`collapse.collect`.

    Returns:
        All rows of the run, in the order of its checkpoints.

    Raises:
        InUseError: Another process trains or measures the run.
        CollapseError: A checkpoint is missing or was altered, or the text is not its training text.
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
    """Do the same as :func:`measure_run`; the caller holds the run's lock."""
    record = run.record or {}
    wanted = [epoch["k"] for epoch in record.get("epochs", [])] if checkpoints is None else sorted(checkpoints)
    run.check_written(wanted)
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
        keep_row(store, row)
    return run.results()


def _check_what_was_read(run: Run, checkpoint: Checkpoint, store: collapse.Store) -> None:
    """Refuse a store of other weights or other tokens than training had."""
    checkpoint.check()  # again, so that the files that were checked before are those that were read
    provenance = store.manifest["provenance"]
    read = {"train": provenance.get("tokens"), "validation": (provenance.get("validation") or {}).get("tokens")}
    for phase, digest in ((run.record or {}).get("tokens") or {}).items():
        if None not in (digest, read.get(phase)) and read[phase] != digest:
            raise CollapseError(
                f"{store.path} was collected on other tokens of the {phase} text than {run.path} was trained on: "
                f"restore the text and the tokenizer, delete {store.path}, and measure again"
            )
