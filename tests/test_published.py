"""Which published store is used instead of collecting: one of the same identity from a trusted repository."""

import json

import pytest
from safetensors.torch import load_file, save

import collapse
from collapse.stores.manifest import render, sealed
from collapse.stores.tensor_files import manifest_entry

FOLDER = "collapse/text.jsonl-T32-24"


@pytest.fixture
def words(tiny):
    return ("owner/tiny", *tiny.words()[1:], "--max-chunks", 24, "--metrics", "nc3", "--json")


@pytest.fixture
def published(hub, tiny, stored):
    """The model's repository with its store; the weights are not sent, so only the store can be measured."""
    hub.add("owner/tiny", model(tiny) | in_folder(contents(stored)))
    hub.fault = no_weights
    return stored


def no_weights(ask, method, path):
    return path.endswith("/model.safetensors") and not ask.fail(403, "Forbidden", "these weights are not for you")


def model(tiny):
    return {file.name: file.read_bytes() for file in tiny.model.iterdir()}


def contents(store):
    return {name: (store.path / name).read_bytes() for name in (*store.manifest["files"], "collapse.json")}


def in_folder(files):
    return {f"{FOLDER}/{name}": content for name, content in files.items()}


def forged(store):
    """The store's files with other means, sealed as if they were right."""
    files = contents(store)
    tensors = load_file(store.path / "top/train.safetensors")
    files["top/train.safetensors"] = save({**tensors, "means": tensors["means"].flip(1)})
    entries = store.manifest["files"] | {"top/train.safetensors": manifest_entry(files["top/train.safetensors"])}
    content = {k: v for k, v in store.manifest.items() if k not in ("digest", "checksum", "provenance")}
    files["collapse.json"] = render(sealed(content | {"files": entries}, store.manifest["provenance"]))
    return files


def number(done):
    (row,) = json.loads(done.stdout)
    return row["measurements"]["nc3.self_duality"]


def test_it_is_used_if_the_whole_identity_is_the_requested_one(published, hub, as_user, words):
    expected = collapse.measure(published, metrics=["nc3"]).measurements["nc3.self_duality"]
    commit = hub.repos["models", "owner/tiny"].branches["main"]
    done = as_user("measure", *words)
    assert f"using the existing store owner/tiny/{FOLDER}@{commit}" in done.stderr
    assert number(done) == pytest.approx(expected, rel=1e-9)
    (row,) = json.loads(done.stdout)
    assert (row["model"], row["origin"]) == ("owner/tiny", f"owner/tiny/{FOLDER}@{commit}")
    unsaid = as_user("measure", "owner/tiny", "--metrics", "nc3", "--json")  # the store says which text
    assert "(text.jsonl, 32 tokens per chunk, 24 chunks)" in unsaid.stderr
    assert number(unsaid) == number(done)


def test_it_is_used_at_another_commit_of_the_same_files_only(published, hub, as_user, words, tiny):
    for name in ("tokenizer.json", "config.json"):
        content = (tiny.model / name).read_bytes()
        hub.add("owner/tiny", {name: json.dumps(json.loads(content) | {"unheard_of": 1}).encode()})
        assert "existing store" not in as_user("measure", *words, code=None).stderr
        hub.add("owner/tiny", {name: content, "README.md": b"another card"})
    assert "existing store" in as_user("measure", *words).stderr


def test_offline_the_weights_are_compared_too(published, hub, as_user, words):
    online = as_user("measure", *words)
    offline = as_user("measure", *words, offline=True)
    assert "existing store" in offline.stderr
    assert number(offline) == number(online)
    hub.add("owner/tiny", {"model.safetensors": b"other weights, of the same store"})
    for more in ({}, {"offline": True}):  # that commit is main's now
        changed = as_user("measure", *words, code=1, **more)
        assert "existing store" not in changed.stderr


CARD = b"---\nlibrary_name: collapse\ntags: [collapse]\nbase_model: owner/tiny\n---\n"


def test_a_third_partys_store_is_used_only_if_it_is_named(hub, as_user, words, tiny, stored):
    hub.add("owner/tiny", model(tiny))
    hub.add("other/forged", {"README.md": CARD, **in_folder(forged(stored))})
    expected = collapse.measure(stored, metrics=["nc3"]).measurements["nc3.self_duality"]
    done = as_user("measure", *words)
    assert number(done) == pytest.approx(expected, rel=1e-6)
    assert "using the existing store" not in done.stderr
    assert not any("/other/" in path for _, path in hub.requests)
    named = as_user("measure", "other/forged", "--metrics", "nc3", "--json", home="reader")
    assert number(named) != pytest.approx(expected, rel=1e-3)
