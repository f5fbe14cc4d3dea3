"""A model is measured only if every tensor of its checkpoint is used, and if it is a causal language model."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
import transformers
from random_models import load, saved
from safetensors.torch import load_file, save_file
from tiny_model import edit_json

import collapse

LAYER = "model.layers.1.self_attn"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    return saved(tmp_path_factory.mktemp("made") / "llama", tie_word_embeddings=False)


@pytest.fixture
def llama(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "llama"))


def add(folder: Path, more: dict[str, torch.Tensor], how: str = "single") -> None:
    """Add tensors to a checkpoint, and save it as one file, two shards or a pickle."""
    held = load_file(folder / "model.safetensors") | more
    if how == "single":
        save_file(held, folder / "model.safetensors", metadata={"format": "pt"})
        return
    (folder / "model.safetensors").unlink()
    if how == "pickled":
        torch.save(held, folder / "pytorch_model.bin")
        return
    where = {name: f"model-0000{1 + (name in more)}-of-00002.safetensors" for name in held}
    for file in {*where.values()}:
        part = {name: each for name, each in held.items() if where[name] == file}
        save_file(part, folder / file, metadata={"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))


def refused(folder: Path, match: str) -> None:
    with pytest.raises(collapse.CollapseError, match=match) as error:
        load(folder)
    assert "\n" not in str(error.value)


UNUSED = {
    "attention bias": {f"{LAYER}.q_proj.bias": torch.ones(32)},
    "adapter": {f"{LAYER}.q_proj.lora_A.default.weight": torch.ones(4, 32)},
    "mask of a window": {f"{LAYER}.bias": torch.ones(1, 1, 8, 8).tril().triu(-2)},
    "untied copy": {"transformer.word_embeddings.weight": torch.ones(512, 32)},
}


@pytest.mark.parametrize("kind", UNUSED)
def test_a_tensor_that_the_model_does_not_use_is_refused_by_name(llama, kind):
    add(llama, UNUSED[kind])
    (name,) = UNUSED[kind]
    refused(llama, rf"LlamaForCausalLM, which does not use 1 tensor of the checkpoint \({name}\)")


@pytest.mark.parametrize("how", ["single", "sharded", "pickled"])
def test_buffers_that_change_nothing_are_accepted(llama, how):
    plain = load(llama)
    rotation = plain.model.model.rotary_emb.inv_freq
    add(
        llama,
        {
            "model.layers.0.self_attn.rotary_emb.inv_freq": rotation.clone(),
            "model.layers.0.self_attn.rotary_emb.cos_cached": torch.outer(torch.arange(64), rotation).cos(),
            "model.layers.0.self_attn.bias": torch.ones(1, 1, 64, 64, dtype=torch.bool).tril(),
            "model.layers.0.self_attn.masked_bias": torch.tensor(-1e9),
            "model.position_ids": torch.arange(64)[None],
            "transformer.word_embeddings.weight": plain.model.get_input_embeddings().weight.detach().clone(),
            "output.weight": plain.weight.clone(),
        },
        how,
    )
    tokens = torch.arange(32)[None]
    assert torch.equal(load(llama).embeddings(tokens), plain.embeddings(tokens))
    if how == "single":
        add(llama, UNUSED["attention bias"], "sharded")
        refused(llama, "does not use 1 tensor")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_model_of_low_precision_keeps_the_buffers_of_transformers(llama, dtype):
    """Rotary frequencies in bfloat16 would turn distant positions by radians."""
    loaded = load(llama, dtype=dtype, fast_attention=False)
    plain = transformers.AutoModelForCausalLM.from_pretrained(llama, dtype=getattr(torch, dtype)).eval()
    tokens = torch.arange(48)[None]
    with torch.no_grad():
        assert torch.equal(loaded.embeddings(tokens), plain.get_decoder()(tokens).last_hidden_state)


def layer(number: int, held: dict[str, torch.Tensor], *more: str) -> dict[str, torch.Tensor]:
    """Return the tensors of a further layer, which may have more modules."""
    last = {key: each for key, each in held.items() if key.startswith("model.layers.1.")}
    made = {key.replace(".1.", f".{number}.", 1): each.clone() for key, each in last.items()}
    return made | {f"model.layers.{number}.{name}.weight": torch.ones(32) for name in more}


def test_only_layers_for_several_tokens_that_the_configuration_states_are_ignored(llama):
    held = load_file(llama / "model.safetensors")
    drafts = layer(2, held, "eh_proj") | layer(3, held, "eh_proj") | {"model.mtp.norm.weight": torch.ones(32)}
    add(llama, drafts)
    refused(llama, "which does not use 21 tensors of the checkpoint")
    edit_json(llama / "config.json", num_nextn_predict_layers=1)
    refused(llama, r"which does not use 10 tensors of the checkpoint \(model\.layers\.3\.eh_proj\.weight, ")
    edit_json(llama / "config.json", num_nextn_predict_layers=2)
    tokens = torch.arange(32)[None]
    h = load(llama).embeddings(tokens)
    add(llama, UNUSED["attention bias"])
    refused(llama, r"which does not use 1 tensor of the checkpoint \(model\.layers\.1\.self_attn\.q_proj\.bias\)")
    save_file(held, llama / "model.safetensors", metadata={"format": "pt"})
    assert torch.equal(load(llama).embeddings(tokens), h)
    add(llama, layer(2, held))  # an ordinary layer: the configuration states too few
    refused(llama, "which does not use 9 tensors of the checkpoint")


def test_a_head_that_contradicts_tied_embeddings_is_refused(llama):
    edit_json(llama / "config.json", tie_word_embeddings=True)
    refused(llama, r"the config\.json of .* ties lm_head\.weight to the input embedding, but the checkpoint")
    load(llama, model_args={"tie_word_embeddings": False})
    add(llama, {"lm_head.weight": load_file(llama / "model.safetensors")["model.embed_tokens.weight"].clone()})
    assert load(llama).tied


def test_an_adapter_needs_peft(llama, told, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "base_model_name_or_path": "a/b"}))
    for words in ([tmp_path], [llama, "--adapter", tmp_path]):
        assert "is a PEFT adapter, and peft is not installed: pip install" in told(1, "measure", *words)


def test_an_attention_that_is_given_wins_over_the_configuration(llama):
    edit_json(llama / "config.json", _attn_implementation="flash_attention_2")
    refused(llama, "names the implementation 'flash_attention_2'")
    assert load(llama, model_args={"attn_implementation": "eager"}).attention == "eager"
