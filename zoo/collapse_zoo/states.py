"""The progress of the members of a sweep."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collapse.errors import CollapseError
from collapse.stores.lock import is_locked
from collapse.stores.manifest import is_store
from collapse.stores.partial import Partial
from collapse.stores.store import Store
from collapse_zoo.catalogue import run_folders
from collapse_zoo.members import wanted
from collapse_zoo.records import read_swept
from collapse_zoo.runs import Run
from collapse_zoo.sweeping import SWEEP


def status(folder: str | Path) -> list[dict[str, Any]]:
    """Return the progress of each member of the sweeps in a folder, and of every other run in it.

    Returns:
        For each: ``member``, ``epochs`` trained and in total, ``chunks`` collected, ``measured`` checkpoints,
        ``published``, ``state``.
    """
    folder = Path(folder)
    swept = read_swept(folder / SWEEP)
    runs = {run.path.name: run for run in run_folders(folder)}
    names = [*swept, *(name for name in runs if name not in swept)]
    return [_status(name, runs.get(name), swept.get(name, {}), folder) for name in names]


def _status(name: str, run: Run | None, swept: dict[str, Any], folder: Path) -> dict[str, Any]:
    none = {"member": name, "epochs": "0", "chunks": "0", "measured": "0", "published": "no"}
    try:
        return _of_run(name, run, swept) if run else none | {"state": _waiting(swept)}
    except CollapseError as error:
        return none | {"state": f"damaged: {error}"}


def _of_run(name: str, run: Run, swept: dict[str, Any]) -> dict[str, Any]:
    record = run.record
    assert record is not None  # run_folders() checked it
    epochs = [each["k"] for each in record["epochs"]]
    ks = wanted(record, swept["checkpoints"]) if "checkpoints" in swept else epochs
    measured = run.measured().intersection(ks)
    total = swept.get("epochs") or record["recipe"].get("epochs") or len(epochs)
    return {
        "member": name,
        "epochs": f"{len(epochs)}" if record["recipe"].get("max_steps") else f"{len(epochs)} of {total}",
        "chunks": _collected(run, ks),
        "measured": f"{len(measured)} of {len(ks) or 1}",
        "published": str(record.get("published") or "no"),
        "state": _state(record, run, swept, bool(ks) and len(measured) == len(ks)),
    }


def _state(record: dict[str, Any], run: Run, swept: dict[str, Any], measured: bool) -> str:
    if is_locked(run.path):
        return "measuring" if record["state"] == "finished" else "training"
    if record["state"] == "finished":
        run.check_model(quick=True)
        if measured:
            return "done"
        return f"failed: {swept['problem']}" if swept.get("problem") else "trained"
    if record["state"] == "failed":
        return f"failed: {record.get('problem')}"
    return "interrupted: the same command resumes"


def _waiting(swept: dict[str, Any]) -> str:
    return f"failed: {swept['problem']}" if swept.get("problem") else "waiting"


def _collected(run: Run, ks: Sequence[int]) -> str:
    """Describe the chunks in the checkpoints' stores, and the progress of a running collection."""
    chunks, unfinished = 0, ""
    for k in ks:
        folder = run.store(k)
        if is_store(folder):
            chunks += Store.load(folder).manifest["coverage"]["train"]["chunks"]
        progress = Partial(folder).read()
        if progress is not None:
            unfinished = f" and {progress.done - progress.start} of {progress.stop - progress.start} slices"
    return f"{chunks:,}{unfinished}"
