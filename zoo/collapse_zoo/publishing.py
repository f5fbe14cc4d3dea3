"""Publish a run on the Hub: each epoch's model and store become a revision tagged with k, the last one main."""

import json
from dataclasses import dataclass
from pathlib import Path

from collapse.errors import CollapseError, UsageError
from collapse.hub.committing import check_repo, commit_files, create_repo, move_tag, user_name
from collapse.hub.fingerprints import Folder, weights_fingerprint
from collapse.hub.remote import reach
from collapse.hub.sharing import files_of, folder_of
from collapse.progress import Report
from collapse.stores.manifest import is_store
from collapse.stores.provenance import without_folders
from collapse.stores.store import Store
from collapse_zoo.checkpoints import Checkpoint
from collapse_zoo.model_card import model_card
from collapse_zoo.runs import CURVE, RECORD, Run

_PRIVATE = ("output_dir", "logging_dir", "run_name", "hub_")


@dataclass(frozen=True)
class Revision:
    """The content of a revision of the repository.

    Attributes:
        k: Its tag; it holds the state after epoch k + 1.
        content: Path in the repository → file, or bytes.
    """

    k: int
    content: dict[str, Path | bytes]

    @property
    def size(self) -> int:
        """Size in bytes."""
        return sum(len(each) if isinstance(each, bytes) else each.stat().st_size for each in self.content.values())


def revisions(run: Run, repo: str | None = None) -> list[Revision]:
    """Return the revisions that publishing a run would make, in order; nothing is sent.

    Args:
        run: A finished run.
        repo: ``user/name``; None for a placeholder and the run's name.

    Raises:
        UsageError: The run is not finished.
        CollapseError: A file of the run is missing or altered, or a store was collected from other weights.
    """
    _check_finished(run)
    repo = repo or f"YOU/{run.name}"
    run.check_model()
    run.curve()
    checkpoints = [run.checkpoint(epoch["k"]) for epoch in (run.record or {})["epochs"]]
    return [_revision(run, repo, each, last=each is checkpoints[-1]) for each in checkpoints]


def publish(
    run: Run, repo: str | None = None, *, private: bool = False, progress: Report | None = None
) -> tuple[str, list[int]]:
    """Publish a run; after an interruption the same call resumes, without sending existing files again.

    Args:
        run: A finished run.
        repo: ``user/name``; None for the login's user and the run's name.
        private: Create the repository as private.
        progress: Called as progress(what, bytes done, bytes[, note]).

    Returns:
        The repository, and the k that this call sent.

    Raises:
        UsageError: The run is not finished, or the repository holds another run.
        CollapseError: The Hub cannot be reached, or rejects the request.
    """
    _check_finished(run)
    repo = repo or f"{user_name()}/{run.name}"
    check_repo(repo)
    planned = revisions(run, repo)
    create_repo(repo, private=private)
    sent = []
    for revision in planned:
        if _is_tagged(repo, revision, last=revision is planned[-1]):
            continue
        made = commit_files(repo, revision.content, f"{run.name}@{revision.k}", progress=progress)
        move_tag(repo, str(revision.k))
        if made.url is not None:
            sent.append(revision.k)
    run.update(published=repo)
    return repo, sent


def _check_finished(run: Run) -> None:
    if run.record is None:
        raise UsageError(f"there is no run in {run.path} (no {RECORD}): name the folder of a trained run")
    if not run.finished:
        raise UsageError(f"{run.path} is not a finished run: train it first (collapse zoo status says how far it is)")


def _revision(run: Run, repo: str, checkpoint: Checkpoint, *, last: bool) -> Revision:
    assert checkpoint.k is not None  # it ends an epoch
    checkpoint.check()
    content: dict[str, Path | bytes] = {name: checkpoint.path / name for name in sorted(checkpoint.model_files)}
    folder = run.store(checkpoint.k)
    if is_store(folder):
        store = Store.load(folder)
        _check_weights(store, checkpoint)
        content |= files_of(store, folder_of(store))
    if last:
        content[RECORD] = _record(run)
        run.results(whole=True)  # refuses rows of other stores, which the files below would publish
        shown = (CURVE, "results.json", "results.csv")
        content |= {name: run.path / name for name in shown if (run.path / name).is_file()}
    content["README.md"] = model_card(run, repo, checkpoint).encode()
    return Revision(checkpoint.k, content)


def _check_weights(store: Store, checkpoint: Checkpoint) -> None:
    """Refuse a store that was collected from other weights than those of its checkpoint."""
    held = store.identity.get("weights")
    if held != weights_fingerprint(Folder(checkpoint.path), store.identity.get("model_args")):
        raise CollapseError(
            f"{store} was collected from other weights ({str(held)[:19]}…) than those of {checkpoint.path}: move it "
            f"away, and collect it again: collapse collect {checkpoint.path} --store {store}"
        )


def _record(run: Run) -> bytes:
    """Return the run's record without details of this machine."""
    record = {key: value for key, value in (run.record or {}).items() if key != "published"}
    arguments = record.get("arguments") or {}
    record["arguments"] = {key: value for key, value in arguments.items() if not key.startswith(_PRIVATE)}
    record = without_folders(record)
    return (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode()


def _is_tagged(repo: str, revision: Revision, *, last: bool) -> bool:
    """Whether the repository has a revision; compares the weights of older ones, and every file of the last one."""
    try:
        there = reach(f"{repo}@{revision.k}", patient=True)
    except CollapseError:
        return False
    weights = revision.content["model.safetensors"]
    if not there.holds("model.safetensors", weights):
        raise UsageError(f"{repo}@{revision.k} holds other weights than this run's: publish to another repository")
    return not last or all(there.holds(path, what) for path, what in revision.content.items())
