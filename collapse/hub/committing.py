"""Commit files to a repository on the Hub."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from collapse.core.progress import Report
from collapse.core.settings import quiet  # the client logs signed addresses
from collapse.errors import CollapseError, UsageError
from collapse.hub.remote import Remote, reach
from collapse.hub.requests import TRIES, clear_errors, client_errors, is_repo_id, steadily
from collapse.stores.manifest import MANIFEST


@dataclass(frozen=True)
class Committed:
    """The result of a commit.

    Attributes:
        url: Address of the commit or pull request; None if nothing had changed.
        sent: Paths sent.
        revision: Branch or pull request of the commit; None for the main branch.
    """

    url: str | None
    sent: list[str]
    revision: str | None


def check_repo(repo: str) -> None:
    """Raise UsageError if a text cannot be the name of a repository."""
    if not is_repo_id(repo) or "/" not in repo:
        raise UsageError(f"{repo!r} is not the name of a repository: give user/name")


def create_repo(repo: str, *, private: bool = False) -> None:
    """Create a repository if it does not exist; raises as :func:`push`."""
    from huggingface_hub import HfApi

    with _clear_errors(repo):
        steadily(lambda: HfApi().create_repo(repo, private=private, exist_ok=True))


def commit_files(
    repo: str,
    content: Mapping[str, Path | bytes],
    message: str,
    *,
    revision: str | None = None,
    create_pr: bool = False,
    remote: Remote | None = None,
    progress: Report | None = None,
) -> Committed:
    """Send new and changed files to a repository in one commit; raises as :func:`push`.

    A store replaces the one in its folder: other files of that folder are deleted in the same commit. ``remote`` is the
    branch for which the content was made; the commit fails if the branch has moved since.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    api = HfApi()
    remote = remote or read_branch(repo, revision)
    changed = {path: what for path, what in content.items() if not remote.holds(path, what)}
    gone = _replaced(content, remote)
    if not changed and not gone:
        return Committed(None, [], revision)
    added = [CommitOperationAdd(path, what) for path, what in changed.items()]
    total, sent = sum(each.upload_info.size for each in added), 0
    for each in added:  # one by one, to report progress; small files travel in the commit
        if progress:
            progress(f"pushing to {repo}", sent, total, f"{sent / 1e6:,.1f} of {total / 1e6:,.1f} MB")
        upload = partial(api.preupload_lfs_files, repo, [each], revision=revision, create_pr=create_pr)
        with _clear_errors(repo, f"{each.path_in_repo} was not sent"), quiet("huggingface_hub"):
            steadily(partial(upload, free_memory=False))
        sent += each.upload_info.size
    if progress:
        progress(f"pushing to {repo}", sent, total)
    with _clear_errors(repo), quiet("huggingface_hub"):
        # a pull request whose answer was lost may be open: another try would open a second one
        made = steadily(
            lambda: api.create_commit(
                repo,
                [*added, *(CommitOperationDelete(path) for path in gone)],
                commit_message=message,
                revision=revision,
                create_pr=create_pr,
                parent_commit=None if create_pr else remote.commit,
            ),
            tries=1 if create_pr else TRIES,
        )
    return Committed(made.pr_url or made.commit_url, sorted(changed), made.pr_revision or revision)


def move_tag(repo: str, tag: str) -> None:
    """Set a tag to the head of the main branch; raises as :func:`push`."""
    from huggingface_hub import HfApi, errors

    api = HfApi()
    with _clear_errors(repo, f"the tag {tag} was not moved"), suppress(errors.RevisionNotFoundError):
        steadily(lambda: api.delete_tag(repo, tag=tag))
    with _clear_errors(repo, f"the tag {tag} is not set"):
        steadily(lambda: api.create_tag(repo, tag=tag, exist_ok=True))


def user_name() -> str:
    """Return the name of the user who is logged in.

    Raises:
        UsageError: Nobody is.
    """
    from huggingface_hub import HfApi

    try:
        return str(steadily(HfApi().whoami)["name"])
    except client_errors() as error:
        raise UsageError("you are not logged in: run hf auth login, or give the repository as user/name") from error


def _replaced(content: Mapping[str, Path | bytes], remote: Remote) -> list[str]:
    """List the files to delete: those in the folders of the new stores that do not belong to these."""
    folders = {PurePosixPath(path).parent for path in content if PurePosixPath(path).name == MANIFEST}
    inside = tuple(f"{folder}/" for folder in folders if folder.name)
    return sorted(path for path in remote.files if path.startswith(inside) and path not in content)


def read_branch(repo: str, revision: str | None) -> Remote:
    """Always read the head of a branch from the Hub, never from the cache."""
    remote = reach(f"{repo}@{revision}" if revision else repo, patient=True)
    if not remote.online:
        raise CollapseError(f"{repo}: nothing was committed: the Hub cannot be reached; run the same command again")
    return remote


@contextmanager
def _clear_errors(repo: str, what: str = "the commit failed") -> Iterator[None]:
    """Convert the client's exceptions into errors that say what to do."""
    from huggingface_hub import errors

    with clear_errors(f"{repo}: {what}", ". Run the same command again: what was sent already is not sent twice"):
        try:
            yield
        except errors.RepositoryNotFoundError as error:
            raise UsageError(
                f"{repo}: {what}: it does not exist, or you have no access to it: log in with: hf auth login"
            ) from error
