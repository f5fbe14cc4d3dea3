"""Find a published or cached store that makes collecting a model unnecessary.

A published store is used only if its whole identity equals that of the requested collection, and only from a place that
the user already trusts: the model's own repository, or one that the user names.
"""

import logging
from dataclasses import replace

from collapse.collection.planning import by_content, plan_collection
from collapse.errors import CollapseError, UsageError, counted, first_line
from collapse.hub.client import client_errors
from collapse.hub.opening import in_folder, names_repo
from collapse.hub.remote import Remote, reach, split_name
from collapse.hub.requests import at_revision, is_repo_id, steadily
from collapse.hub.sameness import Comparison
from collapse.inputs.collection_spec import CollectionSpec
from collapse.paths import expanded
from collapse.stores.files import home
from collapse.stores.manifest import KNOWN_LATER, OF_VALIDATION, differences, is_store
from collapse.stores.store import Store

log = logging.getLogger("collapse")

_BY_FILES = frozenset({"weights", "tokenizer"})
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

    def differences(self, store: Store, comparison: Comparison, *, exactly: bool = False) -> list[str]:
        """Describe how a store differs from the request; ``exactly`` also compares fields that the user left open.

        Raises:
            CollapseError: Comparing the weights and tokenizer needs the Hub, which cannot be reached.
        """
        held, asked = store.identity, self.plan.identity
        left_out = KNOWN_LATER | _BY_FILES | (frozenset() if exactly else self.open)
        if str(held.get("weights")).startswith("sha256:"):  # of files on some machine
            held, asked = by_content(held), by_content(asked)
        name = store.manifest["corpus"].get("validation")
        if name is None and not self.plan.texts.wanted_beside(name):
            left_out |= OF_VALIDATION
        found = differences(held, asked, apart=left_out)
        statistics = store.manifest["statistics"]
        found += [f"statistics: it holds {name}" for name in self.plan.spec.without if name in statistics]
        if store.state == "part" or (store.state == "trained" and held.get("validation") is not None):
            found.append(f"it is not complete ({store.state})")
        return found or comparison.differences(held)


def find_store(model: str, spec: CollectionSpec) -> Store | None:
    """Find the store that makes collecting a model unnecessary: in the user's cache, else in the model's repository.

    The order follows from trust: what the user collected comes before anything remote, then comes the model's own
    repository. Other repositories are only reported; :func:`find_store_at` uses one that the user names.

    Args:
        model: ``user/repo``, optionally with ``@revision``; None is returned for a folder.
        spec: The requested options. If the text, chunk length or a number of chunks is not given, a published store may
            have any; stores of whole texts are preferred.
    """
    if expanded(model).exists() or not names_repo(model):
        return None
    try:
        wanted, remote = Wanted(model, spec), reach(at_revision(model, spec.revision))
    except CollapseError:
        return None  # collecting reports the error
    if wanted.is_planned and is_store(wanted.plan.cached):
        return None  # collecting opens the store, and resumes it if it is unfinished
    comparison = Comparison(remote, wanted.plan.identity)
    found = _cached(wanted, comparison)
    if found is not None:
        log.warning("%s: measuring the store %s in the cache, of the same files at an earlier commit", model, found)
        return found
    fitting = [each for each in _opened(remote) if _fits(each, wanted, comparison)]
    if fitting:
        return _chosen(fitting, wanted)
    _report_others(remote)
    return None


def find_store_at(place: str, model: str, spec: CollectionSpec) -> Store | None:
    """Find a model's store in a repository, or folder of one, that the user names; None if it has no stores.

    Raises:
        UsageError: None of its stores matches the request; the message lists them.
        StoreError: A store in the repository is incomplete.
        CollapseError: Comparing the weights needs the Hub, which cannot be reached.
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
    comparison = Comparison(reach(at_revision(model, spec.revision)), wanted.plan.identity)
    differ = [wanted.differences(store, comparison) for store in stores]
    fitting = [store for store, each in zip(stores, differ, strict=True) if not each]
    if fitting:
        return _chosen(fitting, wanted)
    held = "; ".join(
        f"{store} of {store.model} on {store.corpus} differs in {', '.join(each)}"
        for store, each in zip(stores, differ, strict=True)
    )
    raise UsageError(f"{place} has no store of {model} as it was asked for (there and asked): {held}")


def _cached(wanted: Wanted, comparison: Comparison) -> Store | None:
    """Return a store in the user's cache that was collected from the same files at another commit."""
    if not wanted.is_planned:
        return None
    for folder in sorted((home() / "stores").glob("*")):
        try:
            store = Store.load(folder) if is_store(folder) else None
            if store is not None and not wanted.differences(store, comparison, exactly=True):
                return store.check().called(wanted.plan.names)
        except CollapseError as error:
            log.info("%s", error)
    return None


def _opened(remote: Remote) -> list[Store]:
    """Return the stores of a model's repository; a damaged one is reported and skipped."""
    found = []
    for folder in remote.stores():
        try:
            found.append(remote.open(folder))
        except CollapseError as error:
            log.warning("%s: it is not used", error)
    return found


def _fits(store: Store, wanted: Wanted, comparison: Comparison) -> bool:
    try:
        differ = wanted.differences(store, comparison)
    except CollapseError as error:
        log.warning("%s is not used: %s", store, error)
        return False
    if differ:
        log.info("%s is not what was asked for, it differs in %s (there and asked)", store, "; ".join(differ))
    return not differ


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
    from huggingface_hub import HfApi

    if not model.online:
        return
    tags = ["collapse", f"base_model:{model.repo}"]
    try:
        hits = [each.id for each in steadily(lambda: list(HfApi().list_models(filter=tags, limit=_MOST_REPOSITORIES)))]
    except client_errors() as error:
        log.info("published stores of %s could not be searched for: %s", model.repo, first_line(error))
        return
    others = sorted(each for each in set(hits) - {model.repo} if is_repo_id(each))
    if others:
        log.warning(
            "other repositories say that they hold stores of %s; they are used only where you name one: %s",
            model.repo,
            ", ".join(f"--store {each}" for each in others),
        )
