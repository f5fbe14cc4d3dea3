"""Names of repositories on the Hugging Face Hub, and clear errors for failed requests.

The client is the library huggingface_hub, which downloads, retries, caches and commits. collapse checks the sha256 of a
downloaded file only if the file belongs to a store. This module imports neither torch nor transformers.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from collapse.core.settings import quiet
from collapse.errors import CollapseError, UsageError, first_line
from collapse.stores.writing import raise_if_full

_REPO = re.compile(r"(\b[\w.-]+\b/)?\b[\w.-]{1,96}\b")


def split_revision(name: str) -> tuple[str, str | None]:
    """Split a name into the repo id and the revision after the @, or None.

    >>> split_revision("user/model@main")
    ('user/model', 'main')
    """
    repo, _, revision = name.partition("@")
    return repo, revision or None


def split_name(name: str) -> tuple[str, str]:
    """Split ``user/repo/sub/folder@revision`` into (``user/repo@revision``, ``sub/folder``).

    >>> split_name("user/repo/collapse/a-T128@main")
    ('user/repo@main', 'collapse/a-T128')
    """
    path, revision = split_revision(name)
    parts = path.split("/")
    return "/".join(parts[:2]) + (f"@{revision}" if revision else ""), "/".join(parts[2:])


def at_revision(name: str, revision: str | None) -> str:
    """Combine a name on the Hub with a separate revision.

    Raises:
        UsageError: The name already has another revision.

    >>> at_revision("user/model", "v1"), at_revision("user/model@v1", None)
    ('user/model@v1', 'user/model@v1')
    """
    repo, own = split_revision(name)
    if own and revision and own != revision:
        raise UsageError(
            f"two revisions are given, {own} (in {name}) and {revision} (--revision or --revisions): give only one"
        )
    return f"{repo}@{revision or own}" if revision or own else repo


def is_repo_id(name: str) -> bool:
    """Whether a text can be the name of a repository on the Hub.

    >>> is_repo_id("roneneldan/TinyStories"), is_repo_id("./a"), is_repo_id("a/b/c"), is_repo_id("runs/exp--1")
    (True, False, False, False)
    """
    # the client raises an error for names that break these rules
    return bool(_REPO.fullmatch(name)) and not ("--" in name or ".." in name or name.endswith(".git"))


def client_errors() -> tuple[type[Exception], ...]:
    """Return the classes of exceptions that a failed request can raise."""
    from huggingface_hub import errors

    return errors.HTTPError, OSError, RuntimeError, ValueError


@contextmanager
def clear_errors(what: str, advice: str = "", *, bars: bool = False) -> Iterator[None]:
    """Convert the client's exceptions into a CollapseError that says what failed, why, and how to log in if needed.

    The client's warnings are suppressed, because they contain signed URLs.

    Args:
        what: The beginning of the message, such as "user/repo: the commit failed".
        advice: The end of the message.
        bars: Show the client's progress bars if stderr is a terminal.
    """
    from huggingface_hub import errors

    with quiet("huggingface_hub", bars=bars):
        try:
            yield
        except client_errors() as error:
            raise_if_full(error, hub_cache())
            # the messages of these two exceptions only say "check your connection"; the reason is in their __cause__
            hidden = isinstance(error, errors.LocalEntryNotFoundError | RuntimeError)
            cause = error.__cause__ if hidden and error.__cause__ else error
            login = ""
            if isinstance(cause, errors.GatedRepoError):
                login = " (it is gated: accept the conditions on its page, then: hf auth login)"
            elif getattr(getattr(cause, "response", None), "status_code", 0) in (401, 403):
                login = " (log in as a user with access: hf auth login)"
            raise CollapseError(f"{what}: {first_line(cause).rstrip('.')}{login}{advice}") from error


def how_to_fetch(repo: str, revision: str | None, kind: str = "model") -> str:
    """Return a sentence with the command that downloads a repository for use offline."""
    option = " --repo-type dataset" if kind == "dataset" else ""
    at = f" --revision {revision}" if revision else ""
    return f"Download it where there is a network: hf download {repo}{option}{at}"


def models_tagged(*tags: str) -> list[Any]:
    """List the models on the Hub that have all these tags, as ``huggingface_hub.ModelInfo`` with their cards.

    Raises:
        CollapseError: The Hub cannot be reached.
    """
    from huggingface_hub import HfApi

    with clear_errors("the Hub cannot be searched"):
        return list(HfApi().list_models(filter=[*tags], cardData=True, full=True))


def hub_cache() -> Path:
    """Return the folder of the client's cache."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)
