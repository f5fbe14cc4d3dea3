"""Packed text run through a causal language model: each position's embedding, labelled with the following token.

Shapes: B chunks of T tokens, d dimensions; T−1 samples per chunk.
"""

from typing import Any

import torch
from torch import Tensor

from collapse.inputs.language_model import LanguageModel
from collapse.inputs.packing import Chunks, tokens_hash
from collapse.inputs.source import Phase
from collapse.inputs.suitability import check_model

_LARGEST_SLICE = 1024  # chunks
_SLICES, _FEWEST_SLICES = 16, 8  # at least, where the text is long enough
_CPU_TOKENS, _GPU_TOKENS = 2048, 16384  # initial tokens per batch


def advice(dtype: torch.dtype) -> str:
    """Return what to do about numbers of a model that are not finite."""
    wider = "try --dtype float32, and " if torch.finfo(dtype).bits < 32 else ""
    return f"{wider}check the model's weights"


class TextPhase(Phase):
    """Chunks of a text.

    Args:
        name: "train" or "validation".
        chunks: The packed text.
        model: The model that computes the embeddings.
        shuffled: See :class:`Phase`.
    """

    words = ("chunk", "tokens")
    out_of_memory = "lower --chunk-length, or use --dtype bfloat16 or --device cpu"

    def __init__(self, name: str, chunks: Chunks, model: LanguageModel, *, shuffled: bool = False) -> None:
        self.name, self.chunks, self.model, self.shuffled = name, chunks, model, shuffled
        self.units, self.size = len(chunks), chunks.chunk_length
        self.slice_units = slice_length(len(chunks), chunks.chunk_length)
        self.unit_samples = self.size - 1
        self.n_samples = self.units * self.unit_samples

    def tokens(self, start: int, stop: int) -> Tensor:
        """Return the token ids of some chunks, int64, shape (stop − start, T)."""
        return torch.from_numpy(self.chunks.tokens[start:stop].astype("int64"))

    def embeddings(self, start: int, stop: int) -> Tensor:
        """Return the embeddings of some chunks, but for their last tokens, which nothing follows."""
        h_BTd = self.model.embeddings(self.tokens(start, stop))
        return h_BTd[:, :-1].reshape(-1, h_BTd.shape[-1])

    def labels_at(self, places: Tensor) -> Tensor:
        """Return the tokens that follow samples anywhere in the text."""
        chunk_n, place_n = (each.numpy() for each in (places // self.unit_samples, places % self.unit_samples + 1))
        return torch.from_numpy(self.chunks.tokens[chunk_n, place_n].astype("int64"))

    def blocks(self, start: int, stop: int) -> Tensor:
        """Return the number of each label's block of whole texts; of shuffled labels that of its chunk."""
        if self.shuffled:
            return super().blocks(start, stop)
        return torch.from_numpy(self.chunks.blocks(start, stop)[:, 1:]).reshape(-1)

    def not_finite(self, start: int, row: int, wrong: str) -> str:
        """Describe where an embedding is not finite."""
        chunk, sample = divmod(row, self.size - 1)
        return (
            f"the embedding of sample {sample} of {self.name} chunk {start + chunk} is {wrong}: "
            f"nothing was stored of it; {advice(self.model.weight.dtype)}"
        )

    def batch_units(self, asked: int | str) -> int:
        """Return the initial number of chunks per batch."""
        return asked if isinstance(asked, int) else first_batch(self.units, self.size, self.model.device.type)

    def check(self) -> None:
        """Raise CollapseError if the model is not causal on the first chunk, or its head is not linear."""
        check_model(self.model, self.tokens(0, 1), f"{self.name} chunk 0")

    def provenance(self) -> dict[str, Any]:
        """Return the hash of the tokens."""
        return {"tokens": tokens_hash(self.chunks)}


def slice_length(chunks: int, chunk_length: int) -> int:
    """Return the chunks per slice, whatever the batch size: a multiple of the largest batch of ``auto``.

    They are at most 1,024, unless that batch is larger (T < 16), and such that a text of at least 16 chunks has at
    least 16 slices, or 8 if they hold at most 2,048 tokens each.

    >>> slice_length(229_367, 2048), slice_length(20, 512), slice_length(730, 512), slice_length(190, 128)
    (1024, 2, 32, 16)
    """
    batch = largest_batch(chunks, chunk_length)
    return max(batch, min(_LARGEST_SLICE, chunks // _SLICES) // batch * batch)


def largest_batch(chunks: int, chunk_length: int) -> int:
    """Return the largest batch size of ``auto``: a power of two, at most 16,384 tokens, that leaves enough slices."""
    batch = 1
    while batch * 2 * chunk_length <= _GPU_TOKENS:
        small = batch * 2 * chunk_length <= _CPU_TOKENS
        if batch * 2 * (_FEWEST_SLICES if small else _SLICES) > chunks:
            break
        batch *= 2
    return batch


def first_batch(chunks: int, chunk_length: int, device: str) -> int:
    """Return the initial batch size of ``auto``: a power of two that divides the slices."""
    batch = largest_batch(chunks, chunk_length)
    while device == "cpu" and batch > 1 and batch * chunk_length > _CPU_TOKENS:
        batch //= 2
    return batch
