"""What is loaded is what was named and hashed: every weight from the checkpoint."""

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf_files import write_gguf
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPTNeoConfig

import collapse
from collapse.errors import UsageError
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.gguf_keys import gguf_context
from collapse.inputs.model_loading import load_model
from collapse.inputs.references import find_model

GGUF = {"gguf_file": "x.gguf"}


@pytest.fixture
def copy(tiny, tmp_path) -> Path:
    """The tiny model in a folder of the test's own."""
    return Path(shutil.copytree(tiny.model, tmp_path / "copied"))


def rewrite(folder: Path, change) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file(change({name: tensor.clone() for name, tensor in weights.items()}), folder / "model.safetensors")


def refused(folder: Path, match: str, **options) -> str:
    with pytest.raises(collapse.CollapseError, match=match) as error:
        load_model(find_model(str(folder), model_args=options.get("model_args")), CollectionSpec(**options))
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("pickled", [False, True], ids=["safetensors", "pickle"])
def test_renamed_weights_are_refused_by_name(copy, pickled):
    rewrite(copy, lambda weights: {f"other.{name}": each for name, each in weights.items()})
    if pickled:
        torch.save(load_file(copy / "model.safetensors"), copy / "pytorch_model.bin")
        (copy / "model.safetensors").unlink()
    said = refused(copy, "copied: its checkpoint lacks 31 weights of GPTNeoForCausalLM")
    assert "lm_head.weight, transformer.h.0.attn.attention.k_proj.weight" in said
    assert "and 28 more" in said
    assert "it holds 30 that GPTNeoForCausalLM does not know (other.transformer.h.0.attn" in said


def test_a_checkpoint_without_a_layer_is_refused(copy):
    rewrite(copy, lambda weights: {name: each for name, each in weights.items() if ".h.1." not in name})
    refused(copy, r"lacks 13 weights of \w+ \(transformer\.h\.1\.attn")


def test_a_configuration_that_leaves_layers_out_is_refused(copy):
    config = json.loads((copy / "config.json").read_text())
    shorter = {"num_layers": 1, "attention_layers": ["global"], "attention_types": [[["global"], 1]]}
    (copy / "config.json").write_text(json.dumps(config | shorter))
    refused(copy, r"GPTNeoForCausalLM ignores 13 tensors of the checkpoint \(transformer\.h\.1\.attn")


def test_a_base_model_needs_its_head_unless_that_is_tied(tiny, tmp_path):
    for tied in (True, False):
        config = GPTNeoConfig.from_pretrained(tiny.model, tie_word_embeddings=tied)
        AutoModelForCausalLM.from_config(config).transformer.save_pretrained(tmp_path / str(tied))
    refused(tmp_path / "False", r"lacks 1 weight of \w+ \(lm_head\.weight\)")
    loaded = load_model(find_model(str(tmp_path / "True")))
    assert loaded.tied


def test_weights_of_another_shape_are_refused_by_name(copy):
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"vocab_size": 600}))
    refused(copy, r"wte\.weight 512×48, not 600×48")


def test_gguf_without_its_package_names_the_extra(tmp_path, monkeypatch):
    (tmp_path / "gguf.py").write_text('raise ModuleNotFoundError("No module named \'gguf\'", name="gguf")')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "gguf", raising=False)
    with pytest.raises(
        collapse.CollapseError,
        match=r"^gguf is not installed: pip install 'linguistic-collapse\[gguf\]', or in a checkout '\.\[gguf\]'$",
    ):
        gguf_context(tmp_path / "x.gguf")


def test_gguf_without_a_layer_is_refused(tmp_path):
    for name, layers, blocks in (("whole", 2, 2), ("lacking", 1, 2)):
        write_gguf(tmp_path / name / "x.gguf", layers, blocks)
    named = {"gguf_file": "x.gguf"}
    whole = load_model(find_model(str(tmp_path / "whole"), model_args=named), CollectionSpec(model_args=named))
    assert whole.weight.shape[1] == 32
    refused(tmp_path / "lacking", r"lacks 9 weights of \w+ \(model\.layers\.1\.", model_args=named)


UNREAD_KEYS = {
    "rope.scaling.factor": 4.0,
    "rope.freq_base_swa": 1000.0,
    "logit_scale": 0.0625,
    "attn_logit_softcapping": 50.0,
    "attention.sliding_window": 16,
    "attention.causal": False,
}
UNREAD_TENSORS = {"rope_freqs.weight": np.full(8, 4, np.float32), "blk.0.attn_q.bias": np.ones(32, np.float32)}


@pytest.mark.parametrize("key", UNREAD_KEYS)
def test_a_gguf_key_that_is_not_read_is_refused_by_name(tmp_path, key):
    write_gguf(tmp_path / "m" / "x.gguf", 2, 2, keys={key: UNREAD_KEYS[key]})
    refused(tmp_path / "m", rf"does not use all of the GGUF file.*\(.*llama\.{key}\b", model_args=GGUF)


@pytest.mark.parametrize("name", UNREAD_TENSORS)
def test_a_gguf_tensor_that_is_not_read_is_refused_by_name(tmp_path, name):
    write_gguf(tmp_path / "m" / "x.gguf", 2, 2, tensors={name: UNREAD_TENSORS[name]})
    refused(tmp_path / "m", rf"does not use all of the GGUF file.*\({name}\)", model_args=GGUF)


def test_gguf_keys_and_tensors_that_change_nothing_are_accepted(tmp_path):
    neutral = {"rope.scaling.type": "none", "rope.scaling.factor": 1.0, "logit_scale": 0.0, "expert_count": 0}
    read = {"rope.freq_base": 10000.0, "attention.key_length": 16, "attention.value_length": 16}
    write_gguf(tmp_path / "plain" / "x.gguf", 2, 2)
    write_gguf(
        tmp_path / "m" / "x.gguf",
        2,
        2,
        keys=neutral | read | {"expert_used_count": 0, "rope.scaling.original_context_length": 64},
        tensors={"rope_freqs.weight": np.ones(8, np.float32)},
    )
    one, other = (
        load_model(find_model(str(tmp_path / name), model_args=GGUF), CollectionSpec(model_args=GGUF))
        for name in ("plain", "m")
    )
    tokens = torch.arange(32)[None]
    assert torch.equal(one.embeddings(tokens), other.embeddings(tokens))


def test_a_gguf_file_is_given_by_its_path(tiny, tmp_path):
    write_gguf(tmp_path / "m" / "x.gguf", 2, 2, vocabulary=512)
    how = {"text": str(tiny.text), "tokenizer": str(tiny.model), "chunk_length": 32, "max_chunks": 4}
    named = collapse.collect(tmp_path / "m", model_args={"gguf_file": "x.gguf"}, **how)
    assert collapse.collect(tmp_path / "m" / "x.gguf", **how).digest == named.digest


def test_loading_a_gguf_file_reports_its_tensors_and_shows_no_bar_of_transformers(tmp_path, capsys):
    from transformers import modeling_gguf_pytorch_utils as reading

    write_gguf(tmp_path / "m" / "x.gguf", 2, 2)
    named, reported, bar = {"gguf_file": "x.gguf"}, [], reading.tqdm
    reference = find_model(str(tmp_path / "m"), model_args=named)
    load_model(reference, CollectionSpec(model_args=named), lambda *words: reported.append(words))
    what, done, total = reported[-1]
    assert reference.name in what
    assert done == total == len(reported)
    assert "GGUF" not in capsys.readouterr().err
    assert reading.tqdm is bar


def test_a_file_overwritten_later_does_not_reach_the_model(tiny, tmp_path):
    torch.manual_seed(0)
    config = GPTNeoConfig.from_pretrained(tiny.model, hidden_size=256, vocab_size=6000)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "m")
    loaded = load_model(find_model(str(tmp_path / "m")))
    before = {name: each.clone() for name, each in loaded.model.named_parameters()}
    with (tmp_path / "m" / "model.safetensors").open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(size // 3)
        file.write(bytes(size - size // 3))
    for name, each in loaded.model.named_parameters():
        assert torch.equal(each, before[name]), name


@pytest.mark.parametrize("value", [float("nan"), torch.float32])
def test_arguments_are_values_of_json(tiny, tmp_path, value):
    with pytest.raises(UsageError, match="--model-arg attention_dropout=… must be a value of JSON"):
        collapse.collect(tiny.model, model_args={"attention_dropout": value}, **tiny.options())


def test_a_revision_of_a_folder_is_refused(tiny):
    with pytest.raises(UsageError, match="is a local folder, which has no revisions: omit --revision"):
        find_model(str(tiny.model), revision="v2")


def test_token_ids_beyond_the_embedding_are_refused(tiny, copy, tmp_path):
    file = copy / "tokenizer.json"
    content = json.loads(file.read_text())
    letter = "a" if "a" in content["model"]["vocab"] else next(iter(content["model"]["vocab"]))
    content["model"]["vocab"][letter] = 600
    file.write_text(json.dumps(content))
    with pytest.raises(collapse.CollapseError, match=r"the text holds token id 600, but .* embeds 512 tokens"):
        collapse.collect(copy, store=tmp_path / "s", max_chunks=20, **tiny.options())


@pytest.mark.parametrize("kept", [-1000, 1000], ids=["tensor", "header"])
def test_weights_that_are_cut_short_are_to_be_fetched_again(copy, kept):
    file = copy / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    refused(copy, "copied cannot be loaded .*: a file of its weights is damaged or cut short: download it again")


def test_a_gguf_file_that_is_cut_short_is_to_be_fetched_again(tmp_path):
    write_gguf(file := tmp_path / "m" / "m.gguf", 2, 2)
    assert gguf_context(file) == 64
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(collapse.CollapseError, match=r"m\.gguf cannot be read as GGUF: .*cut short: download it again"):
        gguf_context(file)


def test_a_gguf_file_is_known_by_its_content(tiny, tmp_path):
    write_gguf(tmp_path / "m" / "x.gguf", 2, 2, vocabulary=512, tokenizer=tiny.model / "tokenizer.json")
    how = {"text": str(tiny.text), "chunk_length": 32, "max_chunks": 4}
    first = collapse.collect(tmp_path / "m" / "x.gguf", **how)
    (tmp_path / "m" / "x.gguf").rename(tmp_path / "m" / "y.gguf")
    again = collapse.collect(tmp_path / "m" / "y.gguf", **how)
    assert (again.path, again.digest, again.named["model"]) == (first.path, first.digest, "m/y.gguf")
    assert collapse.measure(again, metrics=["nc1.cdnv"]).model == "y.gguf"
    write_gguf(tmp_path / "o" / "x.gguf", 1, 1, vocabulary=512, tokenizer=tiny.model / "tokenizer.json")
    other = collapse.collect(tmp_path / "o" / "x.gguf", **how)
    assert other.identity["weights"] != first.identity["weights"]


def test_a_gguf_file_on_the_hub_has_the_store_of_the_same_file_here(hub, as_user, tiny, tmp_path):
    write_gguf(tmp_path / "m" / "x.gguf", 2, 2, vocabulary=512, tokenizer=tiny.model / "tokenizer.json")
    content = (tmp_path / "m" / "x.gguf").read_bytes()
    write_gguf(tmp_path / "n" / "x.gguf", 1, 1, vocabulary=512, tokenizer=tiny.model / "tokenizer.json")
    other = (tmp_path / "n" / "x.gguf").read_bytes()
    hub.add("owner/model", {"named.gguf": content, "other.gguf": other})
    words = ["--text", tiny.text, "--chunk-length", 32, "--max-chunks", 4, "--json", "--metrics", "nc1.cdnv"]
    here = json.loads(as_user("measure", tmp_path / "m" / "x.gguf", *words).stdout)[0]
    there = as_user("measure", "owner/model", "--model-arg", "gguf_file=named.gguf", *words)
    assert json.loads(there.stdout)[0]["store"] == here["store"]
    another = as_user("measure", "owner/model", "--model-arg", "gguf_file=other.gguf", *words)
    assert json.loads(another.stdout)[0]["store"] != here["store"]
