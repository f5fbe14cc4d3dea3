"""Each architecture in architectures.py is measured as direct float64 measures its embeddings, or refused by name."""

from pathlib import Path
from typing import Any

import pytest
import reference
import torch
import transformers
from architectures import ARCHITECTURES, SIZES, Architecture
from random_models import build, chunks_of, save
from safetensors.torch import load_file, save_file

import collapse

MEASURED = [each for each in ARCHITECTURES if not each.refused]
REFUSED = [each for each in ARCHITECTURES if each.refused]
CHUNKS, T = 8, 64
# Rounding of float32 depends on the batch, which is a slice: one chunk.
OPTIONS = {"max_chunks": CHUNKS, "chunk_length": T, "exact_loss": True, "fast_attention": False}


def name_of(each: Architecture) -> str:
    return f"{each.model}, {each.special}"


def make(each: Architecture, folder: Path, tokenizer: Path) -> None:
    """Save a model with random weights, large enough that logits reach a cap, with a tokenizer."""
    model = build(each.model, **each.options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4 if parameter.dim() == 2 else 1)
        model.get_output_embeddings().weight.mul_(8)
    save(model, folder, tokenizer)
    if "multi-token" in each.special:
        add_draft_layer(folder)


def add_draft_layer(folder: Path) -> None:
    """Add a multi-token-prediction layer to a checkpoint, as DeepSeek-V3 has it."""
    held, n = load_file(folder / "model.safetensors"), SIZES["num_hidden_layers"]
    last = {key: each for key, each in held.items() if f"layers.{n - 1}." in key}
    more = {key.replace(f".{n - 1}.", f".{n}."): each.clone() for key, each in last.items()}
    more |= {f"model.layers.{n}.eh_proj.weight": torch.zeros(32, 64), f"model.layers.{n}.enorm.weight": torch.ones(32)}
    save_file(held | more, folder / "model.safetensors", metadata={"format": "pt"})


def dumped(each: Architecture, model: Any, folder: Path, texts: dict[str, Path]) -> tuple[dict[str, Any], float]:
    """Return what enters a model's head, and its classifier; and the validation loss of the model's own logits."""
    head, seen, losses = model.get_output_embeddings(), list[torch.Tensor](), list[torch.Tensor]()
    head.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    found: dict[str, Any] = {"classifier": (head.weight.detach().double() * each.scale).numpy(), "cap": each.cap}
    if each.bias:
        found["classifier_bias"] = (head.bias.detach().double() * each.scale).numpy()
    for name, file in texts.items():
        chunks = chunks_of(folder, file, T, CHUNKS)
        seen.clear()
        with torch.no_grad():
            for chunk in chunks.split(1):
                logits = model(input_ids=chunk, use_cache=False).logits[0, :-1].double()
                losses.append(torch.nn.functional.cross_entropy(logits, chunk[0, 1:]))
        h = torch.cat(seen)
        found[f"{name}_features"] = h[:, :-1].reshape(-1, h.shape[-1]).numpy()
        found[f"{name}_labels"] = chunks[:, 1:].reshape(-1).numpy()
    return found, float(torch.stack(losses[CHUNKS:]).mean())


@pytest.mark.parametrize("each", MEASURED, ids=name_of)
def test_measurements_equal_float64_on_dumped_embeddings(each, tiny, tmp_path):
    make(each, folder := tmp_path / "model", tiny.model)
    given = {"is_decoder": True} if each.model == "BertLMHeadModel" else {}
    store = collapse.collect(folder, store=tmp_path / "s", model_args=given, **tiny.options() | OPTIONS)
    head = {"scale": 1.0, "cap": None, **store.identity["head"]}
    assert head == {"tied": each.tied, "bias": each.bias, "scale": pytest.approx(each.scale), "cap": each.cap}
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **given).eval()
    features, own_loss = dumped(each, model, folder, {"train": tiny.text, "validation": tiny.validation})
    row = collapse.measure(store)
    measured, noted = row.measurements, {note.kind for note in row.notes}
    assert ("logit_scale" in noted, "logit_cap" in noted) == (each.scale != 1, each.cap is not None)
    for name, value in reference.everything(features).items():
        assert measured[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name
    assert measured["n_params"] == model.num_parameters()
    assert measured["val_loss"] == pytest.approx(own_loss, rel=1e-5)


@pytest.mark.parametrize("each", REFUSED, ids=name_of)
def test_a_model_that_predicts_no_next_token_is_refused_before_its_text_is_read(each, tiny, tmp_path, own_home):
    make(each, folder := tmp_path / "model", tiny.model)
    advice = r"collapse\.measure\(features=…, labels=…\)"
    with pytest.raises(collapse.CollapseError, match=rf"model is a {each.model}, not a causal .*{advice}"):
        collapse.collect(folder, store=tmp_path / "s", **tiny.options())
    assert not (own_home / "chunks").exists()
