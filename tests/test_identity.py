"""What is hashed is what is read: subfolders and configurations; secrets."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from random_models import load
from safetensors.torch import load_file, save_file
from tiny_model import edit_json

import collapse
from collapse.hub.references import find_model
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.model_loading import load_model, load_tokenizer
from collapse.inputs.text_request import asked_model, text_request
from collapse.stores.request import Request


def plan(tiny, model: object, **options) -> Request:
    spec = CollectionSpec(**{**tiny.options(), **options})
    return text_request(asked_model(str(model), spec), spec)


def test_a_subfolder_is_hashed_and_read(tiny, tmp_path):
    nested = Path(shutil.copytree(tiny.model, tmp_path / "nested"))
    deep = Path(shutil.copytree(tiny.model, nested / "sub" / "deep"))
    weights = load_file(deep / "model.safetensors")
    save_file({name: each * 2 for name, each in weights.items()}, deep / "model.safetensors")
    edit_json(nested / "config.json", max_position_embeddings=9)
    given = {"subfolder": "sub/deep"}
    there, direct = plan(tiny, nested, model_args=given), plan(tiny, deep)
    assert there.identity == direct.identity | {"model_args": given}
    loaded = load(nested, model_args=given)
    expected = load(deep)
    assert torch.equal(loaded.weight, expected.weight)
    options = {"max_chunks": 8, "model_args": given, **tiny.options(), "validation_text": None}
    store = collapse.collect(nested, store=tmp_path / "s", **options)
    assert store.identity["tokenizer"] == there.identity["tokenizer"]


def test_files_that_change_between_hashing_and_loading_are_refused(tiny, tmp_path):
    model = Path(shutil.copytree(tiny.model, tmp_path / "model"))
    found = find_model(str(model))
    weights = load_file(model / "model.safetensors")
    save_file({name: each * 2 for name, each in weights.items()}, model / "model.safetensors")
    edit_json(model / "tokenizer_config.json", model_max_length=77)
    for read in (lambda: load_model(found, CollectionSpec()), lambda: load_tokenizer(found)):
        with pytest.raises(collapse.CollapseError, match="model changed while it was loaded: run the same command"):
            read()


def test_secrets_in_arguments_are_recorded_as_hashes(run, tiny, tmp_path):
    words = [*tiny.words(), "--max-chunks", 8, "--store", tmp_path / "s", "--model-arg=attn_implementation=eager"]
    proxies = json.dumps({"https": "http://ann:hunter2@proxy.corp:3128"})
    words += [f"--model-arg=proxies={proxies}", "--model-arg=cache_dir=/home/ann/cache"]
    words += ["--model-arg=use_safetensors=true"]
    run("collect", *words)
    manifest = (tmp_path / "s" / "collapse.json").read_text()
    assert "hunter2" not in manifest
    assert "proxy.corp" not in manifest
    recorded = json.loads(manifest)["identity"]["model_args"]
    assert recorded["attn_implementation"] == "eager"
    assert recorded["use_safetensors"] is True
    command = json.loads(manifest)["provenance"]["command"]
    for name in ("proxies", "cache_dir"):
        assert f"{name}={recorded[name]}" in command
    run("collect", *words)  # the same store is found again


def test_the_configuration_beside_a_tokenizer_is_part_of_it(tiny, tmp_path):
    """transformers takes the kind of a tokenizer from there where its own files do not say it."""
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    shutil.copy(tiny.model / "tokenizer.json", folder)
    said = json.loads((tiny.model / "tokenizer_config.json").read_text())
    said.pop("tokenizer_class")
    (folder / "tokenizer_config.json").write_text(json.dumps(said))
    fingerprints = set()
    for kind in ("gpt_neo", "roberta"):
        (folder / "config.json").write_text(json.dumps({"model_type": kind}))
        fingerprints.add(plan(tiny, tiny.model, tokenizer=str(folder)).identity["tokenizer"])
    assert len(fingerprints) == 2
    own = plan(tiny, tiny.model, tokenizer=str(tiny.model)).identity
    assert own == plan(tiny, tiny.model).identity
