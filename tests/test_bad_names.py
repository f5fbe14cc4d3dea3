"""Names that break libraries, and a user without a home folder: each works, or gives a one-line error."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import save_file

from collapse.testing import random_features

LATIN = os.fsdecode(b"caf\xe9")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", ["exp--1", "x[1]", "new\nline", "a@b"])
def test_models_and_stores_may_have_any_name(told, tiny, tmp_path, name):
    model = Path("runs") / name
    shutil.copytree(tiny.model, model)
    options = [*tiny.words("--max-chunks", 4, "--batch-size", 4)[1:]]
    told(0, "collect", model, *options, "--store", f"stores/{name}", "--tokenizer", model)
    told(0, "measure", f"stores/{name}", "--metrics", "nc1", "--output", f"{name}.json")
    told(0, "verify", f"stores/{name}")
    assert json.loads(Path(f"{name}.json").read_text())[0]["model"] == name


def test_a_name_that_is_not_utf8_is_refused_in_one_line(told, tiny):
    shutil.copytree(tiny.model, Path("runs") / LATIN)
    words = [f"runs/{LATIN}", *tiny.words("--max-chunks", 4, "--batch-size", 4)[1:]]
    assert "utf-8" in told(1, "collect", *words, "--store", "s").lower()
    save_file(random_features(6, 4, 60), "f.safetensors")
    os.rename("f.safetensors", f"{LATIN}.safetensors")
    assert "is not valid UTF-8" in told(1, "measure", f"{LATIN}.safetensors")


@pytest.mark.parametrize("name", ["x[1]", LATIN, "y" * 200])
def test_a_name_that_is_not_there_and_cannot_be_of_the_hub(told, tiny, name):
    for words in (
        ["measure", f"runs/{name}"],
        ["collect", *tiny.words("--store", "s", "--tokenizer", f"runs/{name}")],
        ["measure", tiny.model, "--text", f"runs/{name}"],
        ["pull", f"runs/{name}", "--store", "s"],
        ["verify", f"runs/{name}"],
    ):
        assert told(2, *words), words
    assert told(1, "push", tiny.model, f"runs/{name}")


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs another user id: run as root")
def test_a_user_without_a_home(tiny, tmp_path):
    alone = ["unshare", "--user", "--map-user=12345"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("needs user namespaces")
    homes = ("HOME", "COLLAPSE_HOME", "HF_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in homes}
    command = [*alone, sys.executable, "-m", "collapse", "measure", *tiny.words("--max-chunks", 4, "--metrics", "nc1")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=100)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "set COLLAPSE_HOME to a folder" in done.stderr


def test_a_cache_that_cannot_be_written_is_told_by_its_variable(told, tiny, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COLLAPSE_HOME", str(tmp_path / "file" / "home"))
    assert "set COLLAPSE_HOME to another folder" in told(1, "measure", *tiny.words("--max-chunks", 4)).replace(
        "Set", "set"
    )
