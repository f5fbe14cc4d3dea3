"""A user's mistakes: one line says what is wrong and what to do, without a traceback."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import collapse
from collapse.testing import random_features

PLAIN = random_features(6, 4, 60)


def features(file: Path, **changes: torch.Tensor | None) -> Path:
    tensors = {name: tensor for name, tensor in {**PLAIN, **changes}.items() if tensor is not None}
    save_file(tensors, file)
    return file


@pytest.fixture
def here(tiny, tmp_path, monkeypatch) -> Path:
    """A folder with files of every kind, in which the commands run."""
    monkeypatch.chdir(tmp_path)
    features(tmp_path / "f.safetensors")
    for name in ("storees", "a.csv", "no-store"):
        (tmp_path / name).mkdir()
    for name, content in {
        "notes.txt": b"mine",
        "no-store/notes.txt": b"mine",
        "short.txt": b"one two three",
        "text.safetensors": b"this is no tensor file",
        "a.npz": b"x",
        "r.csv": b"a,b\n1,2\n3,4\n5,6\n",
        "digits.csv": f"model,val_loss\na,{'9' * 5000}\nb,2\n".encode(),
    }.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "model").symlink_to(tiny.model)
    (tmp_path / "text.jsonl").symlink_to(tiny.text)
    return tmp_path


MEASURE, COLLECT = "measure model --text text.jsonl --chunk-length 32", "collect model --text text.jsonl --store s"
MISTAKES = [
    (2, "measur", "No such command"),
    (2, "metrics gncc2", "did you mean gnc2"),
    (2, "measure f.safetensors --metrics ,", "no metric is named"),
    (2, "measure f.safetensors --device gpu", "use auto, cpu, cuda, cuda:1 or mps"),
    (2, "measure f.safetensors --output r.xls", ".csv, "),
    (2, "measure f.safetensors --output a.csv", "Choose another file"),
    (2, "measure nothing.safetensors", "no model, store or features file is called nothing.safetensors"),
    (2, "measure ./stores", "did you mean ./storees"),
    (2, "info ./stores", "there is no folder ./stores; did you mean ./storees?"),
    (1, "info stores", "there is no store in stores (no collapse.json); did you mean storees?"),
    (2, "measure model --text ./stores", "no file matches ./stores; did you mean ./storees?"),
    (2, "measure text.jsonl", "--text text.jsonl"),
    (1, "measure text.safetensors", "cannot be read as safetensors"),
    (1, "measure no-store", "neither a store"),
    (2, "measure model", "--text roneneldan/TinyStories"),
    (2, f"measure model --text {'text' * 100}", "is too long for the name of a file or data set: write the text to"),
    (2, f"{MEASURE} --tokenizer absent.json", "--tokenizer absent.json"),
    (2, f"{COLLECT} --tokenizer a.npz", "cannot be the tokenizer"),
    (1, "collect model --text short.txt --store s --chunk-length 32", "no shard fills a chunk of T = 32"),
    (1, "collect f.safetensors --store notes.txt", "cannot write notes.txt: File exists. Choose another folder"),
    (1, "collect f.safetensors --store notes.txt/s", "Not a directory"),
    (1, "verify no-store", "no collapse.json"),
    (2, "analyze permutatoin r.csv", "did you mean permutation"),
    (2, "analyze permutation r.csv --against a --n 0", "--n must be at least 1, got 0"),
    (2, "analyze correlation r.csv --against a --strata --cluster b", "remove --cluster"),
    (2, "analyze permutation r.csv", "no column is called 'val_loss'; known: a, b"),
    (2, "analyze permutation digits.csv", "column 'val_loss' must hold numbers"),
]


@pytest.mark.parametrize(("code", "command", "message"), MISTAKES, ids=[command for _, command, _ in MISTAKES])
def test_a_mistake_is_one_line(told, here, code, command, message):
    said = told(code, *command.split())
    assert message in said
    assert len(said) < 2000
    assert not (here / "s" / "collapse.json").exists()


def test_a_model_on_the_hub_that_cannot_be_reached(run, tmp_path):
    done = run("measure", "user/model", code=1, changes={"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)})
    assert "HF_HUB_OFFLINE=1 is set" in done.stderr
    assert "hf download user/model" in done.stderr


def test_what_fails_costs_its_own_model_only(told, here):
    wide = {name: torch.zeros(len(PLAIN[name]), 0) for name in PLAIN if PLAIN[name].dim() == 2}
    files = [here / "f.safetensors", features(here / "d0.safetensors", **wide), features(here / "f1.safetensors")]
    said = told(1, "measure", *files, "--output", "t.json")
    assert "d0.safetensors is not measured: " in said
    assert "is empty: its shape is (" in said
    assert "1 of 3 models are not measured" in said
    assert [row.model for row in collapse.Results.read("t.json").rows] == ["f", "f1"]


FEATURES = [
    ({"train_labels": PLAIN["train_labels"] + 3}, "train_labels run from 3 to 8, but the classifier has rows 0 to 5"),
    ({"train_labels": PLAIN["train_labels"].float()}, "convert the labels to integers"),
    ({"train_labels": PLAIN["train_labels"][:-1]}, "train_labels must have shape (60,), got (59,)"),
    ({"classifier": None}, "lacks classifier"),
    ({"classifier": torch.zeros(6, 5)}, "classifier must have shape (C, 4), got (6, 5)"),
    ({"classifier": PLAIN["classifier"].to(torch.complex64)}, "convert it to one of float64, float32"),
    ({"validation_labels": None}, "validation_features and validation_labels together"),
    ({"train_features": torch.zeros(60)}, "train_features must have shape (N, d), got (60,)"),
]


@pytest.mark.parametrize(("changes", "message"), FEATURES)
def test_a_features_file_that_cannot_be_measured(told, tmp_path, changes, message):
    assert message in told(1, "measure", features(tmp_path / "f.safetensors", **changes))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint64, torch.int16])
def test_labels_may_be_of_any_integer_type(tmp_path, dtype):
    labels = {name: PLAIN[name].to(dtype) for name in ("train_labels", "validation_labels")}
    stores = [collapse.collect(features(tmp_path / "f.safetensors", **changes)) for changes in ({}, labels)]
    plain, other = (collapse.measure(store).measurements for store in stores)
    assert plain == other


def test_a_model_without_a_tokenizer(told, tiny, tmp_path):
    for name in ("config.json", "model.safetensors"):
        shutil.copy(tiny.model / name, tmp_path)
    said = told(1, "measure", tmp_path, *tiny.words()[1:])
    assert f"{tmp_path} has no tokenizer" in said
    assert "--tokenizer" in said


def test_a_tokenizer_larger_than_the_embedding(told, tiny, tmp_path):
    from transformers import GPTNeoConfig, GPTNeoForCausalLM

    folder = Path(shutil.copytree(tiny.model, tmp_path / "small"))
    GPTNeoForCausalLM(GPTNeoConfig.from_pretrained(folder, vocab_size=300)).save_pretrained(folder)
    said = told(1, "collect", folder, *tiny.words()[1:], "--store", tmp_path / "s")
    assert "but small embeds only 300 tokens (the tokenizer has 500)" in said


def test_a_trained_store_asks_for_its_validation_text(told, tiny, tmp_path):
    collapse.collect(tiny.model, store=tmp_path / "s", batch_size=4, part=(1, 1), **tiny.options())
    said = told(2, "collect", tiny.model, "--store", tmp_path / "s", "--chunk-length", 32)
    assert "again with --validation-text" in said
