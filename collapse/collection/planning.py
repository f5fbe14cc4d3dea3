"""The plan of a collection, made before anything heavy is loaded: its identity and the folder of its store."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from collapse.collection.text_request import TextRequest
from collapse.errors import UsageError
from collapse.inputs.checkpoints import check_model_args
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.corpus import Corpus, find_corpus
from collapse.inputs.references import (
    ModelReference,
    check_chunk_length,
    code_of,
    default_chunk_length,
    find_model,
    find_tokenizer,
)
from collapse.inputs.text_pair import Texts, find_texts, find_validation
from collapse.measurement.comparing import SAME_TEXTS

log = logging.getLogger("collapse")


def plan_collection(model: str, spec: CollectionSpec, *, there: Mapping[str, Any] | None = None) -> TextRequest:
    """Plan a collection.

    ``there`` is the identity of an existing store. If the spec names no text, it supplies the text, and with it the
    chunk length and the numbers of chunks unless they are given. A spec that names a text stands on its own.

    Raises:
        UsageError: No corpus is given and the model's card names none, or an option is invalid.
        CollapseError: The model, tokenizer or a text cannot be found or read.
    """
    check_model_args(spec.model_args or {})
    gguf = (spec.model_args or {}).get("gguf_file")
    if spec.null == "untrained" and gguf:
        raise UsageError(
            f"{gguf} does not say how its model was initialized: for --null untrained name the "
            "model that it was made of; --null shuffled applies"
        )
    reference = find_model(model, revision=spec.revision, model_args=spec.model_args)
    there = there or {} if spec.text is None else {}
    trained_on = there.get("corpus")
    texts = _validation_alone(spec, there) if trained_on else find_texts(spec, lambda: _text_of_card(reference))
    corpus = texts.training.identity() if texts.training else trained_on
    if texts.validation and texts.validation.identity() == corpus:
        log.warning(SAME_TEXTS)
    tokenizing = find_tokenizer(spec.tokenizer) if spec.tokenizer else reference
    chunk_length = spec.chunk_length or there.get("chunk_length") or default_chunk_length(reference)
    check_chunk_length(reference, chunk_length)
    return TextRequest(
        spec=replace(
            spec,
            chunk_length=chunk_length,
            max_chunks=spec.max_chunks or there.get("max_chunks"),
            max_validation_chunks=spec.max_validation_chunks or there.get("max_validation_chunks"),
        ),
        model=reference,
        tokenizer=tokenizing,
        texts=texts,
        trained_on=trained_on,
        code=code_of(reference, tokenizing) if spec.trust_remote_code else {},
    )


def _validation_alone(spec: CollectionSpec, there: Mapping[str, Any]) -> Texts:
    """Return the texts for a trained store that only lacks its validation."""
    if spec.validation_text:
        return Texts(None, find_validation(spec, spec.validation_text))
    known = _known_corpus(there["validation"]) if there.get("validation") else None
    return Texts(None, known, optional=True)  # the data set may lack such a split


def _text_of_card(reference: ModelReference) -> str:
    named = reference.card_datasets()
    if not named:
        raise UsageError(
            f"no corpus: the card of {reference.name} names no data set. Give the text it was trained on, for example "
            f"--text roneneldan/TinyStories, or --text train.jsonl --validation-text validation.jsonl"
        )
    log.info("corpus: %s, named by the card of %s", named[0], reference.name)
    return named[0]


def _known_corpus(identity: Mapping[str, Any]) -> Corpus:
    """Find the validation text of an existing store by its recorded name; raises UsageError if it was a local file."""
    if not identity.get("revision"):
        raise UsageError(
            "the validation text was a local file: name it again with --validation-text "
            f"(its content hash begins {str(identity.get('sha256'))[:12]})"
        )
    name = f"{identity['name']}@{identity['revision']}"
    return find_corpus(name, split=identity["split"], text_column=identity["column"])
