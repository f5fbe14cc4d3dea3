"""The provenance in a store's manifest, which contains nothing private about the user."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import transformers

import collapse
from collapse.stores.provenance import shown_word
from collapse.stores.store import Store


@pytest.fixture
def alice(tiny, tmp_path, monkeypatch) -> Path:
    """A home folder with a model and texts in it, and the user whose it is."""
    home = tmp_path / "home" / "alice"
    shutil.copytree(tiny.model, home / "models" / "x")
    shutil.copy(tiny.text, home / "t.jsonl")
    shutil.copy(tiny.validation, home / "v.jsonl")
    for name, value in (("HOME", str(home)), ("USER", "alice"), ("LOGNAME", "alice")):
        monkeypatch.setenv(name, value)
    return home


def answers(made: dict) -> None:
    assert made["started"] <= made["finished"]
    assert made["seconds"] > 0
    assert made["device"].startswith("cpu (")
    assert made["versions"]["collapse"] == collapse.__version__
    assert made["versions"]["torch"] == torch.__version__
    assert made["versions"]["transformers"] == transformers.__version__
    assert {"python", "datasets", "numpy", "tokenizers", "safetensors", "huggingface-hub"} <= set(made["versions"])


def test_a_manifest_answers_what_when_where_and_by_what(tiny, tmp_path):
    store = collapse.collect(tiny.model, store=tmp_path / "s", max_chunks=20, **tiny.options())
    identity, made = store.identity, store.manifest["provenance"]
    assert identity["weights"].startswith("sha256:")
    assert identity["tokenizer"].startswith("sha256:")
    assert len(identity["corpus"]["sha256"]) == 64
    assert identity["dtype"] == "float32"
    for phase in (made, made["validation"]):
        answers(phase)
        assert len(phase["tokens"]) == 64
    assert made["tokens"] != made["validation"]["tokens"]
    assert made["finished"] <= made["validation"]["started"]
    parts = [
        collapse.collect(tiny.model, store=tmp_path / f"p{k}", max_chunks=20, part=(k, 2), **tiny.options())
        for k in (1, 2)
    ]
    merged = collapse.merge(parts, store=tmp_path / "merged").manifest["provenance"]
    assert merged["versions"] == made["versions"]
    for part in merged["parts"]:
        answers(part)
        assert part["tokens"] == made["tokens"]  # one text, whoever did which part of it


def test_info_prints_it_here_and_of_the_hub(hub, as_user, tiny, tmp_path):
    commit = hub.add("owner/tiny", {file.name: file.read_bytes() for file in tiny.model.iterdir()})
    as_user("collect", "owner/tiny", *tiny.words()[1:], "--max-chunks", 20, "--store", tmp_path / "s")
    as_user("push", tmp_path / "s", "owner/stats")
    hub.requests.clear()
    there = as_user("info", "owner/stats", home="reader").stdout
    as_json = json.loads(as_user("info", "owner/stats", "--json", home="reader").stdout)
    assert not [path for _, path in hub.requests if path.endswith(".safetensors")]
    here = as_user("info", tmp_path / "s").stdout
    manifest = Store.load(tmp_path / "s").manifest
    assert as_json == manifest
    made = manifest["provenance"]
    corpus = manifest["identity"]["corpus"]["sha256"]
    wanted = [f"owner/tiny @ {commit}", manifest["identity"]["weights"], manifest["identity"]["tokenizer"], corpus]
    wanted += [made[name] for name in ("started", "finished", "device", "tokens")]
    wanted += [f"torch={torch.__version__}", "made, validation, seconds", "float32"]
    for said in (here, there):
        folded = "".join(said.split())  # long words are folded
        assert not [each for each in wanted if "".join(each.split()) not in folded]


def test_nothing_pushed_tells_who_and_where(hub, as_user, alice, tmp_path):
    words = ["--text", alice / "t.jsonl", f"--validation-text={alice}/v.jsonl", "--chunk-length", 32]
    words += ["--max-chunks", 20, "--model-arg", f"cache_dir={alice}/cache"]
    as_user("collect", alice / "models" / "x", *words, "--store", alice / "stores" / "a")
    as_user("measure", alice / "stores" / "a")
    as_user("push", alice / "stores" / "a", "owner/stats")
    # trained and not validated: what lacks is told in the notes
    as_user("collect", alice / "models" / "x", *words, "--store", alice / "stores" / "b", "--part", "1/1")
    as_user("measure", alice / "stores" / "b")
    as_user("push", alice / "stores" / "b", "owner/trained")
    everything = b"\n".join(hub.blobs.values())
    assert b"collapse collect x --text t.jsonl --validation-text v.jsonl" in everything
    assert b"not validated yet" in everything
    for private in (b"alice", str(alice.parent).encode(), str(tmp_path).encode()):
        assert private not in everything


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("/home/alice/models/x", "x"),
        ("/home/alice", "~"),
        ("../alice/x", "x"),
        ("file:///home/alice/t", "t"),
        ('{"a": "/home/alice/t", "b": 1}', '{"a": "t", "b": 1}'),
        ("C:\\Users\\alice\\x", "x"),
        ("https://host/a/b", "https://host/a/b"),
        ("norms_log_std/norms_log_mean", "norms_log_std/norms_log_mean"),
    ],
)
def test_a_word_of_the_command(alice, given, kept):
    assert shown_word(given) == kept
