"""Commit files to a repository on the Hub; the client sends only changed files."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from collapse.errors import CollapseError, UsageError
from collapse.hub.client import clear_errors, client_errors, is_repo_id
from collapse.hub.remote import Remote, reach

if TYPE_CHECKING:
    from huggingface_hub import CommitInfo

_AGAIN = ". Run the same command again: files already sent are not sent twice"


def create_repo(repo: str, *, private: bool) -> None:
    """Create a model repository if it does not exist; raise UsageError if ``repo`` is not of the form ``user/name``."""
    from huggingface_hub import HfApi

    if not is_repo_id(repo) or "/" not in repo:
        raise UsageError(f"{repo!r} is not the name of a repository: give user/name")
    with clear_errors(f"{repo}: the repository cannot be created"):
        HfApi().create_repo(repo, private=private, exist_ok=True)


def read_branch(repo: str, revision: str | None = None) -> Remote:
    """Return a repository at the head of a branch (None for main), always from the Hub, never from the cache.

    Raises:
        UsageError: There is no such repository or branch.
        CollapseError: The Hub cannot be reached.
    """
    remote = reach(f"{repo}@{revision}" if revision else repo)
    if not remote.online:
        raise CollapseError(
            f"nothing was committed to {repo}, because the Hub cannot be reached: check the network and the variable "
            "HF_HUB_OFFLINE, then run the same command again"
        )
    return remote


def commit_files(
    remote: Remote,
    content: Mapping[str, Path | bytes],
    message: str,
    *,
    replaced: str,
    branch: str | None = None,
    create_pr: bool = False,
) -> "CommitInfo | None":
    """Send files to a repository in one commit; return None if nothing changed.

    The client's progress bars are shown on a terminal.

    Args:
        remote: The head of the branch; the commit fails if the branch has moved since.
        content: Files or bytes, by their paths in the repository.
        message: The commit's message.
        replaced: A folder with a final slash, such as ``collapse/``. The commit deletes the files in this folder that
            are not in ``content``.
        branch: The branch; None for main.
        create_pr: Open a pull request instead of committing to the branch.

    Raises:
        CollapseError: The commit failed.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    with clear_errors(f"{remote.name}: the commit failed", _AGAIN, bars=True):
        added = [CommitOperationAdd(path, what) for path, what in content.items()]
        old = [path for path in remote.listed() if path.startswith(replaced) and path not in content]
        made = HfApi().create_commit(
            remote.name,
            [*added, *map(CommitOperationDelete, old)],
            commit_message=message,
            revision=branch,
            create_pr=create_pr,
            parent_commit=remote.commit,
        )
    return None if made.oid == remote.commit else made


def move_tag(repo: str, tag: str) -> None:
    """Set a tag, new or existing, to the head of the main branch."""
    from huggingface_hub import HfApi, errors

    with clear_errors(f"{repo}: the tag {tag} cannot be set", _AGAIN):
        with suppress(errors.RevisionNotFoundError):
            HfApi().delete_tag(repo, tag=tag)
        HfApi().create_tag(repo, tag=tag)


def user_name() -> str:
    """Return the name of the user who is logged in to the Hub; raise UsageError if the Hub does not return one."""
    from huggingface_hub import HfApi

    try:
        return str(HfApi().whoami()["name"])
    except client_errors() as error:
        raise UsageError(
            "the Hub did not return your user name: run hf auth login, or give the repository as user/name"
        ) from error
