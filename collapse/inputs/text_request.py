"""A request for a model on texts: what identifies it, and how its embeddings are computed."""

import logging
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from collapse.core.progress import Report
from collapse.errors import CollapseError, UsageError, counted
from collapse.inputs.checkpoints import check_model_args
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.corpus import Corpus, find_corpus
from collapse.inputs.known_tokenizers import remember_tokenizer
from collapse.inputs.language_model import LanguageModel
from collapse.inputs.model_loading import load_model, load_tokenizer
from collapse.inputs.option_words import typed
from collapse.inputs.packing import Chunks, pack
from collapse.inputs.references import (
    ModelReference,
    check_chunk_length,
    code_of,
    default_chunk_length,
    find_model,
    find_tokenizer,
)
from collapse.inputs.request import Request
from collapse.inputs.source import Source, shuffled
from collapse.inputs.store_options import check_store_options, options_held
from collapse.inputs.text_pair import Texts, check_limits, find_texts, find_validation
from collapse.inputs.text_source import TextPhase, advice
from collapse.plugin.plugin_manager import plugins
from collapse.stores.files import home, sha256_of
from collapse.stores.manifest import LAYER, OF_VALIDATION, VERSION
from collapse.stores.provenance import Clock
from collapse.stores.store import Store

log = logging.getLogger("collapse")

_OF_TEXTS = ("split", "validation_split", "text_column", "without")
_SAME_TEXTS = "the training and the validation text are the same: losses and NC4 are of text that was trained on"


@dataclass(frozen=True)
class TextRequest(Request):
    """A request for a model on texts: the spec, and the model and texts that it refers to.

    Attributes:
        spec: The options; the chunk length is known, unless it is open.
        model, tokenizer: References to the model and the tokenizer.
        texts: The texts; the training text is None if it is open, or if a store is trained on it already.
        trained_on: Identity of the training text in that case.
        code: Fingerprints of the trusted code, by location.
        open: Fields of the identity that a published store may have otherwise.
    """

    spec: CollectionSpec
    model: ModelReference
    tokenizer: ModelReference
    texts: Texts
    trained_on: Mapping[str, Any] | None = None
    code: Mapping[str, str] = field(default_factory=dict)
    open: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for name in ("part", "batch_size", "deterministic", "recollect", "without"):
            object.__setattr__(self, name, getattr(self.spec, name))

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that affects a stored number and is known without loading the model."""
        training, validation = self.texts.training, self.texts.validation
        recorded = self.spec.identity
        arguments = {name: value for name, value in recorded["model_args"].items() if name != "gguf_file"}
        return ({"code": dict(self.code)} if self.code else {}) | {
            "weights": self.model.weights,
            "tokenizer": self.tokenizer.tokenizer,
            "corpus": training.identity() if training else self.trained_on,
            "validation": validation.identity() if validation else None,
            "layers": [LAYER],
            **recorded,
            "model_args": arguments,  # the content of a GGUF file is hashed, and its name is not
        }

    @property
    def names(self) -> dict[str, str | None]:
        """The names of the model and the texts, its step, a local tokenizer's folder; none is part of the identity."""
        folder = {"tokenizer": self.tokenizer.location} if self.tokenizer.is_local else {}
        step = {} if self.model.step is None else {"step": str(self.model.step)}
        return {"model": self.model.name, **step, **folder, **self.texts.names}

    @property
    def cached(self) -> Path:
        """The store's folder in the user's cache."""
        return home() / "stores" / sha256_of([VERSION, self.identity])[:40]

    def validates_beside(self, validation: str | None) -> bool:
        """See :class:`Request`."""
        return self.texts.wanted_beside(validation)

    def source(self, trained: Store | None, report: Report | None) -> Source:
        """Load the model and pack the texts.

        Raises:
            UsageError: A text is too short for one chunk.
            CollapseError: Something cannot be loaded or read, or the tokenizer does not match the model.
        """
        spec, texts, clock = self.spec, self.texts, Clock()
        own = spec.model_args if self.tokenizer is self.model else None
        tokenizer = load_tokenizer(self.tokenizer, model_args=own, trust_remote_code=spec.trust_remote_code)
        remember_tokenizer(self.tokenizer)

        def packed(corpus: Corpus, cut: CollectionSpec) -> Chunks:
            _warn_of_added_tokens(corpus, tokenizer)
            key = self.tokenizer.tokenizer
            hashed = sha256_of([key, dict(self.code)]) if self.code else key
            return pack(corpus, tokenizer, cut, tokenizer_hash=hashed, cache=home(), progress=report)

        train = packed(texts.training, spec) if trained is None and texts.training else None
        validates = trained is not None or spec.part is None  # parts may be validated after merging
        validation = texts.pack_validation(lambda corpus: packed(corpus, spec.of_validation)) if validates else None
        model = load_model(self.model, spec, report)
        for chunks in (train, validation):
            if chunks is not None:
                _check_ids(chunks, tokenizer, model, self.model.name)
        lacks_validation = validates and validation is None  # there is none, or its split is optional and absent
        source = Source(
            identity=self._identity_of(model, lacks_validation=lacks_validation),
            model=self._about(model),
            corpus={
                "name": texts.names["corpus"],
                "validation": None if lacks_validation else texts.names["validation"],
            },
            weight=model.weight,
            bias=model.bias,
            train=None if train is None else TextPhase("train", train, model),
            validation=None if validation is None else TextPhase("validation", validation, model),
            remedy=f"the row is a vocabulary entry: {advice(model.weight.dtype)}",
            command=f"collapse collect {shlex.quote(self.model.name)} {typed(spec, shown=True)}".rstrip(),
            exact_loss=spec.exact_loss,
            clock=clock,
        )
        return shuffled(source, {}) if spec.null == "shuffled" else source  # the identity says so already

    def _identity_of(self, model: LanguageModel, *, lacks_validation: bool) -> dict[str, Any]:
        """Return the identity with what is known of the loaded model; an optional split may be absent."""
        head = {"tied": model.tied, "bias": model.bias is not None}
        identity = {**self.identity, "attention": model.attention, "head": head}
        if not lacks_validation:
            return identity
        return {name: value for name, value in identity.items() if name not in OF_VALIDATION} | {"validation": None}

    def _about(self, model: LanguageModel) -> dict[str, Any]:
        """Return the manifest's entry for the model."""
        about: dict[str, Any] = {"name": self.model.name, "revision": self.model.revision}
        about |= {"n_params": model.n_params, "vocabulary": len(model.weight)}
        if self.model.step is not None:
            about["step"] = self.model.step
        if self.tokenizer is not self.model and not self.tokenizer.is_local:
            about["tokenizer"] = f"{self.tokenizer.location}@{self.tokenizer.revision}"  # by which it is found again
        return about


def text_request(
    model: str, spec: CollectionSpec, *, held: Store | None = None, leave_open: bool = False
) -> TextRequest:
    """Find the model and the texts of a request.

    Args:
        model: A local folder, a GGUF file, or a Hub id.
        spec: The options.
        held: The store that is there: it says which text is meant, and how much of it, unless the spec does.
        leave_open: What the spec does not say of text, length and limits may be anything.

    Raises:
        UsageError: No corpus is given and the model's card names none, or an option is invalid.
        CollapseError: The model, tokenizer or a text cannot be found or read.
    """
    path = Path(os.path.expanduser(model))
    if path.suffix == ".gguf" and path.is_file():
        model, spec = str(path.parent), replace(spec, model_args={**(spec.model_args or {}), "gguf_file": path.name})
    _check_arguments(spec)
    reference = find_model(model, revision=spec.revision, model_args=spec.model_args)
    tokenizer = find_tokenizer(spec.tokenizer) if spec.tokenizer else reference
    unnamed = spec.validation_text is None and spec.validation_split is None
    spec = _with_texts(spec, reference, held)
    trained_on = held.identity["corpus"] if held is not None and spec.text is None else None
    unsaid = _unsaid(spec) if leave_open else frozenset()
    if trained_on or "corpus" in unsaid:
        texts = Texts(None, find_validation(spec, spec.validation_text) if spec.validation_text else None)
    else:
        texts = find_texts(spec, lambda: _text_of_card(reference))
    if held is not None and unnamed:  # the store's
        texts = replace(texts, optional=True)
    if texts.validation and texts.training:  # the text that is named has its own
        unsaid -= {"validation"}
    if texts.validation and texts.validation.identity() == (
        texts.training.identity() if texts.training else trained_on
    ):
        log.warning(_SAME_TEXTS)
    if not leave_open:
        check_limits(spec, texts)
        spec = replace(spec, chunk_length=spec.chunk_length or default_chunk_length(reference))
    if spec.chunk_length is not None:
        check_chunk_length(reference, spec.chunk_length)
    code = code_of(reference, tokenizer) if spec.trust_remote_code else {}
    return TextRequest(spec, reference, tokenizer, texts, trained_on, code, unsaid)


def _check_arguments(spec: CollectionSpec) -> None:
    arguments = spec.model_args or {}
    check_model_args(arguments)
    if spec.null == "untrained" and arguments.get("gguf_file"):
        raise UsageError(
            f"{arguments['gguf_file']} does not say how its model was initialized: for --null untrained name the "
            "model that it was made of; --null shuffled applies"
        )


def _with_texts(spec: CollectionSpec, model: ModelReference, held: Store | None) -> CollectionSpec:
    """Return the options with texts that they do not name: those of a store, or on which a plugin knows it was trained.

    So the same command refers to the same texts before, during and after a collection.
    """
    if spec.text is not None:
        return spec
    if spec.split is None and model.is_local:
        answers = plugins().answers("collapse_trained_on", Path(model.location))
        known: Mapping[str, Any] = next((known for _, known in answers if known), {})
        if spec.validation_text:  # the known split is one of the known text
            known = {name: value for name, value in known.items() if not name.startswith("validation_")}
        if known and (held is None or _is_trained_on(held, known)):
            return CollectionSpec(**{**known, **spec.given})
    if held is None:
        return spec
    apart = ("validation_split", "text_column") if spec.validation_text else ()
    given = {name: value for name, value in spec.given.items() if name in _OF_TEXTS and name not in apart}
    check_store_options(held, given)
    return CollectionSpec(**options_held(held.identity, spec.given, texts_only=True))


def _is_trained_on(store: Store, text: Mapping[str, Any]) -> bool:
    found = find_corpus(text["text"], split=text.get("split"), text_column=text.get("text_column"))
    return found.identity() == store.identity.get("corpus")


def _unsaid(spec: CollectionSpec) -> frozenset[str]:
    """Return the fields of an identity of which options say nothing."""
    any_text = spec.text is None and spec.split in (None, "train") and spec.text_column in (None, "text")
    any_validation = not (spec.validation_text or spec.validation_split)
    some = {"corpus": any_text, "validation": any_validation, "chunk_length": spec.chunk_length is None}
    some |= {"max_chunks": spec.max_chunks is None}
    some |= {"max_validation_chunks": spec.max_chunks is None and spec.max_validation_chunks is None}
    return frozenset(name for name, is_open in some.items() if is_open)


def _text_of_card(reference: ModelReference) -> str:
    named = reference.card_datasets()
    if not named:
        raise UsageError(
            f"no corpus: the card of {reference.name} names no data set. Give the text it was trained on, for example "
            f"--text roneneldan/TinyStories, or --text train.jsonl --validation-text validation.jsonl"
        )
    log.info("corpus: %s, named by the card of %s", named[0], reference.name)
    return named[0]


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
