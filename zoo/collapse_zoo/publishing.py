"""Publish a run on the Hub: each epoch's model and store become a revision tagged with k, the last one main."""

import json
from dataclasses import dataclass
from pathlib import Path

from collapse.errors import CollapseError, UsageError
from collapse.hub.committing import commit_files, create_repo, move_tag, read_branch, user_name
from collapse.hub.fingerprints import Folder, weights_fingerprint
from collapse.hub.remote import reach
from collapse.hub.sharing import files_of, folder_of
from collapse.stores.files import sha256_file
from collapse.stores.manifest import is_store
from collapse.stores.provenance import without_folders
from collapse.stores.store import Store
from collapse_zoo.model_card import model_card
from collapse_zoo.runs import CURVE, RECORD, Checkpoint, Run

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
        UsageError: The run is not finished, or a checkpoint was deleted.
        CollapseError: A store was collected from other weights.
    """
    _check_finished(run)
    repo = repo or f"YOU/{run.name}"
    last = run.epochs[-1]
    return [_revision(run, repo, k, last=k == last.k) for k in (each.k for each in run.epochs) if k is not None]


def publish(run: Run, repo: str | None = None, *, private: bool = False) -> tuple[str, list[int]]:
    """Publish a run; after an interruption the same call resumes, without sending existing files again.

    Args:
        run: A finished run.
        repo: ``user/name``; None for the login's user and the run's name.
        private: Create the repository as private.

    Returns:
        The repository, and the k that this call sent.

    Raises:
        UsageError: The run is not finished, or the repository holds another run.
        CollapseError: The Hub cannot be reached, or rejects the request.
    """
    _check_finished(run)
    repo = repo or f"{user_name()}/{run.name}"
    planned = revisions(run, repo)
    create_repo(repo, private=private)
    sent = []
    for revision in planned:
        if _is_there(repo, revision) and revision is not planned[-1]:
            continue
        if commit_files(read_branch(repo), revision.content, f"{run.name}@{revision.k}") is not None:
            sent.append(revision.k)
        move_tag(repo, str(revision.k))
    run.update(published=repo)
    return repo, sent


def _check_finished(run: Run) -> None:
    if not run.record:
        raise UsageError(f"there is no run in {run.path} (no {RECORD}): name the folder of a trained run")
    if not run.finished:
        raise UsageError(f"{run.path} is not a finished run: train it first (collapse zoo status says how far it is)")


def _revision(run: Run, repo: str, k: int, *, last: bool) -> Revision:
    checkpoint = run.checkpoint(k)
    content: dict[str, Path | bytes] = {name: checkpoint.path / name for name in checkpoint.model_files}
    if is_store(run.store(k)):
        store = Store.load(run.store(k))
        _check_weights(store, checkpoint)
        content |= files_of(store, folder_of(store))
    if last:
        content[RECORD] = _record(run)
        shown = (CURVE, "results.json", "results.csv")
        content |= {name: run.path / name for name in shown if (run.path / name).is_file()}
    content["README.md"] = model_card(run, repo, checkpoint).encode()
    return Revision(k, content)


def _check_weights(store: Store, checkpoint: Checkpoint) -> None:
    """Refuse a store that was collected from other weights than those of its checkpoint."""
    if store.identity.get("weights") != weights_fingerprint(Folder(checkpoint.path), store.identity.get("model_args")):
        raise CollapseError(
            f"{store} was collected from other weights than those of {checkpoint.path}: move it away, and measure "
            "again: run the command that trained it, with --measure"
        )


def _record(run: Run) -> bytes:
    """Return the run's record without details of this machine."""
    record = {key: value for key, value in run.record.items() if key not in ("published", "here")}
    record["arguments"] = {key: value for key, value in record["arguments"].items() if not key.startswith(_PRIVATE)}
    return (json.dumps(without_folders(record), indent=1, ensure_ascii=False) + "\n").encode()


def _is_there(repo: str, revision: Revision) -> bool:
    """Whether the repository has a revision, which must hold the same weights."""
    try:
        there = reach(f"{repo}@{revision.k}")
    except UsageError:
        return False
    weights = revision.content["model.safetensors"]
    if isinstance(weights, Path) and there.files.get("model.safetensors") != sha256_file(weights):
        raise UsageError(f"{repo}@{revision.k} holds other weights than this run's: publish to another repository")
    return True
