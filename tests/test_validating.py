"""The command with which a store that is only trained is validated, as it is told."""

import os
import shlex
import shutil

import pytest

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


def test_a_store_that_never_had_a_validation_text_has_no_such_command(tiny, tmp_path):
    store = collapse.collect(tiny.model, store=tmp_path / "s", text=str(tiny.text), chunk_length=32, max_chunks=4)
    assert command_to_validate(store) is None
