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
        For each: ``member``, ``epochs`` trained, ``epochs_planned``, ``chunks`` collected, ``slices`` and
        ``slices_planned`` of a running collection, ``measured`` checkpoints, ``measured_planned``, ``published``,
        ``state``. All but the first and the last two are whole numbers, or None where there is no such number.
    """
    folder = Path(folder)
    swept = read_swept(folder / SWEEP)
    runs = {run.path.name: run for run in run_folders(folder)}
    names = [*swept, *(name for name in runs if name not in swept)]
    return [_status(name, runs.get(name), swept.get(name, {}), folder) for name in names]


def _status(name: str, run: Run | None, swept: dict[str, Any], folder: Path) -> dict[str, Any]:
    none: dict[str, Any] = {"member": name, "epochs": 0, "epochs_planned": None, "chunks": 0, "slices": None}
    none |= {"slices_planned": None, "measured": 0, "measured_planned": None, "published": "no"}
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
        "epochs": len(epochs),
        "epochs_planned": None if record["recipe"].get("max_steps") else total,
        **_collected(run, ks),
        "measured": len(measured),
        "measured_planned": len(ks) or 1,
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


def _collected(run: Run, ks: Sequence[int]) -> dict[str, int | None]:
    """Return the number of chunks in the checkpoints' stores, and the slices of a running collection."""
    chunks, slices, planned = 0, None, None
    for k in ks:
        folder = run.store(k)
        if is_store(folder):
            chunks += Store.load(folder).manifest["coverage"]["train"]["chunks"]
        progress = Partial(folder).read()
        if progress is not None:
            slices, planned = progress.done - progress.start, progress.stop - progress.start
    return {"chunks": chunks, "slices": slices, "slices_planned": planned}
