"""The Hugging Face Hub: the commit of a name, and single small files. Imports neither torch nor transformers."""

import logging
import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from json import JSONDecodeError
from pathlib import Path
from typing import Any, TypeVar

from collapse.errors import CollapseError, UsageError, first_line
from collapse.escaping import without_signatures
from collapse.hub.client import LONGEST_WAIT, RefusedAnswer, clear_errors, client_errors, guard_client
from collapse.scoped import no_bars, quiet
from collapse.stores.writing import ANOTHER_CACHE, is_full, raise_if_full, write_atomic

_COMMIT = re.compile(r"[0-9a-f]{40}")
_REPO = re.compile(r"(\b[\w.-]+\b/)?\b[\w.-]{1,96}\b")
_TIMEOUT, _CACHED_TIMEOUT = 10.0, 5.0  # seconds; the second where the cache can answer
_TRIES, _FEW_TRIES, _FIRST_WAIT = 6, 2, 0.5
_PATIENCE = 600.0  # seconds: no retry after this time, because the client's own waits do not count as tries
_TRANSIENT = (408, 409, 429, 500, 502, 503, 504)
_NOT_ASKED_AGAIN = 60.0  # seconds after it could not be reached
_unreachable: dict[str, tuple[float, str]] = {}  # endpoint → time of the failure, reason

log = logging.getLogger("collapse")
T = TypeVar("T")


def steadily(call: Callable[[], T], *, unanswered: int = _TRIES, unconnected: int = _TRIES) -> T:
    """Call the Hub, and retry if it is busy or the connection was lost: at most six tries with increasing pauses.

    The client itself retries only some of its requests. The call must be safe to repeat. Commits to a branch
    are: a commit names its parent, so one that arrived is not made twice. Those that open a pull request are not.

    Args:
        call: The function to call.
        unanswered: Largest number of tries without an answer.
        unconnected: Largest number of tries without a connection: then the machine probably has no network.
    """
    from huggingface_hub import errors

    guard_client()
    _scrub_client_log()
    final = (
        RefusedAnswer,
        errors.EntryNotFoundError,
        errors.RepositoryNotFoundError,
        errors.RevisionNotFoundError,
        errors.OfflineModeIsEnabled,
        errors.LocalTokenNotFoundError,
    )
    wait, began = _FIRST_WAIT, time.monotonic()
    for left in reversed(range(_TRIES)):
        try:
            return call()
        except final:
            raise
        except (errors.HfHubHTTPError, errors.HTTPError, OSError, RuntimeError, JSONDecodeError) as error:
            response = getattr(error, "response", None)
            tired = not left or time.monotonic() - began > _PATIENCE
            if tired or is_full(error) or (response is not None and response.status_code not in _TRANSIENT):
                raise
            # compare the name: depending on its version, the client uses httpx or httpx2
            most = unconnected if type(error).__name__ in ("ConnectError", "ConnectTimeout") else unanswered
            if isinstance(error, JSONDecodeError):  # an answer, probably of a network's login page
                most = min(most, _FEW_TRIES)
            if response is None and _TRIES - left >= most:
                raise
            asked = response.headers.get("Retry-After", "") if response is not None else ""
            pause = min(float(asked) if asked.replace(".", "", 1).isdigit() else wait, LONGEST_WAIT)
            told = logging.INFO if pause > _FIRST_WAIT else logging.DEBUG  # the first one is too short to be noticed
            log.log(told, "the Hub did not answer (%s); once more in %.1f s", first_line(error), pause)
            time.sleep(pause)
            wait *= 2
    raise AssertionError("unreachable")  # because the last try returns or raises


def _scrub_client_log() -> None:
    """Remove signatures from the addresses in the client's own log messages."""
    for handler in logging.getLogger("huggingface_hub").handlers:
        handler.addFilter(_without_signatures)  # no effect if it is already there


def _without_signatures(record: logging.LogRecord) -> bool:
    record.msg, record.args = without_signatures(record.getMessage()), ()
    return True


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

    sha = _cached_commit(repo, revision, repo_type)
    failed, unreachable = _unreachable.get(constants.ENDPOINT, (-_NOT_ASKED_AGAIN, ""))
    if constants.HF_HUB_OFFLINE:
        unreachable = "HF_HUB_OFFLINE=1 is set"
    elif patient or time.monotonic() - failed > _NOT_ASKED_AGAIN:
        timeout = _TIMEOUT if patient or sha is None else _CACHED_TIMEOUT
        try:
            info = steadily(
                lambda: HfApi().repo_info(repo, repo_type=repo_type, revision=revision, timeout=timeout),
                unanswered=_TRIES if patient or sha is None else _FEW_TRIES,
                unconnected=_TRIES if patient else _FEW_TRIES,
            )
            if info.sha:
                _remember_commit(repo, revision, info.sha, repo_type)
                return info.sha, True
            unreachable = "it names no commit"
        except errors.RevisionNotFoundError as error:
            raise UsageError(f"{repo_type} {repo} on the Hub has no revision {revision!r}") from error
        except errors.GatedRepoError as error:
            raise CollapseError(
                f"{repo_type} {repo} is gated: accept its conditions on its page, then: hf auth login"
            ) from error
        except errors.RepositoryNotFoundError as error:
            raise UsageError(
                f"the Hub has no {repo_type} {repo}, or you may not see it: "
                "check its name, or log in with: hf auth login"
            ) from error
        except client_errors() as error:
            unreachable = "its answer is not JSON" if isinstance(error, JSONDecodeError) else first_line(error)
            if getattr(error, "response", None) is None:
                _unreachable[constants.ENDPOINT] = time.monotonic(), unreachable
    if sha is None:
        raise CollapseError(
            f"{repo_type} {repo} is not available: the Hub cannot be reached ({unreachable}), and it is not cached. "
            f"{how_to_fetch(repo, revision, repo_type)}; or give local files"
            f"{'' if Path(repo).is_dir() else ': there is no such folder here'}"
        )
    if not constants.HF_HUB_OFFLINE:
        log.warning("the Hub cannot be reached (%s): using the cached copy of %s", unreachable, repo)
    return sha, False


def how_to_fetch(repo: str, revision: str | None, repo_type: str = "model") -> str:
    """Return the sentence that advises the command with which a repository is used offline."""
    kind = " --repo-type dataset" if repo_type == "dataset" else ""
    at = f" --revision {revision}" if revision else ""
    return f"Fetch it where there is a network with: hf download {repo}{kind}{at}"


def models_tagged(tag: str) -> list[Any]:
    """List the models of the Hub that have a tag, as ``huggingface_hub.ModelInfo`` with their cards.

    Raises:
        CollapseError: The Hub cannot be reached.
    """
    from huggingface_hub import HfApi, get_session

    api = HfApi()
    with clear_errors("the Hub cannot be searched"):
        # The client itself repeats the request of a page for half a minute: first see whether there is a network.
        address = f"{api.endpoint}/api/models"
        steadily(lambda: get_session().head(address, timeout=_TIMEOUT), unanswered=_FEW_TRIES, unconnected=1)
        with quiet("huggingface_hub"):  # it prints a line for each repeated request
            return steadily(lambda: list(api.list_models(filter=tag, cardData=True, full=True)), unconnected=1)


def _remember_commit(repo: str, revision: str | None, commit: str, repo_type: str) -> None:
    """Record the commit of a branch or tag in the client's cache, so that the name can be resolved offline."""
    if revision == commit or _COMMIT.fullmatch(commit) is None:
        return
    with suppress(CollapseError):  # an unwritable cache is not an error
        write_atomic(repo_cache(repo, repo_type) / "refs" / (revision or "main"), commit.encode(), shared=True)


def hub_cache() -> Path:
    """Return the folder of the client's cache."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


@contextmanager
def quiet_client() -> Iterator[None]:
    """Silence the client's progress bars and its low-disk warning; a full disk raises an error later."""
    guard_client()
    with no_bars("huggingface_hub"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Not enough free disk space")
        yield


def fetch_file(repo: str, name: str, commit: str, *, online: bool = True) -> Path | None:
    """Return one small file of a model's repository, or None if there is none; offline, if it is not cached.

    Raises:
        CollapseError: The Hub does not answer, so it is not known whether there is one; or the disk is full.
    """
    from huggingface_hub import errors, hf_hub_download

    failure: BaseException
    try:
        with clear_errors(f"{repo}: {name} cannot be downloaded"), quiet_client():
            try:
                return Path(steadily(lambda: hf_hub_download(repo, name, revision=commit, local_files_only=not online)))
            except errors.LocalEntryNotFoundError as error:
                if not online:
                    return None
                failure = error.__cause__ or error  # the client raises it for any failure, after tries of its own
            except errors.EntryNotFoundError:
                return None
            raise failure  # here, because the client's error as its context would make a circle
    except CollapseError as error:
        raise_if_full(error, hub_cache(), ANOTHER_CACHE)
        raise


def list_files(repo: str, commit: str, *, online: bool = True) -> list[str]:
    """Return the files of a model's repository; offline, only those in the client's cache.

    Raises:
        CollapseError: The Hub does not answer.
    """
    from huggingface_hub import HfApi

    if not online:
        snapshot = repo_cache(repo, "model") / "snapshots" / commit
        return [file.relative_to(snapshot).as_posix() for file in snapshot.rglob("*") if file.is_file()]
    with clear_errors(f"{repo}: its files cannot be listed"):
        return list(steadily(lambda: HfApi().list_repo_files(repo, revision=commit)))


def repo_cache(repo: str, repo_type: str = "model") -> Path:
    """Return the folder of a repository in the client's cache."""
    return hub_cache() / f"{repo_type}s--{repo.replace('/', '--')}"


def _cached_commit(repo: str, revision: str | None, repo_type: str) -> str | None:
    """Return the commit of a revision; None if the client's cache does not know it, or has no file of that commit."""
    cache = repo_cache(repo, repo_type)
    if revision and _COMMIT.fullmatch(revision):  # of which only the names of files may be needed
        return revision if cache.is_dir() else None
    with suppress(OSError, ValueError):  # missing, or half written by another program
        commit = (cache / "refs" / (revision or "main")).read_text().strip()
        return commit if _COMMIT.fullmatch(commit) and (cache / "snapshots" / commit).is_dir() else None
    return None
