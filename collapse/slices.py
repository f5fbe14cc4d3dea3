"""A text in slices: fixed runs of chunks, the unit of work and of resuming.

Slices depend on the text and the chunk length alone, never on the batch size. After each slice the state is written,
and a killed run resumes from there to the same bytes. Batches never cross a slice's border.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from collapse.errors import CollapseError
from collapse.finite import NotFinite
from collapse.models import LanguageModel, out_of_memory
from collapse.packing import Chunks
from collapse.partial import Partial, Progress
from collapse.planning import first_batch, part_of, slice_length
from collapse.precision import is_exact
from collapse.reporting import Report

log = logging.getLogger("collapse")


@dataclass(frozen=True)
class Slices:
    """The slices of one phase's text, and which of them this part does.

    Attributes:
        phase: "train" or "validation".
        chunks: The packed text.
        length: Chunks a slice.
        start, stop: The first slice of this part, and the first behind it.
        first_batch: Chunks a batch to begin with, at most a slice.
    """

    phase: str
    chunks: Chunks
    length: int
    start: int
    stop: int
    first_batch: int

    @classmethod
    def cut(
        cls, phase: str, chunks: Chunks, *, batch_size: int | str, part: tuple[int, int] | None, device: str
    ) -> "Slices":
        """Cut a text into slices; batch sizes and parts as of :func:`collapse.collect`."""
        fixed = batch_size if isinstance(batch_size, int) else None
        length = slice_length(len(chunks), chunks.chunk_length)
        start, stop = part_of(-(-len(chunks) // length), part)
        batch = fixed or first_batch(len(chunks), chunks.chunk_length, device)
        return cls(phase, chunks, length, start, stop, min(batch, length))

    def coverage(self, done: list[list[int]]) -> dict[str, Any]:
        """What a manifest says of these slices."""
        slices = -(-len(self.chunks) // self.length)
        return {"chunks": len(self.chunks), "slice_chunks": self.length, "slices": slices, "done": done}

    def tokens(self, start: int, stop: int) -> Tensor:
        """Token ids of some chunks, int64, shape (stop − start, T)."""
        return torch.from_numpy(self.chunks.tokens[start:stop].astype("int64"))

    def have_labels(self, done: int, classes: Tensor, counts: Tensor) -> bool:
        """Whether these are the labels of this part's slices before ``done``, each counted once.

        Args:
            done: The first slice that is not counted.
            classes, counts: Labels, ascending, and how often each was counted.
        """
        size = int(self.chunks.tokens.max()) + 1
        expected = torch.zeros(size, dtype=torch.int64)
        for index in range(self.start, done):
            labels = self.tokens(index * self.length, min((index + 1) * self.length, len(self.chunks)))[:, 1:]
            expected += torch.bincount(labels.flatten(), minlength=size)
        seen, present = counts > 0, expected.nonzero().squeeze(1)
        return torch.equal(classes[seen], present) and torch.equal(counts[seen], expected[present])

    @property
    def first_chunk(self) -> int:
        """The first chunk of this part."""
        return self.start * self.length


def run_slices(
    slices: Slices,
    model: LanguageModel,
    *,
    place: Progress | None,
    add: Callable[[Tensor, Tensor], None],
    state: Callable[[], dict[str, Tensor]],
    partial: Partial,
    about: Callable[[], dict[str, Any]],
    report: Report | None = None,
) -> int:
    """Run the slices that are left through the model, writing the state after each.

    Args:
        slices: What to run.
        model: Gives the embeddings.
        place: How far an earlier run came, or None.
        add: Takes embeddings (B, T, d) and their tokens (B, T).
        state: Gives the tensors to write after a slice.
        partial: Where to write them.
        about: Gives what is to be found again beside them: fields of :class:`~collapse.partial.Progress`.
        report: Called as report(what, chunks done, chunks).

    Returns:
        The batch size in use at the end.

    Raises:
        CollapseError: An embedding is not finite, or memory ran out with a single chunk.
    """
    phase, chunks = slices.phase, slices.chunks
    batch = _batch_size(slices, place)
    written = {"phase": phase, "start": slices.start, "stop": slices.stop, "chunks": len(chunks)}
    written |= {"slice_chunks": slices.length, "first_batch": slices.first_batch}
    if place is None:
        partial.begin(**written, batch_size=batch, **about())
    end = min(slices.stop * slices.length, len(chunks))
    for index in range(place.done if place else slices.start, slices.stop):
        clock = time.perf_counter()
        low, high = index * slices.length, min((index + 1) * slices.length, len(chunks))
        position = low
        while position < high:
            tokens = slices.tokens(position, min(position + batch, high))
            try:
                h_BTd = model.embeddings(tokens)
            except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
                batch = _halved(batch, error)
                continue
            try:
                add(h_BTd, tokens)
            except NotFinite as error:
                chunk, sample = divmod(error.row, chunks.chunk_length - 1)
                raise CollapseError(
                    f"the embedding of sample {sample} of {phase} chunk {position + chunk} is {error.wrong}: "
                    "nothing was stored of it; try --dtype float32, and check the model's weights"
                ) from error
            if not is_exact():
                raise CollapseError(
                    f"torch's precision of float32 products was changed while {phase} chunk {position} was computed, "
                    "by another thread of this program or by the model's code: nothing was stored of it. Change it "
                    "before or afterwards; the same call goes on"
                )
            position += len(tokens)
            if report:
                report(f"collecting {phase}", position - slices.first_chunk, end - slices.first_chunk)
        tensors = state()  # before about(): a plugin statistic that fails in it is named there
        partial.write(tensors, **written, done=index + 1, batch_size=batch, **about())
        rate = (high - low) * chunks.chunk_length / (time.perf_counter() - clock)
        span = f"chunks {low}–{high - 1}, {rate:,.0f} tokens/s"
        log.info("%s: slice %d of %d done, %s", phase, index + 1, slices.stop, span)
    return batch


def samples(h_BTd: Tensor, tokens_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Each position's embedding with the token that follows it: T−1 samples a chunk, shapes (n, d) and (n,)."""
    return h_BTd[:, :-1].reshape(-1, h_BTd.shape[-1]), tokens_BT[:, 1:].reshape(-1)


def _batch_size(slices: Slices, place: Progress | None) -> int:
    """The batch size in use when the state was written, if the same one is asked for now; else what is asked for."""
    if place is None or place.first_batch not in (None, slices.first_batch):
        return slices.first_batch
    return min(place.batch_size, slices.length)


def _halved(batch: int, error: BaseException) -> int:
    if not out_of_memory(error):
        raise error
    if batch == 1:
        raise CollapseError(
            "memory ran out with a single chunk: lower --chunk-length, or use --dtype bfloat16 or --device cpu"
        ) from error
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    log.warning("memory ran out: going on with batches of %d chunks", batch // 2)
    return batch // 2
