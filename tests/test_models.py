"""Models of other families: tied or untied, with or without bias, half precision; and no logits while training."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import collapse
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.model_loading import load_model
from collapse.inputs.references import find_model
from collapse.inputs.suitability import check_model

FAMILIES = {
    "llama, untied": (
        "LlamaConfig",
        {"num_key_value_heads": 2, "tie_word_embeddings": False, "num_attention_heads": 4},
    ),
    "phi, biased head": ("PhiConfig", {"num_attention_heads": 4, "tie_word_embeddings": False}),
    "gpt-neox": ("GPTNeoXConfig", {"num_attention_heads": 4}),
    "bert": ("BertConfig", {"num_attention_heads": 4, "initializer_range": 0.2}),
    "opt": ("OPTConfig", {"num_attention_heads": 4, "ffn_dim": 64, "word_embed_proj_dim": 16, "dropout": 0.0}),
}


def made(tiny, folder: Path, kind: str, **more: object) -> Path:
    name, options = FAMILIES[kind]
    config = getattr(transformers, name)(
        vocab_size=512,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        max_position_embeddings=64,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
        **options | more,
    )
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config)
    head = model.get_output_embeddings()
    if getattr(head, "bias", None) is not None:
        torch.nn.init.normal_(head.bias)
    shutil.copytree(tiny.model, folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder)
    return folder


def chunks_of(model: Path, file: Path) -> torch.Tensor:
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    rows = [json.loads(line)["text"] for line in file.read_text().splitlines()]
    flat = [each for row in tokenizer(rows[: -(-len(rows) // 2)])["input_ids"] for each in row]
    return torch.tensor([flat[i : i + 32] for i in range(0, len(flat) - 31, 32)])[:24]


@pytest.mark.parametrize("kind", sorted({*FAMILIES} - {"bert"}))
def test_measurements_equal_float64_on_dumped_embeddings(tiny, tmp_path, reference, kind):
    folder = made(tiny, tmp_path / "model", kind)
    options = {"max_chunks": 24, "batch_size": 4, "exact_loss": True, **tiny.options()}
    store = collapse.collect(folder, store=tmp_path / "s", **options)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    head = model.get_output_embeddings()
    seen: list[torch.Tensor] = []
    head.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    dumped: dict[str, np.ndarray] = {"classifier": head.weight.detach().numpy()}
    if head.bias is not None:
        dumped["classifier_bias"] = head.bias.detach().numpy()
    for name, file in (("train", tiny.text), ("validation", tiny.validation)):
        chunks = chunks_of(folder, file)
        seen.clear()
        with torch.no_grad():
            for batch in chunks.split(4):
                model(input_ids=batch, use_cache=False)
        h = torch.cat(seen)
        dumped[f"{name}_features"] = h[:, :-1].reshape(-1, h.shape[-1]).numpy()
        dumped[f"{name}_labels"] = chunks[:, 1:].reshape(-1).numpy()
    expected = reference.everything(dumped)
    measured = collapse.measure(store).measurements
    for name, value in expected.items():
        assert measured[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name
    assert measured["n_params"] == model.num_parameters()
    assert ("bias" in store.tensors("classifier")) == (head.bias is not None)


def test_training_text_is_run_without_logits(tiny):
    loaded = load_model(find_model(str(tiny.model)), CollectionSpec())
    calls = []
    loaded.model.get_output_embeddings().register_forward_hook(lambda *_: calls.append(1))
    tokens = torch.randint(500, (3, 32))
    h = loaded.embeddings(tokens)
    assert h.shape == (3, 32, 48)
    assert not calls
    check_model(loaded, tokens)
    assert calls


def test_bfloat16_is_kept_as_it_came(tiny, tmp_path):
    store = collapse.collect(tiny.model, store=tmp_path / "s", dtype="bfloat16", max_chunks=20, **tiny.options())
    assert store.tensors("classifier")["weight"].dtype == torch.bfloat16
    assert store.tensors("train")["means"].dtype == torch.float64
    row = collapse.measure(store)
    assert [note.text for note in row.notes if note.kind == "low_precision"] == [
        "bfloat16 rounds each entry of an embedding by up to 0.39%: compare only rows of one dtype"
    ]
    # the text is short, so that noise decides the debiased interference
    assert {name for name, value in row.measurements.items() if value is None} <= {"nc2.interference_debiased"}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_that_sees_the_tokens_to_predict_is_refused(tiny, tmp_path, dtype):
    bert = made(tiny, tmp_path / "bert", "bert")
    with pytest.raises(collapse.CollapseError, match="BertLMHeadModel is not causal: later tokens change") as error:
        collapse.collect(bert, store=tmp_path / "s", max_chunks=20, dtype=dtype, **tiny.options())
    assert "--model-arg is_decoder=true" in str(error.value)
    options = {"max_chunks": 20, "dtype": dtype, "model_args": {"is_decoder": True}, **tiny.options()}
    assert collapse.collect(bert, store=tmp_path / "s", **options).state == "complete"


def test_a_model_that_cannot_be_run_costs_one_line(tiny, tmp_path, told):
    folder = made(tiny, tmp_path / "model", "llama, untied", head_dim=3)  # rotary embeddings need an even one
    said = told(1, "collect", folder, *tiny.words("--store", tmp_path / "s")[1:])
    assert "LlamaForCausalLM cannot be run on 1 × 64 tokens: " in said
