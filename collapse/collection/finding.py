"""Find a published or cached store that makes collecting a model unnecessary.

A published store is used only if its whole identity equals that of the requested collection, and only from a place that
the user already trusts: the model's own repository, or one that the user names.
"""

import logging
from dataclasses import replace

from collapse.collection.planning import plan_collection
from collapse.core.paths import expanded
from collapse.errors import CollapseError, UsageError, counted
from collapse.hub.opening import in_folder, names_repo
from collapse.hub.remote import Remote, reach
from collapse.hub.requests import is_repo_id, models_tagged, split_name
from collapse.inputs.collection_spec import CollectionSpec
from collapse.stores.manifest import KNOWN_LATER, OF_VALIDATION, differences, is_store
from collapse.stores.store import Store

log = logging.getLogger("collapse")

_MOST_REPOSITORIES = 20


class Wanted:
    """A requested collection, as far as the user specified it, for comparison with existing stores.

    Attributes:
        name: The model's name.
        plan: The collection; a text or chunk length that the user left open has a placeholder.
        is_planned: Whether the plan is complete, so that the collection could run.
        open: Fields of the identity that the user left open.
    """

    def __init__(self, name: str, spec: CollectionSpec) -> None:
        self.name = name
        any_text = spec.text is None and spec.split in (None, "train") and spec.text_column == "text"
        try:
            self.plan, self.is_planned = plan_collection(name, spec), True
        except CollapseError:
            # placeholders: a published store may supply the missing text or length
            there = {"corpus": {"any": True}} if any_text else None
            shortest = replace(spec, chunk_length=spec.chunk_length or 2)
            self.plan, self.is_planned = plan_collection(name, shortest, there=there), False
        any_validation = not (spec.validation_text or spec.validation_split) and (
            any_text or self.plan.texts.validation is None
        )
        self.open = frozenset(
            field
            for field, is_open in (
                ("corpus", any_text),
                ("validation", any_validation),
                ("chunk_length", spec.chunk_length is None),
                ("max_chunks", spec.max_chunks is None),
                ("max_validation_chunks", spec.max_chunks is None and spec.max_validation_chunks is None),
            )
            if is_open
        )

    def differences(self, store: Store) -> list[str]:
        """Describe how a store differs from the request, apart from fields that the user left open."""
        left_out = KNOWN_LATER | self.open
        name = store.manifest["corpus"].get("validation")
        if name is None and not self.plan.texts.wanted_beside(name):
            left_out |= OF_VALIDATION
        found = differences(store.identity, self.plan.identity, apart=left_out)
        statistics = store.manifest["statistics"]
        found += [f"statistics: it holds {name}" for name in self.plan.spec.without if name in statistics]
        if store.state == "trained" and store.identity.get("validation") is not None:
            found.append(f"it is not complete ({store.state})")
        return found


def find_store(model: str, spec: CollectionSpec) -> Store | None:
    """Find the store in a model's own repository that makes collecting it unnecessary, unless the user's cache has one.

    Other repositories are only reported; :func:`find_store_at` uses one that the user names.

    Args:
        model: ``user/repo``, optionally with ``@revision``; None is returned for a folder.
        spec: The requested options. If the text, chunk length or a number of chunks is not given, a published store may
            have any; stores of whole texts are preferred.
    """
    if expanded(model).exists() or not names_repo(model):
        return None
    try:
        wanted = Wanted(model, spec)
        remote = wanted.plan.model.files
    except CollapseError:
        return None  # collecting reports the error
    if not isinstance(remote, Remote) or (wanted.is_planned and is_store(wanted.plan.cached)):
        return None  # collecting opens what is cached
    fitting = [each for each in _opened(remote) if not _unlike(each, wanted)]
    if fitting:
        return _chosen(fitting, wanted)
    _report_others(remote)
    return None


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
    wanted = Wanted(model, spec)
    differ = [wanted.differences(store) for store in stores]
    fitting = [store for store, each in zip(stores, differ, strict=True) if not each]
    if fitting:
        return _chosen(fitting, wanted)
    held = "; ".join(
        f"{store} of {store.model} on {store.corpus} differs in {', '.join(each)}"
        for store, each in zip(stores, differ, strict=True)
    )
    raise UsageError(f"{place} has no store of {model} as it was asked for (there and asked): {held}")


def _opened(remote: Remote) -> list[Store]:
    """Return the stores of a model's repository; a damaged one is reported and skipped."""
    found = []
    for folder in remote.stores():
        try:
            found.append(remote.open(folder))
        except CollapseError as error:
            log.warning("%s: it is not used", error)
    return found


def _unlike(store: Store, wanted: Wanted) -> list[str]:
    differ = wanted.differences(store)
    if differ:
        log.info("%s is not what was asked for, it differs in %s (there and asked)", store, "; ".join(differ))
    return differ


def _chosen(stores: list[Store], wanted: Wanted) -> Store:
    """Return the preferred store: whole texts before shares of them, then the longest chunks."""

    def order(store: Store) -> tuple[bool, bool, int, str]:
        shares = [store.identity.get(name) is not None for name in ("max_chunks", "max_validation_chunks")]
        return shares[0], shares[1], -int(store.identity.get("chunk_length") or 0), str(store)

    store = min(stores, key=order)
    share, validated = store.identity.get("max_chunks"), store.identity.get("max_validation_chunks")
    what = (
        f"{store.identity.get('chunk_length')} tokens a chunk, {counted(share, 'chunk') if share else 'the whole text'}"
    ) + (f", validated on {counted(validated, 'chunk')}" if validated else "")
    log.warning(
        "%s: measuring the published store %s, on %s, %s (--recollect collects)",
        wanted.name,
        store,
        store.corpus,
        what,
    )
    return store.called({kind: name for kind, name in wanted.plan.names.items() if kind not in wanted.open})


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
