"""Requests to the Hugging Face Hub: names of repositories, retries, clear errors, and the commit of a name.

The Hub is trusted transport: the client downloads, caches and commits. What is read of a store is checked against the
sha256 of its manifest. Imports neither torch nor transformers.
"""

import logging
import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from json import JSONDecodeError
from pathlib import Path
from typing import Any, TypeVar

from collapse.core.settings import quiet
from collapse.errors import CollapseError, UsageError, first_line
from collapse.stores.writing import ANOTHER_CACHE, is_full, raise_if_full, write_atomic

_COMMIT = re.compile(r"[0-9a-f]{40}")
_REPO = re.compile(r"(\b[\w.-]+\b/)?\b[\w.-]{1,96}\b")
_TIMEOUT, _CACHED_TIMEOUT = 10.0, 5.0  # seconds; the second where the cache can answer
TRIES, _CACHED_TRIES, _FIRST_WAIT = 4, 2, 0.5
_TRANSIENT = (408, 429, 500, 502, 503, 504)
_NOT_ASKED_AGAIN = 60.0  # seconds after it could not be reached
_unreachable: dict[str, tuple[float, str]] = {}  # endpoint → time of the failure, reason

log = logging.getLogger("collapse")
T = TypeVar("T")


def split_revision(name: str) -> tuple[str, str | None]:
    """Split a name into the repo id and the revision after the @, if any.

    >>> split_revision("user/model@main")
    ('user/model', 'main')
    """
    repo, _, revision = name.partition("@")
    return repo, revision or None


def at_revision(name: str, revision: str | None) -> str:
    """Combine a name on the Hub with a separate revision.

    Raises:
        UsageError: The name already has another revision.

    >>> at_revision("user/model", "v1"), at_revision("user/model@v1", None)
    ('user/model@v1', 'user/model@v1')
    """
    repo, own = split_revision(name)
    if own and revision and own != revision:
        raise UsageError(f"{name} and --revision {revision} name two revisions: give one of them")
    return f"{repo}@{revision or own}" if revision or own else repo


def is_repo_id(name: str) -> bool:
    """Whether a name could be a repository on the Hub.

    >>> is_repo_id("roneneldan/TinyStories"), is_repo_id("./a"), is_repo_id("a/b/c"), is_repo_id("runs/exp--1")
    (True, False, False, False)
    """
    # the client's rules: it raises an error for other names
    return bool(_REPO.fullmatch(name)) and not ("--" in name or ".." in name or name.endswith(".git"))


def client_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of a request that fails, or whose answer is not the Hub's."""
    from huggingface_hub import errors

    return errors.HfHubHTTPError, errors.HTTPError, OSError, RuntimeError, ValueError, LookupError, TypeError


def cause_of(error: BaseException) -> BaseException:
    """Return the failed request's own exception, which the client hides behind "check your connection"."""
    from huggingface_hub import errors

    hides = isinstance(error, errors.LocalEntryNotFoundError | RuntimeError)
    return error.__cause__ if hides and error.__cause__ else error


@contextmanager
def clear_errors(what: str, advice: str = "") -> Iterator[None]:
    """Convert the client's exceptions into a CollapseError that says what failed and why, and how to log in."""
    from huggingface_hub import errors

    try:
        yield
    except client_errors() as error:
        raise_if_full(error, hub_cache(), ANOTHER_CACHE)
        cause = cause_of(error)
        status = getattr(getattr(cause, "response", None), "status_code", 0)
        login = " (log in with: hf auth login)" if status in (401, 403) else ""
        if isinstance(cause, errors.GatedRepoError):
            login = " (it is gated: accept the conditions on its page, then: hf auth login)"
        raise CollapseError(f"{what}: {first_line(cause)}{login}{advice}") from error


def steadily(call: Callable[[], T], *, tries: int = TRIES) -> T:
    """Call the Hub, and retry if it is busy or the connection was lost; the client retries only some of its requests.

    The call must be safe to repeat. Commits to a branch are: a commit names its parent, so one that arrived is not made
    twice. Those that open a pull request are not.
    """
    wait = _FIRST_WAIT
    for left in reversed(range(tries)):
        try:
            return call()
        except client_errors() as error:
            if not left or not _may_pass(cause_of(error)):
                raise
            log.debug("the Hub did not answer (%s); once more in %.1f s", first_line(cause_of(error)), wait)
            time.sleep(wait)
            wait *= 2
    raise AssertionError("unreachable")  # because the last try returns or raises


def _may_pass(error: BaseException) -> bool:
    """Whether the failure of a request may be over soon: the Hub was busy, or the connection was lost."""
    from huggingface_hub import errors

    response = getattr(error, "response", None)
    if response is not None:
        return response.status_code in _TRANSIENT
    if isinstance(error, JSONDecodeError):  # an error page of something in between
        return True
    lost = isinstance(error, errors.HTTPError | ConnectionError) and not isinstance(error, errors.OfflineModeIsEnabled)
    return (lost or type(error) is OSError) and not is_full(error)  # a download of the wrong length is a plain OSError


@contextmanager
def quiet_client() -> Iterator[None]:
    """Silence the client's progress bars and its low-disk warning; a full disk raises an error later."""
    with quiet("huggingface_hub"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Not enough free disk space")
        yield


def resolve_commit(
    repo: str, revision: str | None, repo_type: str = "model", *, patient: bool = False
) -> tuple[str, bool]:
    """Return the current commit of a repository's revision, from the Hub or, if it cannot be reached, the cache.

    Args:
        repo: The repo id.
        revision: Branch, tag or commit; None for main.
        repo_type: "model" or "dataset".
        patient: Use all tries even if the repository is cached.

    Returns:
        The sha, and whether it came from the Hub (else only cached files are available).

    Raises:
        UsageError: The Hub has no such repository or revision.
        CollapseError: The Hub cannot be reached, and nothing is cached.
    """
    from huggingface_hub import HfApi, constants, errors

    cached = _cached_commit(repo, revision, repo_type)
    waits = patient or cached is None
    failed, reason = _unreachable.get(constants.ENDPOINT, (-_NOT_ASKED_AGAIN, ""))
    if constants.HF_HUB_OFFLINE:
        reason = "HF_HUB_OFFLINE=1 is set"
    elif patient or time.monotonic() - failed > _NOT_ASKED_AGAIN:
        timeout = _TIMEOUT if waits else _CACHED_TIMEOUT
        try:
            info = steadily(
                lambda: HfApi().repo_info(repo, repo_type=repo_type, revision=revision, timeout=timeout),
                tries=TRIES if waits else _CACHED_TRIES,
            )
            _remember_commit(repo, revision, str(info.sha), repo_type)
            return str(info.sha), True
        except errors.RevisionNotFoundError as error:
            raise UsageError(f"{repo_type} {repo} on the Hub has no revision {revision!r}") from error
        except errors.RepositoryNotFoundError as error:
            raise UsageError(
                f"the Hub has no {repo_type} {repo}, or you have no access to it: "
                "check its name, or log in with: hf auth login"
            ) from error
        except client_errors() as error:
            reason = first_line(error)
            if getattr(error, "response", None) is None:
                _unreachable[constants.ENDPOINT] = time.monotonic(), reason
    if cached is None:
        raise CollapseError(
            f"{repo_type} {repo} is not available: the Hub cannot be reached ({reason}), and it is not cached. "
            f"{how_to_fetch(repo, revision, repo_type)}; or give local files"
            f"{'' if Path(repo).is_dir() else ': there is no such folder here'}"
        )
    if not constants.HF_HUB_OFFLINE:
        log.warning("the Hub cannot be reached (%s): using the cached copy of %s", reason, repo)
    return cached, False


def how_to_fetch(repo: str, revision: str | None, repo_type: str = "model") -> str:
    """Return the sentence that advises the command with which a repository is used offline."""
    kind = " --repo-type dataset" if repo_type == "dataset" else ""
    at = f" --revision {revision}" if revision else ""
    return f"Fetch it where there is a network with: hf download {repo}{kind}{at}"


def models_tagged(*tags: str, limit: int | None = None) -> list[Any]:
    """List the models of the Hub that have all of some tags, as ``huggingface_hub.ModelInfo`` with their cards.

    Raises:
        CollapseError: The Hub cannot be reached.
    """
    from huggingface_hub import HfApi, get_session

    api = HfApi()
    with clear_errors("the Hub cannot be searched"), quiet("huggingface_hub"):
        # the client itself asks for half a minute: first see whether there is a network
        steadily(lambda: get_session().head(f"{api.endpoint}/api/models", timeout=_TIMEOUT), tries=_CACHED_TRIES)
        return steadily(lambda: list(api.list_models(filter=[*tags], cardData=True, full=True, limit=limit)), tries=1)


def hub_cache() -> Path:
    """Return the folder of the client's cache."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def repo_cache(repo: str, repo_type: str = "model") -> Path:
    """Return the folder of a repository in the client's cache."""
    return hub_cache() / f"{repo_type}s--{repo.replace('/', '--')}"


def _remember_commit(repo: str, revision: str | None, commit: str, repo_type: str) -> None:
    """Record the commit of a branch or tag in the client's cache, so that the name can be resolved offline."""
    if revision == commit:
        return
    with suppress(CollapseError):  # an unwritable cache is not an error
        write_atomic(repo_cache(repo, repo_type) / "refs" / (revision or "main"), commit.encode(), shared=True)


def _cached_commit(repo: str, revision: str | None, repo_type: str) -> str | None:
    """Return the commit of a revision; None if the client's cache does not know it, or has no file of that commit."""
    cache = repo_cache(repo, repo_type)
    if revision and _COMMIT.fullmatch(revision):  # of which only the names of files may be needed
        return revision if cache.is_dir() else None
    with suppress(OSError):
        commit = (cache / "refs" / (revision or "main")).read_text().strip()
        return commit if (cache / "snapshots" / commit).is_dir() else None
    return None
