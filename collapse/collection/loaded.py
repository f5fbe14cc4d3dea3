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

    Model, tokenizer and texts are first saved to a temporary folder, and these files determine the store's identity.
    The same model, tokenizer and texts always give the same store. Collecting from the model's own folder gives the
    same tensors, but may give another ``tokenizer`` in the identity, because saving can change a tokenizer's files.

    Args:
        model: A causal language model of transformers.
        tokenizer: Its tokenizer.
        texts: Training texts.
        validation_texts: Texts for NC4 and the loss, or None.
        name: The model's name in tables; None for the last part of ``model.name_or_path``.
        step: The training step; it is added to the name in tables, such as ``model-step100``.
        store, progress: As in :func:`collapse.collect`.
        **options: Further options of :func:`collapse.collect`, such as chunk_length, device and dtype.

    Raises:
        UsageError: An option is invalid, or there are no texts.
        CollapseError: The model or tokenizer cannot be saved; or as in :func:`collapse.collect`.
    """
    name = name or Path(str(getattr(model, "name_or_path", ""))).name or "model"
    name = name if step is None else f"{name}-step{step}"
    with TemporaryDirectory(prefix="collapse-") as temporary:
        # a generic name such as "model" is shown with its parent folder, which must not be the temporary folder
        folder = Path(temporary) / "loaded" / (re.sub(r"[^\w.-]+", "-", name).strip(".-") or "model")
        named: dict[str, Any] = {"text": _written(Path(temporary) / "texts.jsonl", texts)}
        if validation_texts is not None:
            named["validation_text"] = _written(Path(temporary) / "validation.jsonl", validation_texts)
        try:
            with quiet("transformers"):
                model.save_pretrained(folder)
                tokenizer.save_pretrained(folder)
        except Exception as error:  # the model's own code can raise anything
            raise CollapseError(f"{name} cannot be saved to a temporary folder: {first_line(error)}") from error
        return collect(folder, store=store, progress=progress, **named, **options)


def _written(path: Path, texts: Iterable[str]) -> str:
    if isinstance(texts, str):
        raise UsageError("the texts must be a list of strings, got one string: give [text]")
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
        if not file.tell():
            raise UsageError("there are no texts: give at least one string")
    return str(path)
