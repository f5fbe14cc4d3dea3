"""Which published store stands in for collecting a model: one of the whole identity, from a place that is trusted."""

import json
import shutil

import pytest
from safetensors.torch import load_file, save, save_file

import collapse
from collapse.stores.manifest import render, sealed
from collapse.stores.tensor_files import described

FOLDER = "collapse/text.jsonl-T32-24"


@pytest.fixture(scope="module")
def stored(tiny, tmp_path_factory):
    return collapse.collect(tiny.model, store=tmp_path_factory.mktemp("stored") / "s", max_chunks=24, **tiny.options())


@pytest.fixture
def words(tiny):
    return ("owner/tiny", *tiny.words()[1:], "--max-chunks", 24, "--metrics", "nc3")


@pytest.fixture
def published(hub, tiny, stored):
    """The model's repository with its store, collected from the same files in a folder; its weights are not sent."""
    hub.add("owner/tiny", {file.name: file.read_bytes() for file in tiny.model.iterdir()} | in_folder(contents(stored)))
    hub.fault = no_weights
    return stored


def no_weights(ask, method, path):
    if not path.endswith("/model.safetensors"):
        return False
    ask.fail(403, "Forbidden", "these weights are not for you")
    return True


def contents(store):
    files = {name: (store.path / name).read_bytes() for name in store.manifest["files"]}
    return files | {"collapse.json": (store.path / "collapse.json").read_bytes()}


def in_folder(files, folder=FOLDER):
    return {f"{folder}/{name}": content for name, content in files.items()}


def forged(store):
    """The store's files with other means, sealed as if they were right."""
    files = contents(store)
    tensors = load_file(store.path / "top/train.safetensors")
    files["top/train.safetensors"] = save({**tensors, "means": tensors["means"].flip(1)})
    entries = store.manifest["files"] | {"top/train.safetensors": described(files["top/train.safetensors"])}
    content = {k: v for k, v in store.manifest.items() if k not in ("digest", "checksum", "provenance")}
    files["collapse.json"] = render(sealed(content | {"files": entries}, store.manifest["provenance"]))
    return files


def number(done):
    (row,) = json.loads(done.stdout)
    return row["measurements"]["nc3.self_duality"]


def test_it_is_used_where_the_whole_identity_is_what_was_asked_for(published, hub, as_user, words):
    expected = collapse.measure(published, metrics=["nc3"]).measurements["nc3.self_duality"]
    commit = hub.repos["models", "owner/tiny"].branches["main"]
    done = as_user("measure", *words, "--json")
    assert f"measuring the published store owner/tiny/{FOLDER}@{commit}" in done.stderr
    assert number(done) == pytest.approx(expected, rel=1e-9)
    (row,) = json.loads(done.stdout)
    assert (row["model"], row["origin"]) == ("owner/tiny", f"owner/tiny/{FOLDER}@{commit}")
    unsaid = as_user("measure", "owner/tiny", "--metrics", "nc3", "--json")
    assert "on text.jsonl, 32 tokens a chunk, 24 chunks" in unsaid.stderr
    assert number(unsaid) == number(done)
    hub.add("owner/tiny", {"README.md": b"another card"})
    assert "published store" in as_user("measure", *words).stderr


def test_it_is_not_used_where_anything_else_was_asked_for(published, as_user, words, tiny, tmp_path):
    """Which may be each field of an identity: test_finding.py."""
    shutil.copytree(tiny.model, tmp_path / "tokenizer")
    altered(tmp_path / "tokenizer" / "tokenizer.json")
    for more in (("--dtype", "float64"), ("--tokenizer", tmp_path / "tokenizer")):
        done = as_user("measure", *words, *more, ok=False)
        assert done.returncode == 1  # it goes on to collect, and has no weights here
        assert "published store" not in done.stderr
        assert "owner/tiny: model.safetensors cannot be downloaded: 403 Forbidden" in done.stderr


def altered(file):
    """Swap two tokens of a tokenizer."""
    tokenizer = json.loads(file.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    one, other = [each for each in vocabulary if len(each) == 3][:2]
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
    file.write_text(json.dumps(tokenizer))
    return file.read_bytes()


def test_a_store_collected_at_an_earlier_commit(hub, as_user, words, tiny, stored, tmp_path):
    hub.add("owner/tiny", {file.name: file.read_bytes() for file in tiny.model.iterdir()})
    first = as_user("measure", *words, "--store", tmp_path / "s", "--json")
    assert collapse.load(tmp_path / "s").identity == stored.identity  # as of a folder
    hub.add("owner/tiny", in_folder(contents(collapse.load(tmp_path / "s"))))
    hub.fault = no_weights
    second = as_user("measure", *words, "--json", home="reader")
    assert "published store" in second.stderr
    assert number(second) == number(first)
    for name in ("tokenizer.json", "config.json"):
        text = json.loads((tiny.model / name).read_text())
        hub.add("owner/tiny", {name: json.dumps(text | {"unheard_of": 1}).encode()})
        assert "published store" not in as_user("measure", *words, home="reader", ok=False).stderr
        hub.add("owner/tiny", {name: (tiny.model / name).read_bytes()})
        assert "published store" in as_user("measure", *words, home="reader").stderr


def test_offline_the_weights_are_compared_too(published, hub, as_user, words, tiny, tmp_path):
    online = as_user("measure", *words, "--json", home="reader")
    warm = as_user("measure", *words, "--json", home="reader", offline=True)
    assert "published store" in warm.stderr
    assert number(warm) == number(online)
    weights = load_file(tiny.model / "model.safetensors")
    save_file({name: tensor * 1.5 for name, tensor in weights.items()}, tmp_path / "w", metadata={"format": "pt"})
    hub.add("owner/tiny", {"model.safetensors": (tmp_path / "w").read_bytes()})
    assert as_user("measure", *words, home="reader", ok=False).returncode == 1  # its manifest is cached now, as main's
    changed = as_user("measure", *words, home="reader", offline=True, ok=False)
    assert changed.returncode == 1
    assert "published store" not in changed.stderr
    shutil.rmtree(tmp_path / "reader" / "collapse")  # what this cache held was never compared
    unknown = as_user("measure", *words, home="reader", offline=True, ok=False)
    assert unknown.returncode == 1
    assert "measuring the published store" not in unknown.stderr
    assert "owner/tiny is only partly cached" in unknown.stderr
    assert "hf download owner/tiny" in unknown.stderr


CARD = b"---\nlibrary_name: collapse\ntags: [collapse]\nbase_model: owner/tiny\n---\n"


def test_a_third_partys_store_is_told_of_and_used_only_where_it_is_named(hub, as_user, words, tiny, stored):
    hub.add("owner/tiny", {file.name: file.read_bytes() for file in tiny.model.iterdir()})
    hub.add("other/forged", {"README.md": CARD, **in_folder(forged(stored))})
    hub.add("other/broken", {"README.md": CARD, **in_folder({"collapse.json": b"{}"})})
    expected = collapse.measure(stored, metrics=["nc3"]).measurements["nc3.self_duality"]
    done = as_user("measure", *words, "--json")
    assert number(done) == pytest.approx(expected, rel=1e-6)
    assert "measuring the published store" not in done.stderr
    assert "--store other/forged" in done.stderr
    assert not any("/other/" in path and "resolve" in path for _, path in hub.requests)
    named = as_user("measure", *words, "--store", "other/forged", "--json", home="reader")
    assert f"measuring the published store other/forged/{FOLDER}@" in named.stderr
    assert number(named) != pytest.approx(expected, rel=1e-3)
    broken = as_user("measure", *words, "--store", "other/broken", home="reader", ok=False)
    assert broken.returncode == 1
    assert "other/broken" in broken.stderr
    unlike = as_user("measure", *words, "--store", "other/forged", "--shards", 3, home="reader", ok=False)
    assert unlike.returncode == 2
    assert f"other/forged/{FOLDER}" in unlike.stderr
    assert "shards: 2 and 3" in unlike.stderr


def test_a_damaged_store_in_the_models_repository(hub, as_user, words, tiny, stored):
    files = in_folder(contents(stored))
    hub.add("owner/tiny", {file.name: file.read_bytes() for file in tiny.model.iterdir()} | files)
    tensors = files[f"{FOLDER}/top/train.safetensors"]
    hub.add("owner/tiny", {f"{FOLDER}/top/train.safetensors": tensors[:-1] + bytes([tensors[-1] ^ 1])})
    refused = as_user("measure", *words, "--json", home="tensors", ok=False)
    assert refused.returncode == 1
    assert f"owner/tiny: {FOLDER}/top/train.safetensors is damaged on the Hub" in refused.stderr
    assert "ask its owner to push it again" in refused.stderr
    hub.add("owner/tiny", {f"{FOLDER}/collapse.json": b"{}"})
    done = as_user("measure", *words, "--json", home="manifest")
    assert f"owner/tiny: {FOLDER}/collapse.json" in done.stderr
    assert "it is not used" in done.stderr
    assert as_user("measure", f"owner/tiny/{FOLDER}", home="reader", ok=False).returncode == 1
