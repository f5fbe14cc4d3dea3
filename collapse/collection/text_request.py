"""A request for a model on texts: what identifies it, and how it is collected."""

import logging
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collapse.collection.passes import Collection
from collapse.collection.request import Request
from collapse.core.precision import exact_arithmetic
from collapse.core.progress import Report
from collapse.errors import CollapseError, counted
from collapse.inputs.collection_spec import CollectionSpec, typed
from collapse.inputs.corpus import Corpus
from collapse.inputs.known_tokenizers import remember_tokenizer
from collapse.inputs.language_model import LanguageModel
from collapse.inputs.model_loading import load_model, load_tokenizer
from collapse.inputs.packing import Chunks, pack
from collapse.inputs.references import ModelReference
from collapse.inputs.shuffling import shuffled
from collapse.inputs.source import Source
from collapse.inputs.text_pair import Texts
from collapse.inputs.text_source import TextPhase, advice
from collapse.plugin.statistic import Statistic
from collapse.stores.files import home, sha256_of
from collapse.stores.manifest import LAYER, OF_VALIDATION, VERSION, is_store
from collapse.stores.provenance import Clock
from collapse.stores.shards import Part
from collapse.stores.store import Store

log = logging.getLogger("collapse")


@dataclass(frozen=True)
class TextRequest(Request):
    """A request for a model on texts: the spec, and the model and texts that it refers to.

    Attributes:
        spec: The options; the chunk length is known.
        model, tokenizer: References to the model and the tokenizer.
        texts: The texts; the training text is None if a trained store only lacks its validation.
        trained_on: Identity of the training text in that case.
        code: Fingerprints of the trusted code, by location.
    """

    spec: CollectionSpec
    model: ModelReference
    tokenizer: ModelReference
    texts: Texts
    trained_on: Mapping[str, Any] | None = None
    code: Mapping[str, str] = field(default_factory=dict)

    @property
    def part(self) -> tuple[int, int] | None:  # type: ignore[override]
        """The share of the slices that is collected, or None for all."""
        return self.spec.part

    @property
    def without(self) -> Sequence[str]:  # type: ignore[override]
        """Names of statistics that the store must not hold."""
        return tuple(self.spec.without)

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that affects a stored number and is known without loading the model."""
        training, validation = self.texts.training, self.texts.validation
        return ({"code": dict(self.code)} if self.code else {}) | {
            "weights": self.model.weights,
            "tokenizer": self.tokenizer.tokenizer,
            "corpus": training.identity() if training else self.trained_on,
            "validation": validation.identity() if validation else None,
            "layers": [LAYER],
            **_by_content(self.spec.identity),
        }

    @property
    def separate_tokenizer(self) -> str | None:
        """The Hub's name of a tokenizer that is not the model's own, by which it is found again."""
        separate = self.tokenizer is not self.model and not self.tokenizer.is_local
        return f"{self.tokenizer.location}@{self.tokenizer.revision}" if separate else None

    @property
    def names(self) -> dict[str, str | None]:
        """The names of the model and the texts, its step, a local tokenizer's folder; none is part of the identity."""
        folder = {"tokenizer": self.tokenizer.location} if self.tokenizer.is_local else {}
        step = {} if self.model.step is None else {"step": str(self.model.step)}
        return {"model": self.model.name, **step, **folder, **self.texts.names}

    def collect(
        self, folder: Path | None, kinds: Sequence[type[Statistic]], report: Report | None = None
    ) -> Store | Part:
        """See :class:`Request`."""
        trained = Store.load(folder) if folder is not None and is_store(folder) else None
        source = _opened(self, trained, report)
        with exact_arithmetic(deterministic=self.spec.deterministic):  # the model's code may have changed settings
            return Collection(source, folder, kinds, self.spec.batch_size, self.part, report).run(trained)

    def validates_beside(self, validation: str | None) -> bool:
        """See :class:`Request`."""
        return self.texts.wanted_beside(validation)

    @property
    def cached(self) -> Path:
        """The store's folder in the user's cache."""
        return home() / "stores" / sha256_of([VERSION, self.identity])[:40]


def _by_content(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return an identity without the name of a GGUF file, whose content is hashed."""
    arguments = identity.get("model_args") or {}
    return {**identity, "model_args": {name: value for name, value in arguments.items() if name != "gguf_file"}}


def _opened(plan: TextRequest, store: Store | None, report: Report | None) -> Source:
    """Load the model of a plan and pack its texts.

    Args:
        plan: What to collect.
        store: The existing store, whose training text is not read again.
        report: Called as report(what, done, total).

    Raises:
        UsageError: A text is too short for one chunk.
        CollapseError: Something cannot be loaded or read, or the tokenizer does not match the model.
    """
    spec, texts, clock = plan.spec, plan.texts, Clock()
    tokenizer = load_tokenizer(
        plan.tokenizer,
        model_args=spec.model_args if plan.tokenizer is plan.model else None,
        trust_remote_code=spec.trust_remote_code,
    )
    remember_tokenizer(plan.tokenizer)
    hashed = sha256_of([plan.tokenizer.tokenizer, dict(plan.code)]) if plan.code else plan.tokenizer.tokenizer

    def pack_now(corpus: Corpus, cut: CollectionSpec) -> Chunks:
        added = tokenizer.num_special_tokens_to_add()
        if added and corpus.files and corpus.files[0].endswith(".txt"):
            log.warning(
                f"the tokenizer adds {counted(added, 'special token')} to each line of {corpus.name}, which count as "
                "classes and samples: texts of several lines can be rows of a .jsonl file"
            )
        return pack(corpus, tokenizer, cut, tokenizer_hash=hashed, cache=home(), progress=report)

    training = pack_now(texts.training, spec) if store is None and texts.training else None
    validates = store is not None or spec.part is None
    validation = texts.pack_validation(lambda corpus: pack_now(corpus, spec.of_validation)) if validates else None
    model = load_model(plan.model, spec, report)
    for chunks in (training, validation):
        if chunks is not None:
            _check_ids(chunks, tokenizer, model, plan.model.name)
    identity = plan.identity | {
        "attention": model.attention,
        "head": {"tied": model.tied, "bias": model.bias is not None},
    }
    if validation is None and spec.part is None:  # an optional split that is absent
        identity = {name: value for name, value in identity.items() if name not in OF_VALIDATION}
        identity["validation"] = None
    validated = validation is not None or spec.part is not None  # parts may be validated after merging
    source = Source(
        identity=identity,
        model={
            "name": plan.model.name,
            "revision": plan.model.revision,
            "n_params": model.n_params,
            "vocabulary": len(model.weight),
            **({} if plan.model.step is None else {"step": plan.model.step}),
            **({"tokenizer": plan.separate_tokenizer} if plan.separate_tokenizer else {}),
        },
        corpus={"name": texts.names["corpus"], "validation": texts.names["validation"] if validated else None},
        weight=model.weight,
        bias=model.bias,
        train=None if training is None else TextPhase("train", training, model),
        validation=None if validation is None else TextPhase("validation", validation, model),
        remedy=f"the row is a vocabulary entry: {advice(model.weight.dtype)}",
        command=f"collapse collect {shlex.quote(plan.model.name)} {typed(spec, shown=True)}".rstrip(),
        exact_loss=spec.exact_loss,
        clock=clock,
    )
    return shuffled(source, {}) if spec.null == "shuffled" else source  # the plan's identity says so


def _check_ids(chunks: Chunks, tokenizer: Any, model: LanguageModel, name: str) -> None:
    rows = min(model.input_rows, len(model.weight))
    if max(tokenizer.get_vocab().values(), default=0) < rows:  # ids may be sparse: few tokens, large ids
        return
    if (largest := int(chunks.tokens.max())) >= rows:
        raise CollapseError(
            f"the text holds token id {largest:,}, but {name} embeds {rows:,} tokens: "
            f"its tokenizer (of {len(tokenizer):,}) is larger than that; name the right one with --tokenizer"
        )
