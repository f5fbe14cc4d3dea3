"""Publish a run on the Hub: model and store of epoch k + 1 become a revision with the tag k; the last one is main."""

import json
from pathlib import Path

from collapse.errors import UsageError
from collapse.hub.committing import commit_files, create_repo, move_tag, read_branch, user_name
from collapse.hub.remote import reach
from collapse.hub.sharing import files_of, folder_of
from collapse.stores.files import sha256_file
from collapse.stores.manifest import is_store
from collapse.stores.provenance import without_folders
from collapse.stores.store import Store
from collapse_zoo.model_card import model_card
from collapse_zoo.runs import RECORD, RESUMING, STATE, Checkpoint, Run

Revision = dict[str, Path | bytes]
"""The content of a revision: files or bytes, by their paths in the repository."""


def revisions(run: Run, repo: str) -> dict[int, Revision]:
    """Return the revisions that publishing a run would make, with k as keys, ascending; nothing is sent.

    Raises:
        UsageError: The run is not finished, or a checkpoint was deleted.
    """
    _check_finished(run)
    made = {each.k: _revision(run, repo, run.checkpoint(each.k)) for each in run.epochs}
    last = made[max(made)]
    last[RECORD] = _record(run)
    last |= {name: run.path / name for name in (STATE, "results.json", "results.csv") if (run.path / name).is_file()}
    return made


def publish(run: Run, repo: str | None = None, *, private: bool = False) -> tuple[str, list[int]]:
    """Publish a run; after an interruption, call it again to resume without sending files twice.

    Args:
        run: A finished run.
        repo: ``user/name``; None for the logged-in user and the run's name.
        private: Create the repository as private.

    Returns:
        The repository, and the k of each revision that this call sent.

    Raises:
        UsageError: The run is not finished, or the repository holds another run.
        CollapseError: The Hub cannot be reached, or rejects the request.
    """
    _check_finished(run)
    repo = repo or f"{user_name()}/{run.name}"
    planned = revisions(run, repo)
    create_repo(repo, private=private)
    sent = [k for k, revision in planned.items() if _send(run, k, revision, repo, last=k == max(planned))]
    run.update(published=repo)
    return repo, sent


def _check_finished(run: Run) -> None:
    if not run.finished:
        raise UsageError(
            f"{run.path} holds no finished run: give the folder of a finished run, or train it first (collapse zoo "
            "status shows the progress)"
        )


def _send(run: Run, k: int, revision: Revision, repo: str, *, last: bool) -> bool:
    """Send a revision and set its tag; return whether anything was new.

    Raises:
        UsageError: The tag already exists with other weights.
    """
    try:
        there = reach(f"{repo}@{k}")
    except UsageError:  # no such tag yet
        there = None
    if there and there.files.get("model.safetensors") != sha256_file(run.checkpoint(k).path / "model.safetensors"):
        raise UsageError(f"{repo}@{k} holds the weights of another run: publish to another repository")
    if there and not last:
        return False
    # replaces the store of an earlier epoch
    made = commit_files(read_branch(repo), revision, f"{run.name}@{k}", replaced="collapse/")
    if made or not there:
        move_tag(repo, str(k))
    return made is not None


def _revision(run: Run, repo: str, checkpoint: Checkpoint) -> Revision:
    files = [file for file in checkpoint.path.iterdir() if not any(file.match(each) for each in (*RESUMING, STATE))]
    content: Revision = {file.name: file for file in files}
    if is_store(run.store(checkpoint.k)):
        store = Store.load(run.store(checkpoint.k))
        content |= files_of(store, folder_of(store))
    content["README.md"] = model_card(run, repo, checkpoint).encode()
    return content


def _record(run: Run) -> bytes:
    """Return the run's record without details of this machine."""
    record = {key: value for key, value in run.record.items() if key not in ("published", "here")}
    return (json.dumps(without_folders(record), indent=1, ensure_ascii=False) + "\n").encode()
