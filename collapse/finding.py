"""Find the store on the Hub for a repository name, or for a model that is to be collected.

A published store stands in for collecting only if its whole identity is the one that the collection would have, and
only from a place that the user trusts already: the model's own repository, or one that the user names.
"""

import logging

from collapse.client import client_errors
from collapse.errors import CollapseError, UsageError, first_line
from collapse.files import expanded, home
from collapse.hub import at_revision, is_repo_id, steadily
from collapse.manifest import differences, is_store
from collapse.planning import plan_collection
from collapse.remote import FOLDER, Remote, reach, split_name
from collapse.sameness import Comparison
from collapse.spec import CollectionSpec
from collapse.store import Store

log = logging.getLogger("collapse")

KNOWN_LATER = frozenset({"attention", "head", "statistics"})
"""Fields of a store's identity that no plan has: they are known once the model is loaded."""
_BY_FILES = frozenset({"weights", "tokenizer"})
_MOST_REPOSITORIES = 20


def open_store(name: str) -> Store:
    """Open the store on the Hub that a name refers to: a repository with one store, or a store's folder in it.

    Raises:
        UsageError: It names no repository; or the repository has no store, or several and the name does not say which.
        StoreError: The store is not whole.
        CollapseError: It is not available.
    """
    repo, folder = split_name(name)
    if not _names_repo(name):
        raise UsageError(f"there is no store {name}: give a folder, or user/repo on the Hub")
    remote = reach(repo)
    stores = remote.stores()
    matching = _in_folder(stores, folder)
    if len(matching) == 1:
        return remote.open(matching[0])
    listed = ", ".join(f"{remote.repo}/{each}" for each in stores)
    if not matching:
        raise UsageError(
            f"{remote.repo} has no store{f' {folder}' if folder else ''}{f'; it has {listed}' if stores else ''}"
        )
    raise UsageError(f"{remote.repo} has several stores: name one of {listed}")


def open_named(name: str) -> Store | None:
    """Open the store that a name refers to; None where it names a model, or nothing on the Hub.

    Args:
        name: ``user/repo/folder``, or ``user/repo`` of a repository with stores and no model; with ``@revision``.

    Raises:
        UsageError: The repository has several stores, or no such folder.
        StoreError: The store is not whole.
    """
    if not _names_repo(name):
        return None
    repo, folder = split_name(name)
    if folder:
        return open_store(name)
    try:
        remote = reach(repo)
    except UsageError:
        return None  # it is looked for as a model, and reported then
    except CollapseError as error:
        log.warning("%s", error)
        return None
    return open_store(name) if remote.stores() and not remote.is_model() else None


class Wanted:
    """A collection that was asked for, as far as the user said, compared with stores that are there.

    Attributes:
        name: The model's name.
        plan: The collection; of a text or length that is left open it holds nothing true.
        is_planned: Whether the plan is whole: nothing is left open that the collection needs.
        open: Fields of the identity that the user left open.
    """

    def __init__(self, name: str, spec: CollectionSpec) -> None:
        self.name = name
        any_text = spec.text is None and spec.split in (None, "train") and spec.text_column == "text"
        try:
            self.plan, self.is_planned = plan_collection(name, spec), True
        except CollapseError:
            # the text or the length that is missing may be what a published store has
            there = {"corpus": {"any": True}, "chunk_length": 2} if any_text else {"chunk_length": 2}
            self.plan, self.is_planned = plan_collection(name, spec, there=there), False
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
            )
            if is_open
        )

    def differences(self, store: Store, comparison: Comparison, *, exactly: bool = False) -> list[str]:
        """In what a store is not what was asked for, in words; ``exactly`` compares fields that were left open, too.

        Raises:
            CollapseError: Whether weights and tokenizer are the same cannot be known without the Hub.
        """
        held, asked = store.identity, self.plan.identity
        left_out = KNOWN_LATER | _BY_FILES | (frozenset() if exactly else self.open)
        name = store.manifest["corpus"].get("validation")
        if name is None and not self.plan.texts.wanted_beside(name):
            left_out |= {"validation"}
        mine, theirs = ({k: v for k, v in each.items() if k not in left_out} for each in (held, asked))
        found = differences(mine, theirs)
        statistics = store.manifest["statistics"]
        found += [f"statistics: it holds {name}" for name in self.plan.spec.without if name in statistics]
        if store.state == "part" or (store.state == "trained" and held.get("validation") is not None):
            found.append(f"it is not complete ({store.state})")
        return found or comparison.differences(held)


def find_store(model: str, spec: CollectionSpec) -> Store | None:
    """Find the store that makes collecting a model unnecessary: in the user's cache, else in the model's repository.

    The order is the rule of trust: what the user collected comes before anything remote; then comes the model's own
    repository; other people's repositories are reported, and used only by :func:`find_store_at`.

    Args:
        model: ``user/repo``, with ``@revision`` if need be; None is returned for a folder.
        spec: What was asked for. A text, chunk length or number of chunks that is not given may be anything in a
            published store, whole texts first.
    """
    if expanded(model).exists() or not _names_repo(model):
        return None
    try:
        wanted, remote = Wanted(model, spec), reach(at_revision(model, spec.revision))
    except CollapseError:
        return None  # collecting reports it
    if wanted.is_planned and is_store(wanted.plan.cached):
        return None  # collecting opens it, and goes on with it where it is not finished
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
    """Find a model's store in a repository, or folder of one, that the user names; None where it has no stores.

    Raises:
        UsageError: None of its stores is what was asked for; what it has is listed.
        StoreError: A store there is not whole.
        CollapseError: Whether it is the store of these weights cannot be known without the Hub.
    """
    repo, folder = split_name(place)
    try:
        remote = reach(repo)
    except UsageError:
        return None  # it may be a folder to be made
    stores = [remote.open(each) for each in _in_folder(remote.stores(), folder)]
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
    """A store in the user's cache that was collected at another commit from the same files."""
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
    """The stores of a model's repository; one that is damaged is reported, and costs only itself."""
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
    """Whole texts before shares of them, then the longest chunks."""

    def order(store: Store) -> tuple[bool, int, str]:
        share = store.identity.get("max_chunks")
        return share is not None, -int(store.identity.get("chunk_length") or 0), str(store)

    store = min(stores, key=order)
    share = store.identity.get("max_chunks")
    what = f"{store.identity.get('chunk_length')} tokens a chunk, {f'{share} chunks' if share else 'the whole text'}"
    log.warning(
        "%s: measuring the published store %s, on %s, %s (--recollect collects)",
        wanted.name,
        store,
        store.corpus,
        what,
    )
    return store.called({kind: name for kind, name in wanted.plan.names.items() if kind not in wanted.open})


def _report_others(model: Remote) -> None:
    """Report other repositories that say they hold stores of a model. Nothing of them is fetched."""
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


def _names_repo(name: str) -> bool:
    repo = split_name(name)[0].partition("@")[0]
    return is_repo_id(repo) and "/" in repo


def _in_folder(stores: list[str], folder: str) -> list[str]:
    return [each for each in stores if folder in ("", each, each.removeprefix(f"{FOLDER}/"))]
