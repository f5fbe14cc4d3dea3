"""Models with random weights as files, how they are loaded, and the chunks on which a collection runs them."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
import transformers
from architectures import SIZES

from collapse.hub.references import find_model
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.language_model import LanguageModel
from collapse.inputs.model_loading import load_model


def build(name: str, **options: Any) -> Any:
    """Return a tiny model of a class of transformers, with random weights and biases of its head."""
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    model = kind(kind.config_class(**SIZES | options))
    bias = getattr(model.get_output_embeddings(), "bias", None)
    if bias is not None:
        torch.nn.init.normal_(bias)
    return model


def save(model: Any, folder: Path, tokenizer: Path | None) -> Path:
    """Save a model with the tokenizer of another model."""
    if tokenizer:
        shutil.copytree(tokenizer, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    model.save_pretrained(folder)
    return folder


def saved(folder: Path, name: str = "LlamaForCausalLM", tokenizer: Path | None = None, **options: Any) -> Path:
    """Save a model of :func:`build`."""
    return save(build(name, **options), folder, tokenizer)


def load(model: Path, **options: Any) -> LanguageModel:
    """Load a model with options of a collection."""
    return load_model(find_model(str(model), model_args=options.get("model_args") or {}), CollectionSpec(**options))


def chunks_of(model: Path, file: Path, chunk_length: int = 32, most: int | None = 24, **options: Any) -> torch.Tensor:
    """Return the first chunks of a text in two shares, by their definition; options are the tokenizer's."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    rows = [json.loads(line)["text"] for line in file.read_text().splitlines() if line]
    half, chunks = -(-len(rows) // 2), []
    for share in (rows[:half], rows[half:]):
        flat = torch.tensor([each for row in tokenizer(share, **options)["input_ids"] for each in row])
        chunks.append(flat[: len(flat) // chunk_length * chunk_length].reshape(-1, chunk_length))
    return torch.cat(chunks)[:most]
