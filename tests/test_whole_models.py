"""A model is measured only if each tensor of its checkpoint takes part, and if it is a causal language model at all."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import collapse
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.language_model import LanguageModel
from collapse.inputs.model_loading import load_model
from collapse.inputs.references import find_model

SIZES = {
    "vocab_size": 512,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
LAYER = "model.layers.1.self_attn"


def saved(folder: Path, kind: str = "Llama", head: str = "ForCausalLM", **options: object) -> Path:
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SIZES | options)
    getattr(transformers, f"{kind}{head}")(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    return saved(tmp_path_factory.mktemp("made") / "llama", tie_word_embeddings=False)


@pytest.fixture
def llama(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "llama"))


def add(folder: Path, more: dict[str, torch.Tensor], how: str = "single") -> None:
    """Add tensors to a checkpoint, which then is one file, two shards or a pickle."""
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


def state(folder: Path, **values: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


def load(folder: Path, **model_args: object) -> LanguageModel:
    return load_model(find_model(str(folder), model_args=model_args), CollectionSpec(model_args=model_args))


def refused(folder: Path, match: str, **model_args: object) -> None:
    with pytest.raises(collapse.CollapseError, match=match) as error:
        load(folder, **model_args)
    assert "\n" not in str(error.value)


UNUSED = {
    "attention bias": {f"{LAYER}.q_proj.bias": torch.ones(32)},
    "head bias": {"lm_head.bias": torch.ones(512)},
    "FP8 scale": {f"{LAYER}.q_proj.weight_scale_inv": torch.ones(1, 1)},
    "INT4 scales": {f"{LAYER}.q_proj.scales": torch.ones(1, 32)},
    "norm of queries": {f"{LAYER}.q_norm.weight": torch.ones(8)},
    "norm after attention": {"model.layers.0.post_feedforward_layernorm.weight": torch.ones(32)},
    "adapter": {f"{LAYER}.q_proj.lora_A.default.weight": torch.ones(4, 32)},
    "encoder": {"encoder.layers.0.self_attn.q_proj.weight": torch.ones(32, 32)},
    "expert": {"model.layers.0.mlp.experts.0.up_proj.weight": torch.ones(64, 32)},
    "layer": {"model.layers.2.self_attn.q_proj.weight": torch.ones(32, 32)},
    "head of values": {"value_head.weight": torch.zeros(1, 32)},
    "scaled rotation": {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4) / 8},
    "other prefix": {"layers.0.mlp.up_proj.weight": torch.ones(64, 32)},
    "mask of a window": {f"{LAYER}.bias": torch.ones(1, 1, 8, 8).tril().triu(-2)},
    "scaled cosines": {"model.layers.0.self_attn.rotary_emb.cos_cached": torch.full((1, 1, 64, 8), 0.5)},
    "another width": {"model.layers.0.self_attn.rotary_emb.sin_cached": torch.zeros(64, 6)},
    "attention sinks": {f"{LAYER}.sinks": torch.zeros(4)},
    "untied copy": {"transformer.word_embeddings.weight": torch.ones(512, 32)},
}


@pytest.mark.parametrize("kind", UNUSED)
def test_a_tensor_that_the_model_does_not_use_is_refused_by_name(llama, kind):
    add(llama, UNUSED[kind])
    (name,) = UNUSED[kind]
    refused(llama, rf"holds 1 tensor that LlamaForCausalLM does not use \({name}\)")


@pytest.mark.parametrize("how", ["sharded", "pickled"])
@pytest.mark.parametrize("kind", ["attention bias", "FP8 scale", "other prefix"])
def test_sharded_and_pickled_checkpoints_are_read_in_full(llama, how, kind):
    add(llama, UNUSED[kind], how)
    refused(llama, "does not use")


@pytest.mark.parametrize("how", ["single", "sharded", "pickled"])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("mlp.up_proj", torch.int8), ("self_attn.q_proj", torch.uint8), ("mlp.down_proj", torch.float8_e4m3fn)],
)
def test_weights_without_their_scale_are_refused(llama, name, dtype, how):
    name = f"model.layers.1.{name}.weight"
    add(llama, {name: load_file(llama / "model.safetensors")[name].sign().to(dtype)}, how)
    refused(llama, rf"holds 1 tensor that LlamaForCausalLM does not use \({name} as (I8|U8|F8_E4M3|{dtype})\)")


def test_a_copy_of_another_dtype_is_compared(llama):
    name, other = "model.layers.0.mlp.up_proj.weight", "layers.0.mlp.up_proj.weight"
    held = load_file(llama / "model.safetensors")[name]
    add(llama, {other: held.double()})
    load(llama)
    add(llama, {other: held.to(torch.float8_e4m3fn)})
    refused(llama, rf"does not use \({other}, {other} as F8_E4M3\)")


def test_entries_of_a_pickle_that_are_no_tensors_are_refused_in_a_line(llama):
    add(llama, {"step": 5, "args": {"lr": 0.1}}, "pickled")
    refused(llama, r"holds 2 tensors that LlamaForCausalLM does not use \(args, step\)")


@pytest.mark.parametrize(("old", "new"), [("gamma", "weight"), ("beta", "bias")])
def test_two_names_of_one_tensor_must_agree(tmp_path, old, new):
    folder = saved(tmp_path / "bert", "Bert", "LMHeadModel", is_decoder=True)
    norm = "bert.embeddings.LayerNorm"
    held = load_file(folder / "model.safetensors")[f"{norm}.{new}"]
    add(folder, {f"{norm}.{old}": held.clone()})
    load(folder)
    add(folder, {f"{norm}.{old}": held + 1})
    refused(folder, rf"does not use \(embeddings\.LayerNorm\.{new}\)")


@pytest.mark.parametrize("size", [64, 32])
def test_a_mask_is_compared_with_that_of_its_own_layer(tmp_path, size):
    options = {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]], "window_size": 16}
    folder = saved(tmp_path / "neo", "GPTNeo", **options)
    full = torch.ones(1, 1, size, size, dtype=torch.uint8).tril()
    masks = {f"transformer.h.{layer}.attn.attention.bias": full for layer in (0, 1)}
    add(folder, masks | {"transformer.h.1.attn.attention.bias": full.triu(-15)})
    load(folder)
    for wrong in (full, full.triu(-7)):
        add(folder, {"transformer.h.1.attn.attention.bias": wrong.contiguous()})
        refused(folder, r"does not use \(transformer\.h\.1\.attn\.attention\.bias\)")


def test_patterns_that_transformers_ignores_are_judged_by_their_content(tmp_path):
    folder = saved(tmp_path / "gpt2", "GPT2", "LMHeadModel")
    mask = {"transformer.h.0.attn.bias": torch.ones(1, 1, 64, 64).tril()}
    add(folder, mask)
    load(folder)
    add(folder, {"transformer.h.0.attn.bias": torch.ones(32)})
    refused(folder, r"does not use \(transformer\.h\.0\.attn\.bias\)")


@pytest.mark.parametrize("how", ["single", "sharded", "pickled"])
def test_buffers_that_change_nothing_are_accepted(llama, how):
    plain = load(llama)
    rotation = plain.model.model.rotary_emb.inv_freq
    angles = torch.outer(torch.arange(64), rotation).repeat(1, 2)
    add(
        llama,
        {
            "model.layers.0.self_attn.rotary_emb.inv_freq": rotation.clone(),
            "model.layers.1.self_attn.rotary_emb.inv_freq": rotation.bfloat16(),
            "model.layers.0.self_attn.rotary_emb.cos_cached": angles.cos()[None, None].half(),
            "model.layers.0.self_attn.rotary_emb.sin_cached": angles.sin(),
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


@pytest.mark.parametrize("key", ["num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers"])
@pytest.mark.parametrize("name", ["model.layers.2.eh_proj.weight", "mtp.layers.0.eh_proj.weight"])
def test_layers_for_multi_token_prediction_must_be_stated(llama, key, name):
    add(llama, {name: torch.ones(32, 64)})
    refused(llama, "does not use")
    state(llama, **{key: 1})
    load(llama)
    add(llama, {name.replace("2", "3").replace(".0.", ".1."): torch.ones(32, 64)})
    refused(llama, "holds 1 tensor that LlamaForCausalLM does not use")


@pytest.mark.parametrize("key", ["num_nextn_predict_layers", "mtp_num_hidden_layers"])
def test_an_ordinary_layer_is_not_one_for_multi_token_prediction(tmp_path, key):
    folder = saved(tmp_path / "llama", num_hidden_layers=3)
    state(folder, num_hidden_layers=2, **{key: 1})
    refused(folder, r"holds 9 tensors that LlamaForCausalLM does not use \(model\.layers\.2\.")


def test_a_head_that_contradicts_tied_embeddings_is_refused(llama):
    state(llama, tie_word_embeddings=True)
    refused(llama, r"its config\.json ties lm_head\.weight to the input embedding, but its checkpoint has another")
    load(llama, tie_word_embeddings=False)
    add(llama, {"lm_head.weight": load_file(llama / "model.safetensors")["model.embed_tokens.weight"].clone()})
    assert load(llama).tied


OTHERS: dict[str, Callable[[Path], Path]] = {
    "LlamaForSequenceClassification": lambda at: saved(at, "Llama", "ForSequenceClassification"),
    "GPT2DoubleHeadsModel": lambda at: saved(at, "GPT2", "DoubleHeadsModel", num_labels=1),
    "Qwen2ForTokenClassification": lambda at: saved(at, "Qwen2", "ForTokenClassification", tie_word_embeddings=True),
    "BertForMaskedLM": lambda at: saved(at, "Bert", "ForMaskedLM"),
    "BartForConditionalGeneration": lambda at: saved(at, "Bart", "ForConditionalGeneration", d_model=32),
    "T5ForConditionalGeneration": lambda at: saved(at, "T5", "ForConditionalGeneration", d_model=32, d_kv=8),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_a_model_of_another_kind_is_refused_and_shown_another_way(tmp_path, kind):
    refused(OTHERS[kind](tmp_path / "other"), rf"other is a {kind}, .*collapse\.measure\(features=…, labels=…\)")


def test_an_encoder_decoder_without_named_architecture_is_refused(tmp_path):
    folder = saved(tmp_path / "other", "Bart", "ForConditionalGeneration", d_model=32)
    state(folder, architectures=None)
    refused(folder, "other is a bart, not a causal language model")


def test_an_architecture_may_be_a_text(tmp_path):
    folder = saved(tmp_path / "other")
    state(folder, architectures="LlamaForSequenceClassification")
    refused(folder, "other is a LlamaForSequenceClassification")


@pytest.mark.parametrize("kind", ["su", "weird"])
def test_an_unknown_value_of_the_configuration_is_refused_in_a_line(llama, kind):
    state(llama, rope_parameters={"rope_type": kind, "rope_theta": 1e4})
    refused(llama, rf"its configuration lacks '{kind}', or names it where transformers knows no such value")


def test_a_body_alone_is_measured_with_its_tied_head(tmp_path):
    assert load(saved(tmp_path / "body", "Llama", "Model", tie_word_embeddings=True)).tied


@pytest.mark.parametrize("method", ["fp8", "gptq", "awq", "bitsandbytes", "unheard-of"])
def test_quantized_models_are_refused_in_a_line(llama, method):
    state(llama, quantization_config={"quant_method": method})
    refused(llama, r"^llama is quantized \(quantization_config\), and quantized models cannot be measured yet")


def test_a_quantization_that_is_null_is_none(llama):
    state(llama, quantization_config=None)
    load(llama)


def test_quantizing_while_loading_is_refused_in_a_line(llama):
    refused(llama, r"is quantized \(load_in_8bit\)", load_in_8bit=True)


@pytest.mark.parametrize("disk", [["model.layers.0"], ["model.layers.0", "model.layers.1", "lm_head"]])
def test_offloaded_models_are_refused_in_a_line(llama, tmp_path, disk):
    parts = ["model.embed_tokens", "model.layers.0", "model.layers.1", "model.norm", "model.rotary_emb", "lm_head"]
    places = {part: "disk" if part in disk else "cpu" for part in parts}
    add(llama, {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)})
    refused(llama, "spread over several devices", device_map=places, offload_folder=str(tmp_path / "off"))


@pytest.mark.parametrize("place", ["meta", {"": "disk"}, "cpu"])
def test_a_model_on_one_device_is_measured_if_that_holds_its_weights(llama, tmp_path, place):
    options = {"device_map": place, "offload_folder": str(tmp_path / "off")}
    if place == "cpu":
        load(llama, **options)
    else:
        refused(llama, "spread over several devices", **options)


def adapter(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "base_model_name_or_path": "a/b"}))
    save_file({"base_model.model.lora_A.weight": torch.zeros(4, 32)}, folder / "adapter_model.safetensors")
    return folder


def test_an_adapter_is_named_first_wherever_it_lies(hub, as_user, tiny, tmp_path):
    folder = adapter(tmp_path / "lora")
    said = r"lora holds a PEFT adapter \(adapter_config\.json\): merge it"
    with pytest.raises(collapse.CollapseError, match=said):
        collapse.collect(folder, **tiny.options() | {"chunk_length": None})
    hub.add("owner/lora", {file.name: file.read_bytes() for file in folder.iterdir()})
    done = as_user("measure", "owner/lora", "--text", tiny.text, ok=False)
    assert "owner/lora holds a PEFT adapter (adapter_config.json): merge it" in done.stderr


class Adapted:
    """As peft's model: its save_pretrained writes an adapter."""

    name_or_path = "owner/lora"

    def save_pretrained(self, folder: Path) -> None:
        adapter(folder)


def test_a_loaded_adapter_is_named_first(tiny):
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny.model)
    with pytest.raises(collapse.CollapseError, match="lora holds a PEFT adapter"):
        collapse.collect_loaded(Adapted(), tokenizer, ["one text"])


@pytest.mark.parametrize("key", ["_attn_implementation", "attn_implementation"])
@pytest.mark.parametrize("given", ["sdpa", "eager"])
def test_an_attention_that_is_given_wins_over_the_configuration(llama, key, given):
    state(llama, **{key: "flash_attention_2"})
    refused(llama, "names the implementation 'flash_attention_2'")
    assert load(llama, attn_implementation=given).attention == given
