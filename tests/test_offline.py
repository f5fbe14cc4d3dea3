"""Offline, everything works that was used online before, or downloaded with the advised ``hf download``."""

import io
import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

T = ("--chunk-length", 32, "--max-chunks", 40, "--json")


def parquet(file: Path) -> bytes:
    """The rows of a JSONL file as Parquet."""
    import pandas

    pandas.read_json(file, lines=True).to_parquet(made := io.BytesIO())
    return made.getvalue()


@pytest.fixture
def shelf(hub, tiny) -> dict[str, str]:
    """A model, a tokenizer and data sets of several layouts; their first commits."""
    train, validation = tiny.text.read_bytes(), tiny.validation.read_bytes()
    files = {file.name: file.read_bytes() for file in tiny.model.iterdir()}
    lines = train.splitlines(keepends=True)
    card = b"---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: some/*.jsonl\n---\n"
    halves = {"some/[a].jsonl": b"".join(lines[:50]), "some/b.jsonl": b"".join(lines[50:])}
    texts = {
        "data": {"train.jsonl": train, "validation.jsonl": validation},
        "parquet": {
            "data/train-00000-of-00001.parquet": parquet(tiny.text),
            "data/validation-00000-of-00001.parquet": parquet(tiny.validation),
            "extra.txt": b"no part of the text",
        },
        "named": {"README.md": card, **halves, "train.jsonl": validation},
    }
    models = {"model": files, "tokenizer": {name: files[name] for name in files if name.startswith("token")}}
    return {name: hub.add(f"owner/{name}", content) for name, content in models.items()} | {
        name: hub.add(f"owner/{name}", content, kind="datasets") for name, content in texts.items()
    }


@pytest.fixture
def dead() -> Iterator[str]:
    """The address of a Hub that refuses every connection."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{closed.getsockname()[1]}"


@pytest.fixture
def download(hub, tmp_path) -> Callable[..., None]:
    """Run the ``hf download`` of a message."""

    def download(command: str, home: str) -> None:
        words = [str(Path(sys.executable).with_name("hf")), *command.split()[1:]]
        subprocess.run(words, check=True, capture_output=True, env=hub.environment(tmp_path / home), timeout=100)

    return download


def row(done: Any) -> dict[str, Any]:
    """The identity and the measurements of a row."""
    (found,) = json.loads(done.stdout)
    return {name: found[name] for name in ("measurements", "corpus_id", "tokenizer", "samples") if name in found}


CASES = [("owner/data@v1", ("--validation-text", "owner/parquet")), ("owner/named", ("--tokenizer", "owner/tokenizer"))]


@pytest.mark.parametrize(("text", "more"), CASES)
def test_what_was_used_online_is_used_offline_with_the_same_identity(shelf, hub, as_user, dead, tmp_path, text, more):
    hub.repos["datasets", "owner/data"].tags["v1"] = shelf["data"]
    words = ["measure", "owner/model", "--text", text, *more, *T]
    online = row(as_user(*words))
    hub.requests.clear()
    shutil.rmtree(tmp_path / "home/collapse")  # neither its store nor its tokens are kept
    assert row(as_user(*words, "--no-download", fresh=True)) == online
    assert not hub.requests
    shutil.rmtree(tmp_path / "home/collapse")
    down = as_user(*words, changes={"HF_ENDPOINT": dead}, fresh=True)
    assert row(down) == online
    assert "using the cached copy of owner/model" in down.stderr


@pytest.mark.parametrize("text", ["owner/parquet@main", "owner/named@COMMIT"])
def test_each_advice_fetches_what_is_then_used(shelf, as_user, download, text):
    text = text.replace("COMMIT", shelf["named"])
    words = ["measure", "owner/model", "--text", text, "--tokenizer", "owner/tokenizer", *T]
    for _ in range(3):  # the model, the tokenizer and the text
        refused = as_user(*words, offline=True, code=None)
        (advice,) = re.findall(r"hf download [^;]*", refused.stderr)
        download(advice, "home")
    offline = row(as_user(*words, offline=True))
    assert offline == row(as_user(*words, home="online"))


def test_a_part_of_a_data_set_is_not_taken_for_all_of_it(shelf, as_user, download):
    words = ["measure", "owner/model", "--text", "owner/named", *T]
    download("hf download owner/model", "home")
    download("hf download owner/named some/b.jsonl --repo-type dataset", "home")  # records no names of other files
    assert "dataset owner/named is only partly cached" in as_user(*words, offline=True, code=None).stderr
    download("hf download owner/named README.md some/b.jsonl --repo-type dataset", "home")
    missing = as_user(*words, offline=True, code=None).stderr
    assert "some/[a].jsonl" in missing
    assert f"--revision {shelf['named']}" in missing


def test_a_branch_that_moved_is_what_it_was_at_the_last_use(shelf, hub, as_user, tiny, tmp_path):
    words = ["measure", "owner/model", "--text", "owner/data", *T]
    first = row(as_user(*words))
    hub.add("owner/data", {"train.jsonl": tiny.validation.read_bytes()}, kind="datasets")
    shutil.rmtree(tmp_path / "home/collapse")
    assert row(as_user(*words, offline=True)) == first
    second = row(as_user(*words))
    assert second != first
    shutil.rmtree(tmp_path / "home/collapse")
    assert row(as_user(*words, offline=True)) == second


def test_training_runs_where_there_is_no_network(hub, as_user, download, dead, tiny, tmp_path):
    text = {"TinyStories-train.jsonl": tiny.text, "TinyStories-valid.jsonl": tiny.validation}
    hub.add("roneneldan/TinyStories", {k: file.read_bytes() for k, file in text.items()}, kind="datasets")
    tokenizer = {file.name: file.read_bytes() for file in tiny.model.glob("token*")}
    hub.add("EleutherAI/gpt-neo-125M", tokenizer | {"config.json": b'{"model_type": "gpt_neo"}'})
    words = ["zoo", "train", "1x16", "--chunk-length", 32, "--heads", 2, "--batch-size", 4, "--max-steps", 2]
    refused = as_user(*words, changes={"HF_HUB_OFFLINE": "1"}, code=None).stderr
    advised = set(re.findall(r"hf download [\w/.-]+(?: --repo-type dataset)?", refused))
    assert len(advised) == 2
    for advice in advised:
        download(advice, "home")
    as_user(*words, "--output", tmp_path / "offline", offline=True)
    shutil.rmtree(tmp_path / "home/collapse")
    as_user(*words, "--output", tmp_path / "down", changes={"HF_ENDPOINT": dead}, fresh=True)
    states = [json.loads((tmp_path / name / "trainer_state.json").read_text()) for name in ("offline", "down")]
    assert states[0]["log_history"][0]["loss"] == states[1]["log_history"][0]["loss"]
