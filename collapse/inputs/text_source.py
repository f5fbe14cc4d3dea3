"""Run a model on texts, as a source. A sample is the embedding at one position; its label is the next token.

Shapes: B chunks of T tokens, d dimensions; T−1 samples per chunk.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from collapse.core import ranks
from collapse.core.progress import Report
from collapse.errors import CollapseError, UsageError
from collapse.hub.corpus import Corpus
from collapse.hub.references import ModelReference, remember_tokenizer
from collapse.inputs.blocks_and_lens import find_layers
from collapse.inputs.checkpoints import check_kind
from collapse.inputs.chunk_files import Chunks
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.language_model import LanguageModel, explaining_large_model
from collapse.inputs.model_loading import load_model, load_tokenizer
from collapse.inputs.option_words import typed
from collapse.inputs.packing import pack, tokenizer_key
from collapse.inputs.source import Phase, Source
from collapse.inputs.suitability import check_model, find_logits
from collapse.inputs.text_pair import Texts
from collapse.stores.layer_names import layers_of
from collapse.stores.manifest import NO_LENS, OF_VALIDATION
from collapse.stores.store import Store

_LARGEST_SLICE = 1024  # chunks
_SLICES, _FEWEST_SLICES = 16, 8  # minimum numbers of slices, if the text is long enough
_CPU_TOKENS, _GPU_TOKENS = 8192, 16384  # initial tokens per batch
_SMALL_SLICE = 2048  # tokens


class TextPhase(Phase):
    """Chunks of a text as samples. A unit is a chunk; ``model`` computes the embeddings.

    ``added`` is the number of special tokens that the tokenizer adds to each text, for the provenance.
    """

    unit, is_text = "chunk", True
    out_of_memory = "lower --chunk-length, or use --dtype bfloat16 or --device cpu"

    def __init__(
        self,
        name: str,
        chunks: Chunks,
        model: LanguageModel,
        *,
        shuffled: bool = False,
        ignored: Tensor | None = None,
        added: int = 0,
    ) -> None:
        self.name, self.chunks, self.model, self.shuffled = name, chunks, model, shuffled
        self.ignored, self.added = ignored, added
        self.units, self.chunk_length = len(chunks), chunks.chunk_length
        self.slice_units = slice_length(len(chunks), chunks.chunk_length)
        self.unit_samples = self.chunk_length - 1
        self.n_samples = self.units * self.unit_samples

    def tokens(self, start: int, stop: int) -> Tensor:
        """Return the token ids of chunks ``start`` to ``stop − 1``, int64, shape (stop − start, T)."""
        return torch.from_numpy(self.chunks.tokens[start:stop].astype("int64"))

    def embeddings(self, start: int, stop: int, layers: Sequence[str]) -> dict[str, Tensor]:
        """Return the embeddings of all tokens but the last one of each chunk, which has no next token."""
        found = self.model.embeddings_by_layer(self.tokens(start, stop), layers, stop=-1)
        return {layer: h_BTd.reshape(-1, h_BTd.shape[-1]) for layer, h_BTd in found.items()}

    def labels_at(self, places: Tensor) -> Tensor:
        """Return the next tokens of the samples whose numbers, counted from 0 over all chunks, are ``places``."""
        chunk_n, place_n = (each.numpy() for each in (places // self.unit_samples, places % self.unit_samples + 1))
        return torch.from_numpy(self.chunks.tokens[chunk_n, place_n].astype("int64"))

    def blocks(self, start: int, stop: int) -> Tensor:
        """Return the id of each sample's block. A block is adjacent whole texts or, if labels are shuffled, a chunk."""
        if self.shuffled:
            return super().blocks(start, stop)
        return torch.from_numpy(self.chunks.blocks(start, stop)[:, 1:]).reshape(-1)

    def not_finite(self, start: int, row: int, wrong: str) -> str:
        chunk, sample = divmod(row, self.chunk_length - 1)
        wider = "try --dtype float32, and " if torch.finfo(self.model.weight.dtype).bits < 32 else ""
        return (
            f"the embedding of sample {sample} of {self.name} chunk {start + chunk} is {wrong}: "
            f"it was not stored; {wider}check the model's weights"
        )

    def batch_units(self, asked: int | str) -> int:
        tokens = _CPU_TOKENS if self.model.device.type == "cpu" else _GPU_TOKENS
        return asked if isinstance(asked, int) else largest_batch(self.units, self.chunk_length, tokens)

    def check(self) -> None:
        """Run :func:`~collapse.inputs.suitability.check_model` on the first chunk."""
        check_model(self.model, self.tokens(0, 1))

    def coverage(self) -> dict[str, Any]:
        """Return the manifest's entry for the phase.

        With ``--ignore-tokens``, the entry also has the number of samples that are not excluded; if there are none,
        raise UsageError.
        """
        about = super().coverage()
        if self.ignored is None:
            return about
        labels, ignored = self.chunks.tokens[:, 1:], self.ignored.numpy()
        runs = (labels[start : start + self.slice_units] for start in range(0, self.units, self.slice_units))
        samples = sum(int(np.isin(run, ignored, invert=True).sum()) for run in runs)
        if not samples:
            raise UsageError(f"--ignore-tokens excludes every sample of the {self.name} text: give fewer ids")
        return {**about, "samples": samples}

    def provenance(self) -> dict[str, Any]:
        """Return the hash of the tokens, and the number of special tokens that the tokenizer adds to each text."""
        return {"tokens": self.chunks.sha256, **({"special_tokens": self.added} if self.added else {})}


def open_texts(
    existing: Store | None,
    report: Report | None,
    *,
    identity: Mapping[str, Any],
    spec: CollectionSpec,
    reference: ModelReference,
    tokenizer_reference: ModelReference,
    texts: Texts,
) -> Source:
    """Pack the texts and load the model of a request, for ``Request.load``.

    ``existing`` is a store that lacks only its validation or some layers, or None. ``identity`` is the identity of the
    request. The identity of the source also has the name of the model's attention implementation and a record of its
    head.

    Raises:
        UsageError: An option does not fit a text, the tokenizer or the device.
        CollapseError: The model, the tokenizer or a text cannot be loaded, or they do not fit together.
    """
    check_kind(reference, {**reference.json("config.json"), **reference.model_args})  # before the texts are packed
    tokenizer = tokenizer_reference.loaded_tokenizer or load_tokenizer(
        tokenizer_reference, trust_remote_code=spec.trust_remote_code
    )
    ignored = _ignored(spec.ignore_tokens, tokenizer)
    remember_tokenizer(tokenizer_reference)
    key = tokenizer_key(tokenizer_reference, spec)

    def packed(corpus: Corpus, cut: CollectionSpec) -> Chunks:
        return pack(corpus, tokenizer, cut, tokenizer_key=key, progress=report)

    trains = existing is None or bool(existing.lacking("train", existing.layers_with(spec.layers)))
    validates_now = not trains or spec.part is None  # the validation needs the means of all parts
    validation = None
    with ranks.first_rank_first():
        # a store that lacks training layers is refused before, unless the text is given
        train = packed(texts.training, spec) if trains and texts.training else None
        if validates_now:
            validation = texts.pack_validation(lambda corpus: packed(corpus, spec.of_validation))
    model = reference.loaded or load_model(reference, spec, report)
    for chunks in (train, validation):
        if chunks is not None:
            _check_ids(chunks, tokenizer, model, reference.name)
    layers = layers_of(spec.layers, model.n_layers) if existing is None else existing.layers_with(spec.layers)
    if (first := train or validation) is not None:
        with explaining_large_model(reference.name, model.device):
            _find_logits_and_layers(model, torch.from_numpy(first.tokens[:1].astype("int64")), layers)
    identity = {**identity, "attention": model.attention, "head": model.head}
    corpus = {"name": texts.shown_names["corpus"], "validation": texts.shown_names["validation"]}
    if validates_now and validation is None:  # there is no validation text, or its split is absent
        identity = {name: each for name, each in identity.items() if name not in OF_VALIDATION} | {"validation": None}
        corpus["validation"] = None
    added = tokenizer.num_special_tokens_to_add() if spec.special_tokens else 0
    phase = partial(TextPhase, model=model, shuffled=spec.null == "shuffled", ignored=ignored, added=added)
    return Source(
        identity=identity,
        model=_about(model, reference, tokenizer_reference),
        corpus=corpus,
        weight=model.weight,
        bias=model.bias,
        logits=model.logits,
        train=None if train is None else phase("train", train),
        validation=None if validation is None else phase("validation", validation),
        layers=layers,
        lens=model.lens,
        command=_command(reference, spec),
        exact_loss=spec.exact_loss,
    )


def _find_logits_and_layers(model: LanguageModel, tokens_BT: Tensor, layers: Sequence[str]) -> None:
    """Set ``logits`` of a model. If inner layers are wanted, also find the model's blocks and lens."""
    model.logits = find_logits(model, tokens_BT)
    if len(layers) > 1:
        find_layers(model, tokens_BT, layers)


def _command(reference: ModelReference, spec: CollectionSpec) -> str | None:
    """Return the command line of a collection; None for a loaded model."""
    if reference.loaded:
        return None
    if reference.adapter:
        spec = replace(spec, adapter=reference.adapter.name)
    return f"collapse collect {shlex.quote(reference.name)} {typed(spec)}".rstrip()


def _about(model: LanguageModel, reference: ModelReference, tokenizer: ModelReference) -> dict[str, Any]:
    """Return the manifest's entry for the model."""
    about: dict[str, Any] = {"name": reference.shown_name, "revision": reference.revision}
    about |= {"n_params": model.n_params, "vocabulary": len(model.weight)}
    about |= {"n_layers": model.n_layers} | ({NO_LENS: model.no_lens} if model.no_lens else {})
    about |= reference.training
    if tokenizer is not reference and not tokenizer.is_local:
        about["tokenizer"] = f"{tokenizer.location}@{tokenizer.revision}"  # locates the tokenizer later
    return about


def _ignored(ids: Any, tokenizer: Any) -> Tensor | None:
    """Return the token ids of ``--ignore-tokens``, None without it; raise UsageError if the tokenizer lacks an id."""
    if ids is None:
        return None
    if ids != "special":
        numbers, known = [int(each) for each in ids.split(",")], {*tokenizer.get_vocab().values()}
        if unknown := [each for each in numbers if each not in known]:
            raise UsageError(f"--ignore-tokens {unknown[0]}: the tokenizer has no such id; give ids up to {max(known)}")
        return torch.tensor(numbers)
    added = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    return torch.tensor(sorted({*tokenizer.all_special_ids, *added}), dtype=torch.int64)


def _check_ids(chunks: Chunks, tokenizer: Any, model: LanguageModel, name: str) -> None:
    rows = min(model.input_rows, len(model.weight))
    if (largest := int(chunks.tokens.max())) >= rows:
        raise CollapseError(
            f"the text has token id {largest:,}, but {name} embeds only {rows:,} tokens (the tokenizer has "
            f"{len(tokenizer):,}): give the right tokenizer with --tokenizer"
        )


def slice_length(chunks: int, chunk_length: int) -> int:
    """Return the number of chunks per slice.

    It is a multiple of the largest ``auto`` batch, and does not depend on ``batch_size``. It is at most 1,024, unless
    the largest ``auto`` batch is larger (possible only if T ≤ 8). A text of at least 16 chunks has at least 16
    slices, or at least 8 if a slice holds at most 2,048 tokens.

    >>> slice_length(229_367, 2048), slice_length(20, 512), slice_length(730, 512), slice_length(190, 128)
    (1024, 2, 32, 16)
    """
    batch = largest_batch(chunks, chunk_length)
    return max(batch, min(_LARGEST_SLICE, chunks // _SLICES) // batch * batch)


def largest_batch(chunks: int, chunk_length: int, tokens: int = _GPU_TOKENS) -> int:
    """Return the number of chunks in the largest ``auto`` batch. The number is a power of two.

    A batch of several chunks has at most ``tokens`` tokens. It has at most 1/16 of the text's chunks, or at most 1/8 if
    it has at most 2,048 tokens. A slice has at least one batch, so this limit gives the text several slices.
    """
    batch = 1
    while batch * 2 * chunk_length <= tokens:
        small = batch * 2 * chunk_length <= _SMALL_SLICE
        if batch * 2 * (_FEWEST_SLICES if small else _SLICES) > chunks:
            break
        batch *= 2
    return batch
