"""Publish a run on the Hub: each epoch's model and store become a revision tagged with k, the last one main."""

import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from collapse.errors import CollapseError, UsageError
from collapse.hub.committing import create_repo, move_tag, user_name
from collapse.hub.fingerprints import Folder, weights_fingerprint
from collapse.hub.requests import clear_errors
from collapse.hub.sharing import files_of, folder_of
from collapse.stores.files import sha256_file
from collapse.stores.manifest import is_store
from collapse.stores.provenance import without_folders
from collapse.stores.store import Store
from collapse_zoo.model_card import model_card
from collapse_zoo.runs import RECORD, RESUMING, STATE, Checkpoint, Run

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
    def sizes(self) -> dict[str, int]:
        """Size of each file in bytes."""
        content = sorted(self.content.items())
        return {path: len(what) if isinstance(what, bytes) else what.stat().st_size for path, what in content}

    def write(self, folder: Path) -> None:
        """Write the files, or links to them, into a folder."""
        for path, what in self.content.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            if isinstance(what, bytes):
                (folder / path).write_bytes(what)
            else:
                (folder / path).symlink_to(what.absolute())


def revisions(run: Run, repo: str | None = None) -> list[Revision]:
    """Return the revisions that publishing a run would make, in order; nothing is sent.

    Args:
        run: A finished run.
        repo: ``user/name``; None for a placeholder and the run's name.

    Raises:
        UsageError: The run is not finished, or a checkpoint was deleted.
        CollapseError: A store was collected from other weights.
    """
    if not run.record:
        raise UsageError(f"there is no run in {run.path} (no {RECORD}): name the folder of a trained run")
    if not run.finished:
        raise UsageError(f"{run.path} is not a finished run: train it first (collapse zoo status says how far it is)")
    ks = [each.k for each in run.epochs]
    return [_revision(run, repo or f"YOU/{run.name}", k, last=k == ks[-1]) for k in ks]


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
    planned = revisions(run, repo)
    if repo is None:
        repo = f"{user_name()}/{run.name}"
        planned = revisions(run, repo)
    create_repo(repo, private=private)
    sent = [revision.k for revision in planned if _send(revision, repo, run.name, last=revision is planned[-1])]
    run.update(published=repo)
    return repo, sent


def _send(revision: Revision, repo: str, name: str, *, last: bool) -> bool:
    """Send a revision and set its tag; return whether anything was new.

    Raises:
        UsageError: The tag is there with other weights.
    """
    from huggingface_hub import HfApi, errors

    weights = revision.content["model.safetensors"]
    assert isinstance(weights, Path)
    with clear_errors(f"{repo}: @{revision.k} was not sent", ". Run the same command again: what was sent is there"):
        head = HfApi().model_info(repo).sha
        try:
            there = HfApi().get_paths_info(repo, "model.safetensors", revision=str(revision.k))
        except errors.RevisionNotFoundError:
            there = None
        if there is not None:
            if [getattr(file, "lfs", {}).get("sha256") for file in there] != [sha256_file(weights)]:
                raise UsageError(
                    f"{repo}@{revision.k} holds other weights than this run's: publish to another repository"
                )
            if not last:
                return False
        with TemporaryDirectory() as folder:
            revision.write(Path(folder))
            made = HfApi().upload_folder(
                repo_id=repo,
                folder_path=folder,
                commit_message=f"{name}@{revision.k}",
                delete_patterns="collapse/*",  # an earlier epoch's store
            )
    if there is None or made.oid != head:
        move_tag(repo, str(revision.k))
    return bool(made.oid != head)


def _revision(run: Run, repo: str, k: int, *, last: bool) -> Revision:
    checkpoint = run.checkpoint(k)
    files = [file for file in checkpoint.path.iterdir() if not any(file.match(each) for each in (*RESUMING, STATE))]
    content: dict[str, Path | bytes] = {file.name: file for file in files}
    if is_store(run.store(k)):
        store = Store.load(run.store(k))
        _check_weights(store, checkpoint)
        content |= files_of(store, folder_of(store))
    if last:
        content[RECORD] = _record(run)
        shown = (STATE, "results.json", "results.csv")
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
