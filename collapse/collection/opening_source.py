"""The source of a plan: load the model, and pack the texts that are still needed."""

import logging
import shlex
from typing import Any

from collapse.collection.planning import Plan
from collapse.errors import CollapseError, counted
from collapse.inputs.collection_spec import CollectionSpec, typed
from collapse.inputs.corpus import Corpus
from collapse.inputs.known_tokenizers import remember_tokenizer
from collapse.inputs.language_model import LanguageModel
from collapse.inputs.model_loading import load_model, load_tokenizer
from collapse.inputs.packing import Chunks, pack
from collapse.inputs.shuffling import shuffled
from collapse.inputs.source import Source
from collapse.inputs.text_source import TextPhase, advice
from collapse.progress import Report
from collapse.stores.files import home, sha256_of
from collapse.stores.manifest import OF_VALIDATION
from collapse.stores.provenance import Clock
from collapse.stores.store import Store

log = logging.getLogger("collapse")


def open_text(plan: Plan, store: Store | None, report: Report | None) -> Source:
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
