"""The Hugging Face Hub: which commit a name stands for, and single small files. Light: no torch, no transformers."""

import re
from contextlib import suppress
from pathlib import Path

from collapse.errors import CollapseError, UsageError

_COMMIT = re.compile(r"[0-9a-f]{40}")
_REPO = re.compile(r"[\w.-]+(/[\w.-]+)?")
_TIMEOUT = 10.0


def split_revision(name: str) -> tuple[str, str | None]:
    """A repo id and the revision behind its @, if any.

    >>> split_revision("user/model@main")
    ('user/model', 'main')
    """
    repo, _, revision = name.partition("@")
    return repo, revision or None


def is_repo_id(name: str) -> bool:
    """Whether a name could be a repository on the Hub.

    >>> is_repo_id("roneneldan/TinyStories"), is_repo_id("./a"), is_repo_id("a/b/c")
    (True, False, False)
    """
    return bool(_REPO.fullmatch(name)) and not name.startswith(".")


def resolve_commit(repo: str, revision: str | None, repo_type: str = "model") -> tuple[str, bool]:
    """The commit that a revision of a repository is now, from the Hub or, where it cannot be reached, its cache.

    Returns:
        The sha, and whether it came from the Hub (else only cached files can be had).

    Raises:
        UsageError: The Hub has no such repository or revision.
        CollapseError: The Hub cannot be reached, and nothing is cached.
    """
    from huggingface_hub import HfApi, constants, errors

    unreachable = "HF_HUB_OFFLINE=1 is set"
    if not constants.HF_HUB_OFFLINE:
        try:
            info = HfApi().repo_info(repo, repo_type=repo_type, revision=revision, timeout=_TIMEOUT)
            if info.sha:
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
        except (errors.HTTPError, errors.HfHubHTTPError, OSError, RuntimeError) as error:
            unreachable = str(error).strip().split("\n")[0] or type(error).__name__
    sha = revision if revision and _COMMIT.fullmatch(revision) else _cached_commit(repo, revision, repo_type)
    if sha is None or not _repo_cache(repo, repo_type).is_dir():
        raise CollapseError(
            f"{repo_type} {repo} cannot be had: the Hub was not reached ({unreachable}), and nothing of it is cached. "
            f"Fetch it where there is a network with: hf download {repo}"
            f"{' --repo-type dataset' if repo_type == 'dataset' else ''}; or give local files"
        )
    return sha, False


def fetch_file(repo: str, name: str, commit: str, *, repo_type: str = "model", online: bool = True) -> Path | None:
    """One small file of a repository, or None where it has none or cannot be had."""
    from huggingface_hub import errors, hf_hub_download

    with suppress(errors.HTTPError, errors.HfHubHTTPError, errors.EntryNotFoundError, OSError, RuntimeError):
        return Path(hf_hub_download(repo, name, repo_type=repo_type, revision=commit, local_files_only=not online))
    return None


def _repo_cache(repo: str, repo_type: str) -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE) / f"{repo_type}s--{repo.replace('/', '--')}"


def _cached_commit(repo: str, revision: str | None, repo_type: str) -> str | None:
    ref = _repo_cache(repo, repo_type) / "refs" / (revision or "main")
    return ref.read_text().strip() if ref.is_file() else None
