"""Which published or cached store is used instead of a collection, offline with only the client's cache."""

import json
from collections.abc import Callable

import pytest
from client_cache import A, B, offline_cache
from golden_store import GOLDEN

from collapse.errors import UsageError
from collapse.hub.opening import load, open_named
from collapse.inputs import resolving
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.text_request import asked_model, text_request
from collapse.stores.manifest import MANIFEST, render, sealed

MODEL = {"config.json": b'{"max_position_embeddings": 64}', "model.safetensors": b"weights", "tokenizer.json": b"{}"}


@pytest.fixture
def publish(tmp_path, own_home, monkeypatch) -> Callable[..., None]:
    """Put a repository into the client's cache, at a commit."""
    put = offline_cache(tmp_path, monkeypatch)
    put("owner/m", MODEL)
    return lambda files, repo="owner/m": put(repo, files)


@pytest.fixture
def options(tmp_path) -> dict[str, object]:
    for name in ("text", "validation"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"text": name}) + "\n")
    texts = {"text": str(tmp_path / "text.jsonl"), "validation_text": str(tmp_path / "validation.jsonl")}
    return {**texts, "chunk_length": 32, "max_chunks": 40}


def stored(identity, change=None, folder="collapse/s") -> dict[str, bytes]:
    """The golden store's files, of another identity."""
    manifest = json.loads((GOLDEN / MANIFEST).read_text())
    later = {name: manifest["identity"][name] for name in ("attention", "head")}
    content = {key: value for key, value in manifest.items() if key not in ("digest", "checksum", "provenance")}
    content["identity"] = {**later, **identity}
    if change:
        change(content)
    files = {name: (GOLDEN / name).read_bytes() for name in manifest["files"]}
    files[MANIFEST] = render(sealed(content, {}))
    return {f"{folder}/{name}": data for name, data in files.items()}


def find_store(model: str, options: dict[str, object]):
    spec = CollectionSpec(**options)
    return resolving.find_store(asked_model(model, spec), spec)


def asked(options) -> dict[str, object]:
    spec = CollectionSpec(**options)
    return text_request(asked_model("owner/m", spec), spec).identity


def test_a_store_that_is_not_whole_is_not_used(publish, options):
    def trained_only(content):
        content["coverage"]["validation"] = content["files"].pop("top/validation.safetensors") and None

    publish(MODEL | stored(asked(options), trained_only))
    assert find_store("owner/m", options) is None
    trained = {**options, "validation_text": None}
    publish(MODEL | stored(asked(trained), no_validation))
    assert find_store("owner/m", trained) is not None
    assert find_store("owner/m", options) is None


DIFFERENT = {
    "corpus": {"sha256": "0" * 64, "column": "text"},
    "validation": {"sha256": "0" * 64, "column": "text"},
    "chunk_length": 48,
    "max_chunks": 5,
    "max_validation_chunks": 5,
    "shards": 3,
    "eos_between": True,
    "dtype": "bfloat16",
    "model_args": {"attn_implementation": "eager"},
    "fast_attention": False,
    "code": {"model": "sha256:0"},
    "weights": "sha256:0",
    "tokenizer": "sha256:0",
}


@pytest.mark.parametrize("field", DIFFERENT)
def test_a_store_of_anything_else_is_not_used(publish, options, caplog, field):
    caplog.set_level("DEBUG", logger="collapse")
    identity = asked(options)
    publish(MODEL | stored(identity))
    assert find_store("owner/m", options).origin == f"owner/m/collapse/s@{A}"
    assert "is not the requested store" not in caplog.text
    publish(MODEL | stored(identity | {field: DIFFERENT[field]}))
    assert find_store("owner/m", options) is None
    (said,) = [each for each in caplog.records if "is not the requested store: it differs in " in each.getMessage()]
    assert said.levelname == "DEBUG"  # a run has a store per checkpoint; only -v prints them


@pytest.mark.parametrize("field", ["corpus", "validation", "chunk_length", "max_chunks", "max_validation_chunks"])
def test_without_a_text_and_limits_any_store_is_used(publish, options, field):
    publish(MODEL | stored(asked(options) | {field: DIFFERENT[field]}))
    assert find_store("owner/m", options) is None
    assert find_store("owner/m", {}) is not None
    assert find_store("owner/m", {"dtype": "bfloat16"}) is None


def no_validation(content):
    content["coverage"]["validation"] = None
    content["corpus"]["validation"] = None
    content["identity"]["validation"] = None
    del content["files"]["top/validation.safetensors"]


def test_a_split_that_a_data_set_lacks_is_no_difference(publish, options, tmp_path, monkeypatch):
    offline_cache(tmp_path, monkeypatch)("owner/data", commit=B, kind="dataset")
    given = {**options, "text": "owner/data", "validation_text": None}
    identity = asked(given)
    assert identity["validation"]["split"] == "validation"
    for held, change, expected in (
        (identity, None, False),
        (identity | {"validation": None}, no_validation, False),
        (identity | {"validation": DIFFERENT["validation"]}, None, True),
    ):
        publish(MODEL | stored(held, change))
        assert (find_store("owner/m", given) is None) == expected
    publish(MODEL | stored(identity, no_validation))
    assert find_store("owner/m", {**given, "validation_text": "owner/data"}) is None


def test_whole_texts_come_first_then_the_longest_chunks(publish, options, caplog):
    identity = asked(options)
    stores = [("a", 64, 5), ("b", 16, None), ("c", 32, None), ("d", 32, None), ("e", None, None)]
    there = dict(MODEL)
    for name, length, share in stores:
        there |= stored(identity | {"chunk_length": length, "max_chunks": share}, folder=f"collapse/{name}")
    publish(there)
    found = find_store("owner/m", {})
    assert found.origin == f"owner/m/collapse/c@{A}"
    assert "using the existing store owner/m/collapse/c@" in caplog.text
    assert "32 tokens per chunk). To collect it yourself, add --recollect" in caplog.text
    assert found.named == {"model": "owner/m", "revision": A}  # its own texts keep their names
    texts_named = {"corpus": "text.jsonl", "validation": "validation.jsonl"}
    assert find_store("owner/m", {**options, "max_chunks": None}).named == {**found.named, **texts_named}


def test_a_damaged_store_costs_only_itself(publish, options, caplog):
    identity = asked(options)
    damaged = stored(identity, folder="collapse/a")
    damaged[f"collapse/a/{MANIFEST}"] = b"{}"
    publish(MODEL | damaged | stored(identity))
    assert find_store("owner/m", options).origin == f"owner/m/collapse/s@{A}"
    assert "ignoring a store: " in caplog.text


def test_names_of_stores(publish, options):
    identity = asked(options)
    publish(MODEL | stored(identity) | stored(identity | {"dtype": "bfloat16"}, folder="collapse/t"))
    publish(stored(identity, folder="x"), "owner/one")
    publish({"README.md": b""}, "owner/none")
    for name in ("owner/m/collapse/t", "owner/m/t@main"):
        assert load(name).identity["dtype"] == "bfloat16"
    for name, said in (
        ("owner/m", "owner/m has several stores: give one of owner/m/collapse/s, owner/m/collapse/t$"),
        ("owner/m/u", "owner/m has no store u; it has owner/m/collapse/s, owner/m/collapse/t$"),
        ("owner/none", "owner/none has no store$"),
        ("./owner/m", "there is no store ./owner/m"),
    ):
        with pytest.raises(UsageError, match=said):
            load(name)
    assert open_named("owner/m") is None  # a model
    assert open_named("owner/none") is open_named("nowhere/x") is open_named("owner") is None
    assert open_named("owner/one").origin == open_named("owner/one/x").origin == f"owner/one/x@{A}"
