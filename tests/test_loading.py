"""The loaded model is the named and hashed one: every weight comes from the checkpoint."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf_files import write_gguf
from random_models import load
from safetensors.torch import load_file, save_file
from tiny_model import edit_json
from transformers import AutoModelForCausalLM, GPTNeoConfig

import collapse
from collapse.hub.gguf import gguf_context


@pytest.fixture
def copy(tiny, tmp_path) -> Path:
    """A copy of the tiny model in the test's own folder."""
    return Path(shutil.copytree(tiny.model, tmp_path / "copied"))


def rewrite(folder: Path, change) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file(change({name: tensor.clone() for name, tensor in weights.items()}), folder / "model.safetensors")


def refused(folder: Path, match: str) -> str:
    with pytest.raises(collapse.CollapseError, match=match) as error:
        load(folder)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("pickled", [False, True], ids=["safetensors", "pickle"])
def test_renamed_weights_are_refused_by_name(copy, pickled):
    rewrite(copy, lambda weights: {f"other.{name}": each for name, each in weights.items()})
    if pickled:
        torch.save(load_file(copy / "model.safetensors"), copy / "pytorch_model.bin")
        (copy / "model.safetensors").unlink()
    said = refused(copy, "the checkpoint of copied lacks 31 weights of GPTNeoForCausalLM")
    assert "lm_head.weight, transformer.h.0.attn.attention.k_proj.weight" in said
    assert "and 28 more" in said
    assert "and has 30 that GPTNeoForCausalLM does not use (other.transformer.h.0.attn" in said


WRONG = {
    r"lacks 13 weights of \w+ \(transformer\.h\.1\.attn": lambda folder: rewrite(
        folder, lambda weights: {name: each for name, each in weights.items() if ".h.1." not in name}
    ),
    r"GPTNeoForCausalLM, which does not use 13 tensors of the checkpoint \(transformer\.h\.1": lambda folder: edit_json(
        folder / "config.json", num_layers=1, attention_layers=["global"], attention_types=[[["global"], 1]]
    ),
    r"wte\.weight has 512×48, but config\.json gives 600×48": lambda folder: edit_json(
        folder / "config.json", vocab_size=600
    ),
    "copied cannot be loaded .*: a file of its weights is damaged or incomplete: copy or download it": lambda folder: (
        os.truncate(folder / "model.safetensors", 1000)
    ),
}


@pytest.mark.parametrize("said", WRONG)
def test_weights_that_are_not_all_of_the_models_are_refused_by_name(copy, said):
    WRONG[said](copy)
    refused(copy, said)


def test_a_base_model_needs_its_head_unless_that_is_tied(tiny, tmp_path):
    for tied in (True, False):
        config = GPTNeoConfig.from_pretrained(tiny.model, tie_word_embeddings=tied)
        AutoModelForCausalLM.from_config(config).transformer.save_pretrained(tmp_path / str(tied))
    refused(tmp_path / "False", r"lacks 1 weight of \w+ \(lm_head\.weight\)")
    assert load(tmp_path / "True").tied


def test_a_file_overwritten_later_does_not_reach_the_model(tiny, tmp_path):
    torch.manual_seed(0)
    config = GPTNeoConfig.from_pretrained(tiny.model, hidden_size=256, vocab_size=6000)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "m")
    loaded = load(tmp_path / "m")
    before = {name: each.clone() for name, each in loaded.model.named_parameters()}
    with (tmp_path / "m" / "model.safetensors").open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(size // 3)
        file.write(bytes(size - size // 3))
    for name, each in loaded.model.named_parameters():
        assert torch.equal(each, before[name]), name


UNREAD = {
    "rope_freqs.weight": {"tensors": {"rope_freqs.weight": np.full(8, 4, np.float32)}},
    "blk.0.attn_q.bias": {"tensors": {"blk.0.attn_q.bias": np.ones(32, np.float32)}},
    "llama.rope.scaling.type = yarn": {"keys": {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}},
    "llama.rope.scaling.factor = 4.0": {"keys": {"rope.scaling.factor": 4.0}},
    "llama.rope.scale_linear = 4.0": {"keys": {"rope.scale_linear": 4.0}},
}


@pytest.mark.parametrize("name", UNREAD)
def test_a_part_of_a_gguf_file_that_is_not_read_is_refused_by_name(tmp_path, name):
    write_gguf(file := tmp_path / "m" / "x.gguf", 2, 2, **UNREAD[name])
    refused(file, rf"ignores parts of this GGUF file \({name}\)")


def test_a_gguf_file_without_a_layer_or_cut_short_is_refused(tmp_path):
    write_gguf(tmp_path / "lacking" / "x.gguf", 1, 2)
    refused(tmp_path / "lacking" / "x.gguf", r"lacks 9 weights of \w+ \(model\.layers\.1\.")
    write_gguf(file := tmp_path / "m" / "m.gguf", 2, 2, keys={"rope.scaling.type": "none", "rope.scaling.factor": 4.0})
    assert gguf_context(file) == 64
    assert load(file).weight.shape[1] == 32
    os.truncate(file, file.stat().st_size - 1000)
    with pytest.raises(collapse.CollapseError, match=r"m\.gguf cannot be read as GGUF: .*incomplete: download it"):
        gguf_context(file)


def test_a_gguf_file_is_known_by_its_content_here_and_on_the_hub(hub, as_user, tiny, tmp_path):
    made = {"vocabulary": 512, "tokenizer": tiny.model / "tokenizer.json"}
    file, other = tmp_path / "m" / "x.gguf", tmp_path / "n" / "x.gguf"
    write_gguf(file, 2, 2, **made)
    write_gguf(other, 1, 1, **made)
    how = {"text": str(tiny.text), "chunk_length": 32, "max_chunks": 4}
    first = collapse.collect(file, **how)
    assert collapse.collect(file.parent, model_args={"gguf_file": "x.gguf"}, **how).digest == first.digest
    assert collapse.collect(file.parent, model_args={"gguf_file": "x.gguf"}, tokenizer=str(file), **how).path
    assert collapse.collect(other, **how).identity["weights"] != first.identity["weights"]
    again = collapse.collect(file.rename(tmp_path / "m" / "y.gguf"), **how)
    assert (again.path, again.digest, again.named["model"]) == (first.path, first.digest, "m/y.gguf")
    assert collapse.measure(again, metrics=["nc1.cdnv"]).model == "y.gguf"
    hub.add("owner/model", {"named.gguf": (tmp_path / "m" / "y.gguf").read_bytes(), "other.gguf": other.read_bytes()})
    words = ["--text", tiny.text, "--chunk-length", 32, "--max-chunks", 4, "--json", "--metrics", "nc1.cdnv"]
    for name, same in (("named", True), ("other", False)):
        there = as_user("measure", "owner/model", "--model-arg", f"gguf_file={name}.gguf", *words)
        assert (json.loads(there.stdout)[0]["weights"] == first.identity["weights"]) == same
