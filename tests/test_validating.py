"""The command with which a store that is only trained is validated, as it is told."""

import os
import shlex
import shutil

import pytest
import torch
from safetensors.torch import save_file

import collapse
from collapse.collection.validating import command_to_validate

COLLECTED = {"chunk_length": 32, "max_chunks": 20, "shards": 3, "dtype": "float64", "part": (1, 1), "exact_loss": True}
COLLECTED |= {"fast_attention": False, "model_args": {"attn_implementation": "eager"}}


@pytest.fixture
def trained(tiny, tmp_path, monkeypatch) -> collapse.Store:
    """A store that is not validated, collected in the folder of its texts."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    shutil.copytree(tiny.model, tmp_path / "runs" / "mine")
    shutil.copy(tiny.validation, tmp_path / "validation.jsonl")
    texts = {"text": str(tiny.text), "validation_text": "validation.jsonl"}
    return collapse.collect("runs/mine", store="stores/a b", **texts, **COLLECTED)


def test_the_command_that_is_told_validates_the_store(trained, told):
    said = told(0, "measure", "stores/a b")
    command = next(line for line in said.splitlines() if line.startswith("stores/a b is not validated yet: "))
    words = shlex.split(command.partition(": ")[2])
    assert words[:5] == ["collapse", "collect", f"runs{os.sep}mine", "--store", f"stores{os.sep}a b"]
    assert "--validation-text validation.jsonl" in command
    told(0, *words[1:])
    validated = collapse.load("stores/a b")
    assert validated.state == "complete"
    assert command_to_validate(validated) is None


def test_what_is_published_names_no_folder_and_what_is_not_known_here_is_a_word(trained, tmp_path, monkeypatch):
    (note,) = {note.text for note in collapse.measure(trained, metrics="val_loss").notes}
    assert note == "not validated yet: collapse collect MODEL --store STORE --validation-text FILES"
    monkeypatch.setenv("COLLAPSE_HOME", str(tmp_path / "other"))
    assert str(command_to_validate(trained)).startswith("collapse collect MODEL --store ")
    (tmp_path / "validation.jsonl").unlink()
    assert "--validation-text PATH/validation.jsonl" in str(command_to_validate(trained))


def test_the_command_that_merge_tells_validates_the_merged_store(tiny, tmp_path, monkeypatch, told, out):
    monkeypatch.chdir(tmp_path)
    shutil.copy(tiny.validation, tmp_path / "validation.jsonl")
    shutil.copytree(tiny.model, tmp_path / "mine")
    given = ("--text", tiny.text, "--chunk-length", 32, "--max-chunks", 20, "--exact-loss")
    cases = {"named": ("--validation-text", "validation.jsonl", "--max-validation-chunks", 5), "unnamed": ()}
    for case, more in cases.items():
        for k in (1, 2):
            told(0, "collect", "mine", "--store", f"{case}{k}", "--part", f"{k}/2", *given, *more)
        said = out("merge", f"{case}1", f"{case}2", "--store", case)
        words = shlex.split(said.partition("validate it with: ")[2].replace("FILES", "validation.jsonl"))
        assert words[:5] == ["collapse", "collect", "mine", "--store", case]
        told(0, *words[1:])
        store = collapse.load(case)
        chunks = [store.manifest["coverage"][phase]["chunks"] for phase in ("train", "validation")]
        assert (store.state, chunks[0], store.identity["exact_loss"]) == ("complete", 20, True)
        assert chunks[1] == 5 or case == "unnamed"


def test_a_store_of_another_switch_is_refused_in_the_words_of_the_command(tiny, tmp_path, told):
    few = ("--text", tiny.text, "--chunk-length", 32, "--max-chunks", 4)
    told(0, "collect", tiny.model, "--store", tmp_path / "s", "--exact-loss", *few)
    said = " ".join(told(1, "collect", tiny.model, "--store", tmp_path / "s", *few).split())
    assert "differs in --exact-loss: given and not given (there and now): add --exact-loss, or choose another" in said
    said = told(1, "collect", tiny.model, "--store", tmp_path / "s", "--exact-loss", "--no-fast-attention", *few)
    assert "leave out --no-fast-attention, or choose another --store" in " ".join(said.split())
    said = " ".join(told(1, "collect", tiny.model, "--store", tmp_path / "s", *few[:4], "--dtype", "bfloat16").split())
    assert "add --exact-loss --max-chunks 4 --dtype float32, or choose another --store" in said


def test_a_store_that_never_had_a_validation_text_has_no_such_command(tiny, tmp_path):
    store = collapse.collect(tiny.model, store=tmp_path / "s", text=str(tiny.text), chunk_length=32, max_chunks=4)
    assert command_to_validate(store) is None


def test_a_features_file_is_told_of_in_its_own_words(tmp_path, told, out):
    draw = torch.Generator().manual_seed(0)
    tensors = {"train_features": torch.randn(8, 4, generator=draw), "classifier": torch.randn(2, 4, generator=draw)}
    file = tmp_path / "f.safetensors"
    save_file(tensors | {"train_labels": torch.arange(8) % 2}, file)
    assert "have no validation_features" in " ".join(out("measure", file, "--metrics", "val_loss").split())
    said = " ".join(told(2, "collect", file, "--store", tmp_path / "s", "--exact-loss").split())
    assert said.endswith("was made of a features file: --exact-loss does not apply; leave the option out")
