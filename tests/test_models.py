"""Models are run without logits, in their dtype, and only if they are causal."""

import pytest
import torch
from random_models import load, saved

import collapse
from collapse.inputs.suitability import check_model


def test_training_text_is_run_without_logits(tiny):
    loaded = load(tiny.model)
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
    bert = saved(tmp_path / "bert", "BertLMHeadModel", tiny.model, initializer_range=0.2)
    with pytest.raises(collapse.CollapseError, match="BertLMHeadModel is not causal: later tokens change") as error:
        collapse.collect(bert, store=tmp_path / "s", max_chunks=20, dtype=dtype, **tiny.options())
    assert "--model-arg is_decoder=true" in str(error.value)
    options = {"max_chunks": 20, "dtype": dtype, "model_args": {"is_decoder": True}, **tiny.options()}
    assert collapse.collect(bert, store=tmp_path / "s", **options).state == "complete"


def test_a_model_that_cannot_be_run_costs_one_line(tiny, tmp_path, told):
    folder = saved(tmp_path / "model", tokenizer=tiny.model, head_dim=3)  # rotary embeddings need an even one
    said = told(1, "collect", folder, *tiny.words("--store", tmp_path / "s")[1:])
    assert "LlamaForCausalLM cannot be run on 1 × 64 tokens: " in said
