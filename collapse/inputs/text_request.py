"""Make the request for running a model on texts. This neither loads the model nor tokenizes the texts."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from collapse.errors import UsageError, counted
from collapse.hub.references import ModelReference, find_adapted, find_tokenizer
from collapse.inputs.checkpoints import check_kind, check_model_args
from collapse.inputs.collection_spec import CollectionSpec, flag_of
from collapse.inputs.held_options import options_held
from collapse.inputs.identity import identity_of
from collapse.inputs.packing import chunk_length_of
from collapse.inputs.text_pair import Texts, find_named_validation, find_texts
from collapse.inputs.text_source import open_texts
from collapse.measurement.comparable import SAME_TEXTS, same_texts
from collapse.plugin.plugin_manager import plugins
from collapse.stores.layer_names import layers_of
from collapse.stores.manifest import is_store
from collapse.stores.request import Request
from collapse.stores.store import Store

log = logging.getLogger("collapse")

_LIMITS = ("chunk_length", "max_chunks", "max_validation_chunks")
_OF_TEXTS = {"text", "validation_text", "split", "validation_split", "text_column", *_LIMITS}
"""Options of the texts. If none is given, a published store may have any value in the fields :data:`_OPEN_FIELDS`."""
_OPEN_FIELDS = frozenset(("corpus", "validation", *_LIMITS))


def asked_model(name: str, spec: CollectionSpec) -> ModelReference:
    """Find the model that the user names, with the adapter, revision and arguments in the options.

    Raises:
        UsageError: A model argument must be given by another option, such as ``dtype`` by ``--dtype``; or a GGUF file
            is given for ``--null untrained``.
        CollapseError: As in :func:`collapse.hub.references.find_adapted`.
    """
    arguments = spec.model_args or {}
    check_model_args(arguments)
    gguf_file = arguments.get("gguf_file") or (name if name.endswith(".gguf") else None)
    if spec.null == "untrained" and gguf_file:
        raise UsageError(
            f"{gguf_file} does not record how its model was initialized: for --null untrained give the original "
            "model, or use --null shuffled"
        )
    return find_adapted(name, spec.adapter, revision=spec.revision, model_args=arguments)


def text_request(
    reference: ModelReference, spec: CollectionSpec, *, folder: Path | None = None, accept_any_text: bool = False
) -> Request:
    """Return the request for the store of a model and of the texts that ``spec`` names.

    Args:
        reference: The model.
        spec: The options.
        folder: Folder of the store, or None. If this folder already has a store, the texts and limits that ``spec``
            does not give are taken from that store.
        accept_any_text: Accept a store with any texts, chunk length and limits, if ``spec`` gives none of these.

    Raises:
        UsageError: No training text is known, or an option does not fit the texts, the model or the store.
        CollapseError: A text or the tokenizer is not available.
    """
    store = Store.load(folder) if folder and is_store(folder) and not spec.recollect else None
    tokenizer = find_tokenizer(spec.tokenizer) if spec.tokenizer else reference
    any_text = accept_any_text and not spec.given.keys() & _OF_TEXTS
    if any_text:
        completed, texts, identity_from_store = spec, Texts(None), dict[str, Any]()
    else:
        completed = _with_known_texts(spec, reference, store)
        texts, identity_from_store = _texts_of(spec, completed, reference, store)
        completed = texts.fitted(completed)  # a packed text has a chunk length and limits of its own
        if completed.chunk_length is None and reference.position_limit is None:
            _check_kind(reference)
        completed = replace(completed, chunk_length=chunk_length_of(reference, completed.chunk_length))
    # if the command names no validation text, the store's text is used, and its data set may lack the split
    if store is not None and spec.validation_text is None and spec.validation_split is None:
        texts = replace(texts, may_be_absent=True)
    fields_of_texts = {"tokenizer": tokenizer.tokenizer, **texts.identity(), **identity_from_store}
    identity = identity_of(completed, reference, tokenizer, fields_of_texts)
    if same_texts(identity):
        log.warning(SAME_TEXTS)
    training = {name: str(value) for name, value in reference.training.items()}
    tokenizer_folder = (
        {"tokenizer": tokenizer.location} if tokenizer.is_local and tokenizer.loaded_tokenizer is None else {}
    )
    return Request(
        identity=identity,
        shown_names={
            "model": reference.shown_name,
            "revision": reference.revision,
            **training,
            **tokenizer_folder,
            **texts.shown_names,
        },
        load=partial(
            open_texts,
            identity=identity,
            spec=completed,
            reference=reference,
            tokenizer_reference=tokenizer,
            texts=texts,
        ),
        validates=texts.validation is not None,
        split_may_be_absent=texts.may_be_absent,
        folder=folder,
        open_fields=_OPEN_FIELDS if any_text else frozenset(),
        **spec.beside_identity,
    )


def _texts_of(
    spec: CollectionSpec, completed: CollectionSpec, reference: ModelReference, store: Store | None
) -> tuple[Texts, dict[str, Any]]:
    """Return the texts of a request; for texts of which ``store`` has only the identity, also return this identity.

    ``completed`` is ``spec`` with the options that the store or a plugin adds. If ``completed`` names no training text,
    the store's text is used or, without a store, the data set in the model's card.
    """
    if store is not None and completed.text is None:  # a local text: the store has its identity, but not its path
        # without a validation text, refuse the user's limits for it (in spec), but not the store's (in completed)
        texts = Texts(None, find_named_validation(completed if completed.validation_text else spec))
        _refuse_missing_layers(store, layers_of(spec.layers, store.n_layers), texts)
        keys = ["corpus"] if texts.validation else ["corpus", "validation"]
        return texts, {key: store.identity[key] for key in keys if key in store.identity}
    # the given text, or the text in the model's card
    return find_texts(completed if completed.text else replace(completed, text=_text_of_card(reference))), {}


def _refuse_missing_layers(store: Store, layers: Sequence[str], texts: Texts) -> None:
    """Raise UsageError if layers must be collected or validated, but their text is neither given nor found."""
    if missing := store.lacking("train", layers):
        raise UsageError(
            f"{store} lacks {counted(len(missing), 'layer')} ({', '.join(missing)}), and collecting layers needs "
            f"the training text: repeat the command that collected {store}, and add --layers"
        )
    if store.lacking("validation", layers) and store.identity.get("validation") and not texts.validation:
        raise UsageError(
            f"{store} lacks the validation of some layers: give the validation text again with --validation-text"
        )


def _with_known_texts(spec: CollectionSpec, model: ModelReference, store: Store | None) -> CollectionSpec:
    """If ``spec`` names no text, add the model's training texts, if a plugin knows them, or else the store's texts.

    A plugin's text that differs from the store's text is ignored. So the same command uses the same texts before,
    during and after a collection.
    """
    if spec.text is not None:
        return spec
    if spec.split is None and model.is_local and (known := _texts_of_plugin(spec, Path(model.location), store)):
        return CollectionSpec(**{**known, **spec.given})
    if store is None:
        return spec
    for name in ("split",) if spec.validation_text else ("split", "text_column"):
        if name in spec.given:
            raise UsageError(f"{store} determines the training text: remove {flag_of(name)}, or also give --text")
    return CollectionSpec(**options_held(store.identity, spec.given, texts_only=True))


def _texts_of_plugin(spec: CollectionSpec, folder: Path, store: Store | None) -> dict[str, Any]:
    """Ask plugins for the texts on which the model in ``folder`` was trained; return options with these texts.

    Return {} if no plugin knows the texts, or if ``store`` has another training text.
    """
    known = dict(next((known for _, known in plugins().answers("collapse_trained_on", folder) if known), {}))
    if spec.validation_text:  # the known validation split belongs to the known text
        known = {name: value for name, value in known.items() if not name.startswith("validation_")}
    if known and store is not None:
        texts = find_texts(CollectionSpec(**known))
        if not texts.training or texts.training.identity() != store.identity["corpus"]:
            return {}
        known |= options_held(store.identity, {}, texts_only=True)
    return known


def _check_kind(reference: ModelReference) -> None:
    """Reject a model that is not a causal language model, before an error asks for ``--text`` or ``--chunk-length``."""
    check_kind(reference, {**reference.json("config.json"), **reference.model_args})


def _text_of_card(reference: ModelReference) -> str:
    named = reference.card_datasets()
    if not named:
        _check_kind(reference)
        raise UsageError(
            f"no corpus: the card of {reference.name} names no data set. Give its training text, for example --text "
            f"roneneldan/TinyStories, or --text train.jsonl --validation-text validation.jsonl"
        )
    log.info("corpus: %s, named by the card of %s", named[0], reference.name)
    return named[0]
