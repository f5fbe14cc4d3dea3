"""Collect a model that is already loaded, on texts that are already in memory."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from collapse.collection.collecting import collect
from collapse.core.progress import Report
from collapse.core.settings import quiet
from collapse.errors import CollapseError, UsageError, first_line
from collapse.stores.store import Store

_FOR_FILES = ("text", "validation_text", "split", "validation_split", "text_column", "tokenizer", "revision")
_ARGUMENTS = {"texts.jsonl": "texts", "validation.jsonl": "validation_texts", "--chunk-length": "chunk_length"}
"""What a message about the temporary files calls something, and what the caller calls it."""


def collect_loaded(
    model: Any,
    tokenizer: Any,
    texts: Iterable[str],
    validation_texts: Iterable[str] | None = None,
    *,
    name: str | None = None,
    step: int | None = None,
    store: str | Path | None = None,
    progress: Report | None = None,
    **options: Any,
) -> Store:
    """Collect a loaded model's embedding statistics on texts in memory, as :func:`collapse.collect` does from files.

    Model, tokenizer and texts are saved to a temporary folder first, and the store's identity is that of these files.
    The same model, tokenizer and texts give the same store each time. A model's own folder gives the same tensors, but
    its identity may hold another ``tokenizer``, because the library can write a tokenizer in other words than it reads.

    Args:
        model: A causal language model of transformers.
        tokenizer: Its tokenizer.
        texts: Training texts.
        validation_texts: Texts for NC4 and the loss, or None.
        name: The model's name in tables; None for the last part of ``model.name_or_path``.
        step: The training step; it ends the name in tables, such as ``model-step100``.
        store, progress: As of :func:`collapse.collect`.
        **options: Its other options, such as chunk_length, device and dtype.

    Raises:
        UsageError: An option is wrong, or names a text or tokenizer in another way.
        CollapseError: The model or tokenizer cannot be saved; or as :func:`collapse.collect`.
    """
    for option in _FOR_FILES:
        if option in options:
            raise UsageError(f"collect_loaded() takes no {option}: the texts and the tokenizer are given as they are")
    for given, kind in ((model, "model"), (tokenizer, "tokenizer")):
        if not hasattr(given, "save_pretrained"):
            raise UsageError(f"there is a {type(given).__name__} where a {kind} of transformers is needed")
    name = name or Path(str(getattr(model, "name_or_path", ""))).name or "model"
    name = name if step is None else f"{name}-step{step}"
    with TemporaryDirectory(prefix="collapse-") as temporary:
        # a name such as "model" is shown with the folder above it, which must not be the temporary one
        folder = Path(temporary) / "loaded" / (re.sub(r"[^\w.-]+", "-", name).strip(".-") or "model")
        named: dict[str, Any] = {"text": _written(Path(temporary) / "texts.jsonl", texts)}
        if validation_texts is not None:
            named["validation_text"] = _written(Path(temporary) / "validation.jsonl", validation_texts)
        try:
            with quiet("transformers"):
                model.save_pretrained(folder)
                tokenizer.save_pretrained(folder)
        except Exception as error:  # the model's own code
            raise CollapseError(f"{name} cannot be saved to be read again: {first_line(error)}") from error
        try:
            return collect(folder, store=store, progress=progress, **named, **options)
        except CollapseError as error:
            raise type(error)(_of_arguments(str(error))) from error


def _of_arguments(message: str) -> str:
    """Return a message about the written files as one about the arguments that they hold."""
    for written, argument in _ARGUMENTS.items():
        message = re.sub(rf"(?<![\w/.-]){re.escape(written)}", argument, message)
    return message


def _written(path: Path, texts: Iterable[str]) -> str:
    if isinstance(texts, str):
        raise UsageError("the texts must be several strings; there is one")
    if not isinstance(texts, Iterable):
        raise UsageError(f"the texts must be several strings; there is a {type(texts).__name__}")
    with path.open("w", encoding="utf-8") as file:
        for text in texts:
            if not isinstance(text, str):
                raise UsageError(f"the texts must be strings; one is a {type(text).__name__}")
            file.write(json.dumps({"text": text}) + "\n")
        if not file.tell():
            raise UsageError("there are no texts: give at least one string")
    return str(path)
