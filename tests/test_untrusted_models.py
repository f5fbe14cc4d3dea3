"""Untrusted models from the Hub: pickles, code, damaged files. None of their code runs."""

import json
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_model import edit_json

import collapse

CODE = """
from pathlib import Path
Path({marker!r}).write_text("run")
from transformers import PretrainedConfig, GPTNeoForCausalLM, PreTrainedTokenizerFast
class Config(PretrainedConfig):
    model_type = "novel"
class Model(GPTNeoForCausalLM):
    pass
class Tokenizer(PreTrainedTokenizerFast):
    pass
"""


class Runs:
    """Writes a file when Python unpickles it."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return Path.write_text, (self.marker, "run")


@pytest.fixture
def pickled(tiny, tmp_path) -> Path:
    """The tiny model with a pickled checkpoint in place of its safetensors."""
    folder = Path(shutil.copytree(tiny.model, tmp_path / "pickled"))
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return folder


def files_in(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_pickled_checkpoint_is_measured(hub, as_user, tiny, pickled):
    words = [*tiny.words()[1:], "--max-chunks", 20, "--metrics", "nc3", "--json"]
    expected = json.loads(as_user("measure", tiny.model, *words).stdout)[0]["measurements"]
    hub.add("owner/old", files_in(pickled))
    there = as_user("measure", "owner/old", *words)
    assert json.loads(there.stdout)[0]["measurements"] == pytest.approx(expected, rel=1e-9)
    # transformers would have asked a service of the Hub to convert it, in the background
    assert not [
        path for method, path in hub.requests if "/commits/" in path or "discussions" in path or method == "POST"
    ]
    as_user("measure", "owner/old", *words, "--recollect", offline=True)


@pytest.mark.parametrize("plain", [False, True], ids=["torch", "plain pickle"])
def test_a_pickle_that_would_run_something(told, tiny, pickled, tmp_path, plain):
    marker = tmp_path / "marker"
    if plain:
        (pickled / "pytorch_model.bin").write_bytes(pickle.dumps({"x": Runs(marker)}, protocol=2))
    else:
        torch.save({"x": Runs(marker)}, pickled / "pytorch_model.bin")
    said = told(1, "measure", pickled, *tiny.words()[1:], "--max-chunks", 20)
    assert not marker.exists()
    (line,) = [line for line in said.splitlines() if line.startswith("collapse:")]
    assert "pickled: its checkpoint contains more than tensors" in line
    assert "no code was run" in line
    assert "Warning" not in said


HALF_ZIP = b"PK\x03\x04nonsense" + b"PK\x05\x06" + bytes(8) + b"\xff\0\0\0" * 2 + bytes(2)


@pytest.mark.parametrize("content", [b"\x80\x02nonsense", HALF_ZIP, b""])
def test_a_damaged_pickle_is_one_line(told, tiny, pickled, content):
    (pickled / "pytorch_model.bin").write_bytes(content)
    assert "pickled" in told(1, "measure", pickled, *tiny.words()[1:], "--max-chunks", 20).splitlines()[-1]


@pytest.mark.parametrize("content", [b"\x10\0\0\0\0\0\0\0{}", b""])
def test_damaged_safetensors_are_one_line_and_no_pickle_is_tried(told, tiny, tmp_path, content):
    folder = Path(shutil.copytree(tiny.model, tmp_path / "damaged"))
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").write_bytes(content)
    said = told(1, "measure", folder, *tiny.words()[1:], "--max-chunks", 20)
    assert "damaged cannot be loaded as a causal language model" in said
    assert "pickled" not in said


def coded(tiny, folder: Path, marker: Path, *, native: bool = False, tokenizer: bool = False) -> Path:
    """A repository whose configuration asks for its own code."""
    shutil.copytree(tiny.model, folder)
    (folder / "code.py").write_text(CODE.format(marker=str(marker)))
    if tokenizer:
        auto_map = {"AutoTokenizer": [None, "code.Tokenizer"]}
        edit_json(folder / "tokenizer_config.json", tokenizer_class="Novel", auto_map=auto_map)
    else:
        auto_map = {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"}
        named = {} if native else {"model_type": "novel", "architectures": ["Model"]}
        edit_json(folder / "config.json", auto_map=auto_map, **named)
    return folder


@pytest.mark.parametrize("tokenizer", [False, True], ids=["model", "tokenizer"])
def test_code_of_a_repository_is_not_run(hub, as_user, told, tiny, tmp_path, tokenizer):
    folder = coded(tiny, tmp_path / "coded", tmp_path / "marker", tokenizer=tokenizer)
    words = [*tiny.words()[1:], "--max-chunks", 20]
    hub.add("owner/coded", files_in(folder))
    there = as_user("measure", "owner/coded", *words, code=None).stderr
    assert not [path for _, path in hub.requests if path.endswith("code.py")]
    for name, said in (("owner/coded", there), ("coded", told(1, "measure", folder, *words))):
        assert f"{name} needs Python code of its own repository: read that code" in said
        assert "--trust-remote-code" in said
    assert not (tmp_path / "marker").exists()


def test_code_is_run_where_it_is_trusted(run, tiny, tmp_path):
    folder = coded(tiny, tmp_path / "coded", tmp_path / "marker", tokenizer=True)
    words = [*tiny.words()[1:], "--max-chunks", 20, "--metrics", "nc3", "--trust-remote-code"]
    run("measure", folder, *words, code=None)
    assert (tmp_path / "marker").exists()  # the code above is code that runs


def test_code_that_transformers_has_itself_is_not_needed(run, tiny, tmp_path):
    folder = coded(tiny, tmp_path / "coded", tmp_path / "marker", native=True)
    run("measure", folder, *tiny.words()[1:], "--max-chunks", 20, "--metrics", "nc3")
    assert not (tmp_path / "marker").exists()


def test_what_has_its_own_option_is_no_model_arg(tiny):
    with pytest.raises(collapse.CollapseError, match="--model-arg trust_remote_code=… is not allowed: use --trust-rem"):
        collapse.collect(tiny.model, model_args={"trust_remote_code": True}, **tiny.options())


KERNELS = {
    "attention": {"_attn_implementation": "owner/kernel"},
    "internal name": {"_attn_implementation_internal": "owner/kernel"},
    "experts": {"experts_implementation": "deepgemm"},
    "nested": {"text_config": {"_attn_implementation": {"": "sdpa", "vision": "owner/kernel"}}},
}


@pytest.mark.parametrize("kind", KERNELS)
def test_a_kernel_that_a_configuration_names_is_not_run(told, tiny, tmp_path, kind):
    folder = Path(shutil.copytree(tiny.model, tmp_path / "kernel"))
    edit_json(folder / "config.json", **KERNELS[kind])
    said = told(1, "measure", folder, *tiny.words()[1:], "--max-chunks", 20)
    assert "kernel: its configuration names the implementation '" in said
    assert "give --trust-remote-code" in said
