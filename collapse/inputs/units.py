"""Convert labelled data to inputs of a model. A unit is an image, or a text with one or several samples.

Shapes: B units of a batch, N units, T tokens of the longest text.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from collapse.core.settings import quiet
from collapse.errors import CollapseError, UsageError, counted, first_line
from collapse.hub.references import ModelReference, limit_of, remember_tokenizer
from collapse.inputs.labelled_data import Labelled, class_ids
from collapse.inputs.model_loading import load_processor, load_tokenizer
from collapse.inputs.permuted_labels import permuted
from collapse.inputs.tasks import Task
from collapse.numerics.dense_moments import IGNORED

MASKED, MASKING_SEED = 0.15, 0
"""Fraction of all tokens that are selected for masking (special tokens stay unmasked), and the seed."""


class Images:
    """Images of labelled data, each read when a batch needs it; ``labels`` are their class ids, shape (N,)."""

    def __init__(self, data: Labelled, processor: Any, config: Any) -> None:
        self.data, self.processor = data, processor
        self.mode = "L" if getattr(config, "num_channels", 3) == 1 else "RGB"
        self.labels = _one_each(data, config)

    def batch(self, start: int, stop: int) -> dict[str, Tensor]:
        """Return the processor's tensors of images ``start`` to ``stop − 1``, which threads read in parallel.

        Raises:
            CollapseError: An image has changed, cannot be read or processed, or has another size than the others.
        """
        with ThreadPoolExecutor() as threads:
            read = list(threads.map(self._pixels, range(start, stop)))
        for name in read[0]:
            if len(shapes := dict.fromkeys(tuple(each[name].shape[1:]) for each in read)) > 1:
                raise CollapseError(
                    f"the image processor returns images of {self.data.name} in different sizes, such as "
                    f"{' and '.join(map(str, [*shapes][:2]))}: give images of one size, or a processor that resizes"
                )
        return {name: torch.cat([each[name] for each in read]) for name in read[0]}

    def _pixels(self, number: int) -> dict[str, Tensor]:
        image = self._image(number)
        try:
            return dict(self.processor(images=image, return_tensors="pt"))
        except Exception as error:  # a processor can raise anything
            raise CollapseError(
                f"the image processor cannot process image {number} of {self.data.name}: {type(error).__name__}: "
                f"{first_line(error)}. Repair or remove this image"
            ) from error

    def _image(self, number: int) -> Any:
        from PIL import Image, ImageOps

        name = f"image {number} of {self.data.name}"
        try:
            held = self.data.inputs[0][number]
            if not isinstance(held, str):
                return held.convert(self.mode)
            name, content = held, Path(held).read_bytes()
            if not self.data.hashes or sha256(content).hexdigest() == self.data.hashes[number]:
                return ImageOps.exif_transpose(Image.open(BytesIO(content))).convert(self.mode)  # as datasets does
        except (OSError, ValueError, SyntaxError, AttributeError) as error:  # Pillow raises all of them
            raise CollapseError(f"{name} cannot be read as an image: repair or remove it") from error
        raise CollapseError(f"{name} changed while it was read: run the same command again")


class Tokenized:
    """Tokenized texts.

    Args:
        encoded: The tokenizer's output: columns such as ``input_ids``, with a list of integers per text.
        labels: Class ids, shape (N,), or (N, T) with −100 where there is no sample.
        padding: Id of the padding token.
    """

    def __init__(self, encoded: Mapping[str, Sequence[Any]], labels: Tensor, padding: int) -> None:
        self.labels, self.padding = labels, padding
        self.columns = {name: [np.array(row, np.int32) for row in rows] for name, rows in encoded.items()}

    def batch(self, start: int, stop: int) -> dict[str, Tensor]:
        """Return the columns of texts ``start`` to ``stop − 1``, int64, padded on the right to the longest text."""
        return {
            name: pad_sequence(
                [torch.from_numpy(row).long() for row in rows[start:stop]],
                batch_first=True,
                padding_value=self.padding if name == "input_ids" else 0,
            )
            for name, rows in self.columns.items()
        }


Units = Images | Tokenized


def prepare(task: Task, reference: ModelReference, config: Any, *, trust_remote_code: bool) -> Any:
    """Load a processor or tokenizer; return a function that converts :class:`Labelled` to :class:`Units`.

    For images, ``reference`` is the model, which has the processor; for texts, it is the tokenizer. ``config`` is the
    model's configuration. Texts are cut to the maximum sequence length of the model and of the tokenizer. The returned
    function raises UsageError or CollapseError for data that do not fit the task.

    Raises:
        CollapseError: The processor or tokenizer cannot be loaded.
    """
    if task.name == "image-classification":
        processor = load_processor(reference, trust_remote_code=trust_remote_code)
        return lambda data: Images(data, processor, config)
    tokenizer = load_tokenizer(reference, trust_remote_code=trust_remote_code)
    remember_tokenizer(reference)
    limit = min(tokenizer.model_max_length, limit_of(config.to_dict()) or tokenizer.model_max_length)
    how = {"truncation": limit < 1e9, "max_length": limit if limit < 1e9 else None}
    # the model's own id comes first, because some models search the inputs for it
    known = (getattr(config, "pad_token_id", None), tokenizer.pad_token_id, 0)
    padding = next(each for each in known if each is not None and each >= 0)

    def tokenized(data: Labelled) -> Tokenized:
        inputs = [_texts(data.name, column, of_words=task.name == "token-classification") for column in data.inputs]
        if task.name == "sequence-classification":
            return Tokenized(_encoded(data.name, tokenizer, *inputs, **how), _one_each(data, config), padding)
        if task.name == "token-classification":
            encoded = _encoded(data.name, tokenizer, *inputs, **how, is_split_into_words=True)
            without = [[0] * len(words) for words in inputs[0]]
            given = without if data.labels is None else class_ids(data, config.id2label)
            rows = [_first_of_words(encoded, at, each, inputs[0][at], data.name) for at, each in enumerate(given)]
            return Tokenized(encoded, _padded(rows), padding)
        if tokenizer.mask_token_id is None:
            raise UsageError(f"the tokenizer of {reference.name} has no mask token: give a masked language model")
        encoded = _encoded(data.name, tokenizer, *inputs, **how, return_special_tokens_mask=True)
        special = encoded.pop("special_tokens_mask")
        return Tokenized(encoded, _masked(encoded["input_ids"], special, tokenizer.mask_token_id), padding)

    return tokenized


def _texts(called: str, column: Sequence[Any], *, of_words: bool) -> list[Any]:
    """Return a column as a list; raise UsageError if a row has the wrong type.

    With ``of_words``, each row must be a list of words; otherwise, each row must be a text. ``called`` is the name of
    the data, for messages.
    """
    rows = list(column)
    for number, row in enumerate(rows, 1):
        if not (isinstance(row, list) if of_words else isinstance(row, str)):
            wanted = "a list of words" if of_words else "a text"
            raise UsageError(
                f"row {number:,} of {called} holds {row!r:.60} instead of {wanted}: choose another column with "
                "--columns, or correct this row"
            )
    return rows


def _one_each(data: Labelled, config: Any) -> Int[Tensor, " N"]:
    """Return the class id of each row's label, as in ``config``; raise UsageError if a row has a list of labels."""
    for number, label in enumerate(data.labels or (), 1):
        if isinstance(label, list):
            raise UsageError(
                f"row {number:,} of {data.name} has the labels {label!r:.60}, but each row needs one label: choose "
                "another column with --columns"
            )
    return torch.tensor(class_ids(data, config.id2label))


def _encoded(called: str, tokenizer: Any, *inputs: Sequence[Any], **how: Any) -> Any:
    with quiet("transformers"):
        try:
            encoded = tokenizer(*inputs, return_attention_mask=True, **how)
        except Exception as error:  # a tokenizer can raise anything
            raise CollapseError(
                f"the tokenizer cannot encode the texts: {first_line(error)}; give another --tokenizer"
            ) from error
    for number, row in enumerate(encoded["input_ids"], 1):
        if not row:  # a model would read padding instead
            raise UsageError(f"row {number:,} of {called} has no tokens: remove this row")
    return encoded


def _first_of_words(encoded: Any, number: int, labels: Any, given: list[str], called: str) -> np.ndarray:
    """Return the labels of a text's tokens: the first token of a word has the word's label, all others have −100.

    ``number`` is the row of the text in ``encoded``, from 0. ``labels`` and ``given`` are the labels and words of the
    text, and ``called`` is the name of the data, for messages. Raise UsageError unless each word has a label. Raise
    CollapseError if the tokenizer is a "slow" one of transformers, which does not know the words of its tokens.
    """
    if not encoded.is_fast:
        raise CollapseError("token classification needs a fast tokenizer: give a model that has a tokenizer.json")
    words = [-1 if word is None else word for word in encoded.word_ids(number)]
    if not isinstance(labels, list) or len(labels) != len(given):
        held = len(labels) if isinstance(labels, list) else "no list of"
        raise UsageError(
            f"row {number + 1:,} of {called} has {held} labels for {counted(len(given), 'word')}: choose other columns "
            "with --columns, or correct this row"
        )
    before = [-1, *words][: len(words)]
    firsts = [word >= 0 and word != last for word, last in zip(words, before, strict=True)]
    return np.array([labels[word] if first else IGNORED for word, first in zip(words, firsts, strict=True)])


def _masked(ids: list[list[int]], special: Sequence[Sequence[int]], mask: int) -> Int[Tensor, "N T"]:
    """Replace tokens in ``ids`` by ``mask``, in place; return the original id of each masked token, −100 elsewhere.

    A permutation of all positions with a fixed seed selects the share ``MASKED`` of them. Special tokens, which have 1
    in ``special``, are never masked.
    """
    rows, begin, total = [], 0, sum(map(len, ids))
    for row, is_special in zip(ids, special, strict=True):
        at = permuted(torch.arange(begin, begin + len(row)), total, MASKING_SEED).numpy()
        chosen = (at < MASKED * total) & (np.array(is_special) == 0)
        rows.append(np.where(chosen, row, IGNORED))
        row[:] = np.where(chosen, mask, row).tolist()
        begin += len(row)
    return _padded(rows)


def _padded(rows: Sequence[np.ndarray]) -> Int[Tensor, "N T"]:
    tensors = [torch.from_numpy(row.astype(np.int32)) for row in rows]
    return pad_sequence(tensors, batch_first=True, padding_value=IGNORED)
