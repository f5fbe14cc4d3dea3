"""Models on several devices, offloaded to disk, and quantized: the numbers of what transformers runs."""

import copy
import json
import shutil

import pytest
import torch
import transformers
from random_models import load, saved
from safetensors.torch import load_file
from test_whole_models import add

import collapse
from collapse.errors import CollapseError
from collapse.inputs.language_model import LanguageModel
from collapse.inputs.suitability import check_model

PARTS = ("model.embed_tokens", "model.layers.0", "model.layers.1", "model.norm", "model.rotary_emb", "lm_head")


@pytest.fixture(scope="module", params=[False, True], ids=["untied", "tied"])
def llama(request, tmp_path_factory):
    return saved(tmp_path_factory.mktemp("placed") / "llama", tie_word_embeddings=request.param)


@pytest.fixture(scope="module")
def untied(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("quantized") / "llama", tie_word_embeddings=False, hidden_size=64)


def collected(model, tiny, **options):
    return collapse.collect(model, tokenizer=str(tiny.model), max_chunks=8, **tiny.options(), **options)


@pytest.mark.parametrize("disk", [["model.layers.0"], ["lm_head", "model.embed_tokens"], PARTS])
def test_an_offloaded_model_has_the_same_numbers(llama, tmp_path, disk):
    places = {part: "disk" if part in disk else "cpu" for part in PARTS}
    (tmp_path / "map.json").write_text(json.dumps(places))
    folder = {"offload_folder": str(tmp_path / "offloaded")}
    plain, tokens = load(llama), torch.arange(64).reshape(2, 32)
    for placed in (
        load(llama, device_map=str(tmp_path / "map.json"), model_args=folder),
        load(llama, model_args={"device_map": places, **folder}),
    ):
        assert any(each.is_meta for each in placed.model.parameters())
        assert torch.equal(placed.weight, plain.weight)
        assert torch.equal(placed.embeddings(tokens), plain.embeddings(tokens))
        assert (placed.tied, placed.n_params, placed.input_rows) == (plain.tied, plain.n_params, plain.input_rows)


def test_copies_are_compared_with_offloaded_embeddings(untied, tmp_path):
    model = shutil.copytree(untied, tmp_path / "llama")
    add(model, {"embeddings": load_file(untied / "model.safetensors")["model.embed_tokens.weight"].clone()})
    folder = {"offload_folder": str(tmp_path / "offloaded")}
    assert load(model, device_map=dict.fromkeys(PARTS, "disk"), model_args=folder).weight.is_cpu


def test_a_device_map_is_not_part_of_the_key(llama, tiny, tmp_path):
    store = collected(llama, tiny, layers="all")
    places = dict.fromkeys(PARTS, "disk")
    for how in (
        {"device_map": "auto"},
        {"model_args": {"device_map": "cpu", "max_memory": {"cpu": "1GB"}}},
        {"device_map": places, "model_args": {"offload_folder": str(tmp_path)}},
    ):
        assert collected(llama, tiny, layers="all", **how).path == store.path
        assert collected(llama, tiny, layers="all", recollect=True, **how).digest == store.digest


def test_a_wrong_device_map_costs_a_line(untied, tiny, tmp_path, told):
    words = ("measure", untied, "--text", tiny.text, "--tokenizer", tiny.model, "--max-chunks", 8, "--device-map")
    for content, code, said in (
        ('{"lm_head": ', 2, "must be auto, "),
        ("[1, 2]", 2, "must be auto, "),
        ('{"": "nowhere"}', 1, ". Check --device-map"),
        (
            '{"lm_head": "cpu", "model.layers": "disk"}',
            1,
            "does not give any device for the",
        ),
    ):
        (tmp_path / "map.json").write_text(content)
        assert said in told(code, *words, tmp_path / "map.json")


def dequantized(model, untied):
    """The model in float32 with the rounded weights of a quantized one."""
    plain = transformers.AutoModelForCausalLM.from_pretrained(untied)
    for name, module in plain.named_modules():
        if isinstance(module, torch.nn.Linear):
            columns = torch.eye(module.in_features)
            module.weight.data = model.get_submodule(name)(columns).detach().T.contiguous()
    return LanguageModel.of(plain)


QUANTIZED = {"Int8WeightOnlyConfig": "torchao", "4bit": "bitsandbytes", "8bit": "bitsandbytes"}


@pytest.mark.parametrize("quantize", QUANTIZED)
@pytest.mark.filterwarnings("ignore")  # of the packages
def test_a_quantized_model_has_the_numbers_of_its_rounded_weights(untied, tiny, tmp_path, quantize):
    pytest.importorskip(QUANTIZED[quantize], reason=f"needs {QUANTIZED[quantize]}")
    loaded, tokens = load(untied, quantize=quantize), torch.arange(64).reshape(2, 32)
    h, expected = loaded.embeddings(tokens), dequantized(loaded.model, untied).embeddings(tokens)
    tolerance = 1e-5 if quantize == "Int8WeightOnlyConfig" else 0.03  # the others also round activations
    assert float((h - expected).norm() / expected.norm()) < tolerance
    assert float((h - load(untied).embeddings(tokens)).norm()) > 1e-4
    assert (loaded.n_params, loaded.tied) == (load(untied).n_params, False)
    store = collected(untied, tiny, quantize=quantize)
    assert store.identity["quantize"] == quantize
    # a checkpoint that is already quantized gives the same numbers
    loaded.model.save_pretrained(tmp_path / "saved")
    again = collected(tmp_path / "saved", tiny)
    assert torch.equal(again.tensors("train")["means"], store.tensors("train")["means"])
    with pytest.raises(CollapseError, match="does not apply to a quantized model: remove --quantize"):
        collected(tmp_path / "saved", tiny, quantize=quantize)
    assert again.manifest["model"]["n_params"] == store.manifest["model"]["n_params"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("quantize", ["Int8WeightOnlyConfig", "4bit"])
def test_a_quantized_head_is_dequantized(untied, quantize):
    pytest.importorskip(QUANTIZED[quantize], reason=f"needs {QUANTIZED[quantize]}")
    loaded = load(untied, quantize=quantize)
    model = loaded.model
    model.lm_head = copy.deepcopy(model.model.layers[0].self_attn.q_proj)
    made = LanguageModel.of(model)
    assert made.weight.shape == (64, 64)
    check_model(made, torch.arange(32)[None])


@pytest.mark.filterwarnings("ignore")
def test_wrong_quantizations_cost_a_line(untied, tiny, tmp_path):
    pytest.importorskip("torchao", reason="needs torchao")
    for quantize, said in (("Int8WeightOnly", "did you mean Int8WeightOnlyConfig"), ("16bit", "did you mean")):
        with pytest.raises(CollapseError, match=said):
            collected(untied, tiny, quantize=quantize)
    with pytest.raises(CollapseError, match="Int8WeightOnlyConfig quantizes no weight of GPT2LMHeadModel"):
        load(saved(tmp_path / "gpt2", "GPT2LMHeadModel"), quantize="Int8WeightOnlyConfig")  # which skips Conv1D


@pytest.mark.filterwarnings("ignore")  # of the package
def test_rounding_by_outliers_of_the_batch_is_no_look_ahead(tiny, tmp_path):
    pytest.importorskip("bitsandbytes", reason="needs bitsandbytes")
    deep = saved(tmp_path / "llama", hidden_size=64, num_hidden_layers=4, initializer_range=0.5)
    loaded, tokens = load(deep, quantize="8bit"), torch.arange(1, 65)[None]
    other = torch.cat([tokens[:, :32], tokens[:, 32:] + 100], dim=1)
    one, two = (loaded.embeddings(each)[:, :32].double() for each in (tokens, other))
    assert float(((one - two).norm(dim=-1) / one.norm(dim=-1)).median()) > 0.02  # beyond rounding in bfloat16
    assert collected(deep, tiny, quantize="8bit").state == "complete"
