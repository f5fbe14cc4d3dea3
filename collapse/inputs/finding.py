"""Find a published store that makes collecting a model unnecessary.

A published store is used only if its whole identity equals that of the requested collection, and only from a place that
the user already trusts: the model's own repository, or one that the user names.
"""

import logging

from collapse.errors import CollapseError, UsageError, counted
from collapse.hub.opening import in_folder
from collapse.hub.remote import Remote, reach
from collapse.hub.requests import is_repo_id, models_tagged, split_name
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.text_request import TextRequest, text_request
from collapse.stores.store import Store

log = logging.getLogger("collapse")

_MOST_REPOSITORIES = 20


def find_store(model: str, spec: CollectionSpec) -> Store | None:
    """Find the store in a model's own repository that makes collecting it unnecessary.

    Other repositories are only reported; :func:`find_store_at` uses one that the user names.

    Args:
        model: ``user/repo``, optionally with ``@revision``; None is returned for a folder.
        spec: The requested options. If the text, chunk length or a number of chunks is not given, a published store may
            have any; stores of whole texts are preferred.
    """
    try:
        request = text_request(model, spec, leave_open=True)
        remote = request.model.files
    except CollapseError:
        return None  # collecting reports the error
    if not isinstance(remote, Remote):
        return None
    fitting = []
    for folder in remote.stores():
        try:
            store = remote.open(folder)
        except CollapseError as error:
            log.warning("%s: it is not used", error)
            continue
        if differ := _differences(request, store):
            log.info("%s is not what was asked for, it differs in %s (there and asked)", store, "; ".join(differ))
        else:
            fitting.append(store)
    if not fitting:
        _report_others(remote)
    return _chosen(fitting, request) if fitting else None


def find_store_at(place: str, model: str, spec: CollectionSpec) -> Store | None:
    """Find a model's store in a repository, or folder of one, that the user names; None if it has no stores.

    Raises:
        UsageError: None of its stores matches the request; the message lists them.
        StoreError: A store in the repository is incomplete.
        CollapseError: The Hub cannot be reached.
    """
    repo, folder = split_name(place)
    try:
        remote = reach(repo)
    except UsageError:
        return None  # it may be a new local folder
    stores = [remote.open(each) for each in in_folder(remote.stores(), folder)]
    if not stores:
        return None
    request = text_request(model, spec, leave_open=True)
    differ = [_differences(request, store) for store in stores]
    fitting = [store for store, each in zip(stores, differ, strict=True) if not each]
    if fitting:
        return _chosen(fitting, request)
    held = "; ".join(
        f"{store} of {store.model} on {store.corpus} differs in {', '.join(each)}"
        for store, each in zip(stores, differ, strict=True)
    )
    raise UsageError(f"{place} has no store of {model} as it was asked for (there and asked): {held}")


def _differences(request: TextRequest, store: Store) -> list[str]:
    """Describe how a store differs from a request, apart from fields that the user left open."""
    found = request.differences(store.identity) + request.statistics_in(store)
    if store.state == "trained" and store.identity.get("validation") is not None:
        found.append(f"it is not complete ({store.state})")
    return found


def _chosen(stores: list[Store], request: TextRequest) -> Store:
    """Return the preferred store: whole texts before shares of them, then the longest chunks."""

    def order(store: Store) -> tuple[bool, bool, int, str]:
        shares = [store.identity.get(name) is not None for name in ("max_chunks", "max_validation_chunks")]
        return shares[0], shares[1], -int(store.identity.get("chunk_length") or 0), str(store)

    store = min(stores, key=order)
    share, validated = store.identity.get("max_chunks"), store.identity.get("max_validation_chunks")
    what = f"{store.identity.get('chunk_length')} tokens a chunk, "
    what += counted(share, "chunk") if share else "the whole text"
    what += f", validated on {counted(validated, 'chunk')}" if validated else ""
    message = "%s: measuring the published store %s, on %s, %s (--recollect collects)"
    log.warning(message, request.model.name, store, store.corpus, what)
    return store.called({kind: name for kind, name in request.names.items() if kind not in request.open})


def _report_others(model: Remote) -> None:
    """Report other repositories that claim to hold stores of a model. Nothing is fetched from them."""
    if not model.online:
        return
    try:
        hits = models_tagged("collapse", f"base_model:{model.repo}", limit=_MOST_REPOSITORIES)
    except CollapseError as error:
        log.info("%s", error)
        return
    others = sorted({each.id for each in hits if is_repo_id(each.id)} - {model.repo})
    if others:
        log.warning(
            "other repositories say that they hold stores of %s; they are used only where you name one: %s",
            model.repo,
            ", ".join(f"--store {each}" for each in others),
        )
