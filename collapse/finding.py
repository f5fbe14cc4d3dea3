"""Which store on the Hub a name stands for, or is of the model that it names."""

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from collapse.errors import CollapseError, UsageError, first_line
from collapse.hub import is_repo_id, steadily
from collapse.remote import FOLDER, Remote, reach, split_name
from collapse.store import Store

log = logging.getLogger("collapse")

_MOST_REPOSITORIES = 20


def open_store(name: str) -> Store:
    """The store that a name on the Hub stands for: a repository with one store, or a store's folder in it.

    Raises:
        UsageError: It names no repository; or the repository has no store, or several and the name does not say which.
        StoreError: The store is not whole.
        CollapseError: It cannot be had.
    """
    repo, folder = split_name(name)
    if not is_repo_id(repo.partition("@")[0]) or "/" not in repo:
        raise UsageError(f"there is no store {name}: give a folder, or user/repo on the Hub")
    remote = reach(repo)
    stores = remote.stores()
    matching = [each for each in stores if folder in ("", each, each.removeprefix(f"{FOLDER}/"))]
    if len(matching) == 1:
        return remote.open(matching[0])
    listed = ", ".join(f"{remote.repo}/{each}" for each in stores)
    if not matching:
        raise UsageError(
            f"{remote.repo} has no store{f' {folder}' if folder else ''}{f'; it has {listed}' if stores else ''}"
        )
    raise UsageError(f"{remote.repo} has several stores: name one of {listed}")


def find_store(
    name: str,
    *,
    corpus: Mapping[str, Any] | None = None,
    validation: Mapping[str, Any] | None = None,
    chunk_length: int | None = None,
    max_chunks: int | None = None,
    at: str | None = None,
) -> Store | None:
    """The store that a name on the Hub stands for, or that is published of the model it names; or None.

    A model's store lies in its own repository, or in one that is tagged ``collapse`` and whose card names the model as
    its ``base_model``: of these the model's owner's come first.

    Args:
        name: ``user/repo``, ``user/repo/folder``, with ``@revision`` if need be.
        corpus, validation: Identities of the texts wanted of a model's stores; None for any.
        chunk_length, max_chunks: Wanted; None for any, whole texts before shares of them.
        at: The repository, or folder of one, to look in, and in no other; None is returned where it has no stores.

    Raises:
        UsageError: The name is of a repository of stores, and does not say which; or ``at`` has no store of the model.
        StoreError: A store is there, but not whole.
    """
    repo, folder = split_name(name)
    if not is_repo_id(repo.partition("@")[0]) or "/" not in repo:
        return None
    if folder:
        return open_store(name)
    try:
        model = reach(repo)
    except CollapseError:
        return None  # it will be looked for as a model, and told then
    if model.online and "config.json" not in model.files and model.stores():
        return open_store(name)

    def fits(store: Store) -> bool:
        identity = store.identity
        return (
            corpus in (None, identity.get("corpus"))
            and validation in (None, identity.get("validation"))
            and chunk_length in (None, identity.get("chunk_length"))
            and max_chunks in (None, identity.get("max_chunks"))
            and _same_weights(model, str(identity.get("weights")))
        )

    if at is not None:
        return _pointed_at(at, name, fits)
    own = [store for store in map(model.open, model.stores()) if fits(store)]
    found = own or next(filter(None, ([s for s in _readable(each) if fits(s)] for each in _naming(model))), [])
    return min(found, key=lambda store: store.identity.get("max_chunks") is not None, default=None)


def _pointed_at(at: str, name: str, fits: Callable[[Store], bool]) -> Store | None:
    repo, folder = split_name(at)
    try:
        remote = reach(repo)
    except CollapseError:
        return None
    folders = [each for each in remote.stores() if folder in ("", each, each.removeprefix(f"{FOLDER}/"))]
    stores = [remote.open(each) for each in folders]
    if not stores:
        return None
    found = [store for store in stores if fits(store)]
    if not found:
        held = "; ".join(f"{store} of {store.model} on {store.corpus}" for store in stores)
        raise UsageError(f"{at} has no store of these weights of {name}, on this text and chunk length; it has {held}")
    return min(found, key=lambda store: store.identity.get("max_chunks") is not None)


def _naming(model: Remote) -> Iterator[Remote]:
    """Repositories of stores whose card names a model; the same owner's first."""
    from huggingface_hub import HfApi, errors

    if not model.online:
        return
    tags = ["collapse", f"base_model:{model.repo}"]
    try:
        hits = [each.id for each in steadily(lambda: list(HfApi().list_models(filter=tags, limit=_MOST_REPOSITORIES)))]
    except (errors.HfHubHTTPError, errors.HTTPError, OSError, RuntimeError, ValueError) as error:
        log.info("published stores of %s could not be searched for: %s", model.repo, first_line(error))
        return
    owner = model.repo.split("/")[0]
    for repo in sorted(set(hits) - {model.repo}, key=lambda hit: (hit.split("/")[0] != owner, hit)):
        with suppress(CollapseError):
            yield reach(repo)


def _readable(remote: Remote) -> Iterator[Store]:
    """The stores of a repository that nobody asked for by name: one that cannot be read is passed over."""
    for folder in remote.stores():
        try:
            yield remote.open(folder)
        except CollapseError as error:
            log.info("%s", error)


def _same_weights(remote: Remote, weights: str) -> bool:
    """Whether a store's weights are those of the repository at this commit."""
    if weights == f"commit:{remote.commit}" or not remote.online:
        return True
    if weights.startswith("commit:"):  # the store's own commit came after the one that it was collected from
        try:
            before = reach(f"{remote.repo}@{weights.removeprefix('commit:')}")
        except CollapseError:
            return False
        return _model_files(before) == _model_files(remote)
    return weights == remote.weights()


def _model_files(remote: Remote) -> dict[str, str]:
    kept = re.compile(r"[^/]+\.(safetensors|bin)|config\.json")
    return {path: identifier for path, (_, identifier) in remote.files.items() if kept.fullmatch(path)}
