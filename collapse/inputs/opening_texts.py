"""Load the model of a request and pack its texts: the samples of a collection."""

import logging
import shlex
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from collapse.core.paths import home
from collapse.core.progress import Report
from collapse.errors import CollapseError, counted
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.corpus import Corpus
from collapse.inputs.known_tokenizers import remember_tokenizer
from collapse.inputs.language_model import LanguageModel
from collapse.inputs.model_loading import load_model, load_tokenizer
from collapse.inputs.option_words import typed
from collapse.inputs.packing import Chunks, pack
from collapse.inputs.references import ModelReference
from collapse.inputs.source import Source
from collapse.inputs.text_pair import Texts
from collapse.inputs.text_source import TextPhase, advice
from collapse.stores.files import sha256_of
from collapse.stores.manifest import OF_VALIDATION
from collapse.stores.provenance import Clock
from collapse.stores.store import Store

log = logging.getLogger("collapse")


def open_texts(
    identity: Mapping[str, Any],
    spec: CollectionSpec,
    reference: ModelReference,
    tokenizer: ModelReference,
    texts: Texts,
    trained: Store | None,
    report: Report | None,
) -> Source:
    """Load a model and pack texts.

    Args:
        identity: That of the request.
        spec: The options.
        reference, tokenizer: The model and the tokenizer.
        texts: The texts.
        trained: The store that lacks only its validation, or None.
        report: Called as report(what, done, total).

    Raises:
        UsageError: A text is too short for one chunk.
        CollapseError: Something cannot be loaded or read, or the tokenizer does not match the model.
    """
    clock = Clock()
    spec = replace(spec, model_args=reference.model_args)
    own = spec.model_args if tokenizer is reference else None
    tokenize = load_tokenizer(tokenizer, model_args=own, trust_remote_code=spec.trust_remote_code)
    remember_tokenizer(tokenizer)
    key = sha256_of([tokenizer.tokenizer, identity["code"]]) if "code" in identity else tokenizer.tokenizer

    def packed(corpus: Corpus, cut: CollectionSpec) -> Chunks:
        _warn_of_added_tokens(corpus, tokenize)
        return pack(corpus, tokenize, cut, tokenizer_hash=key, cache=home(), progress=report)

    train = packed(texts.training, spec) if trained is None and texts.training else None
    validates = trained is not None or spec.part is None  # parts may be validated after merging
    validation = texts.pack_validation(lambda corpus: packed(corpus, spec.of_validation)) if validates else None
    model = load_model(reference, spec, report)
    for chunks in (train, validation):
        if chunks is not None:
            _check_ids(chunks, tokenize, model, reference.name)
    identity = {**identity, "attention": model.attention, "head": {"tied": model.tied, "bias": model.bias is not None}}
    corpus = {"name": texts.names["corpus"], "validation": texts.names["validation"]}
    if validates and validation is None:  # there is none, or its split is optional and absent
        identity = {name: each for name, each in identity.items() if name not in OF_VALIDATION} | {"validation": None}
        corpus["validation"] = None
    phase = partial(TextPhase, model=model, shuffled=spec.null == "shuffled")
    return Source(
        identity=identity,
        model=_about(model, reference, tokenizer),
        corpus=corpus,
        weight=model.weight,
        bias=model.bias,
        train=None if train is None else phase("train", train),
        validation=None if validation is None else phase("validation", validation),
        remedy=f"the row is a vocabulary entry: {advice(model.weight.dtype)}",
        command=f"collapse collect {shlex.quote(reference.name)} {typed(spec, shown=True)}".rstrip(),
        exact_loss=spec.exact_loss,
        clock=clock,
    )


def _about(model: LanguageModel, reference: ModelReference, tokenizer: ModelReference) -> dict[str, Any]:
    """Return the manifest's entry for the model."""
    about: dict[str, Any] = {"name": reference.name, "revision": reference.revision}
    about |= {"n_params": model.n_params, "vocabulary": len(model.weight)}
    if reference.step is not None:
        about["step"] = reference.step
    if tokenizer is not reference and not tokenizer.is_local:
        about["tokenizer"] = f"{tokenizer.location}@{tokenizer.revision}"  # by which it is found again
    return about


def _warn_of_added_tokens(corpus: Corpus, tokenizer: Any) -> None:
    added = tokenizer.num_special_tokens_to_add()
    if added and corpus.lines:
        log.warning(
            f"the tokenizer adds {counted(added, 'special token')} to each line of {corpus.name}, which count as "
            "classes and samples: texts of several lines can be rows of a .jsonl file"
        )


def _check_ids(chunks: Chunks, tokenizer: Any, model: LanguageModel, name: str) -> None:
    rows = min(model.input_rows, len(model.weight))
    if max(tokenizer.get_vocab().values(), default=0) < rows:  # ids may be sparse: few tokens, large ids
        return
    if (largest := int(chunks.tokens.max())) >= rows:
        raise CollapseError(
            f"the text holds token id {largest:,}, but {name} embeds {rows:,} tokens: "
            f"its tokenizer (of {len(tokenizer):,}) is larger than that; name the right one with --tokenizer"
        )
