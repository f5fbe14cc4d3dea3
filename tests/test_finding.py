"""Which published or cached store stands in for a collection; on the client's cache alone, without a network."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from golden_store import GOLDEN

from collapse.collection.finding import Wanted, _report_others, find_store, find_store_at
from collapse.errors import CollapseError, UsageError
from collapse.hub.opening import open_named, open_store
from collapse.hub.remote import Remote
from collapse.inputs.collection_spec import CollectionSpec
from collapse.stores.manifest import MANIFEST, render, sealed
from collapse.stores.store import Store

A, B = "a" * 40, "b" * 40
MODEL = {"config.json": b'{"max_position_embeddings": 64}', "model.safetensors": b"weights", "tokenizer.json": b"{}"}


@pytest.fixture
def publish(tmp_path, own_home, monkeypatch) -> Callable[..., None]:
    """Put a repository into the client's cache, at a commit."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))

    def publish(files: dict[str, bytes], repo: str = "owner/m", commit: str = A) -> None:
        at = tmp_path / "hub" / f"models--{repo.replace('/', '--')}"
        shutil.rmtree(at / "snapshots" / commit, ignore_errors=True)
        (at / "refs").mkdir(parents=True, exist_ok=True)
        (at / "refs" / "main").write_text(commit)
        for name, data in files.items():
            file = at / "snapshots" / commit / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)

    publish(MODEL)
    return publish


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


def spec(options: dict[str, object]) -> CollectionSpec:
    return CollectionSpec(**options)


def without(options: dict[str, object], name: str) -> dict[str, object]:
    return {key: value for key, value in options.items() if key != name}


def asked(options, model="owner/m") -> dict[str, object]:
    return Wanted(model, spec(options)).plan.identity


LIMITS = ("max_chunks", "max_validation_chunks")


def test_what_a_user_leaves_open(publish, options):
    texts = {key: options[key] for key in ("text", "validation_text")}
    for given, left_open, planned in (
        (options, "", True),
        (texts, "chunk_length max_chunks max_validation_chunks", True),
        ({"text": options["text"]}, "validation chunk_length max_chunks max_validation_chunks", True),
        ({"chunk_length": 32}, "corpus validation max_chunks max_validation_chunks", False),
        ({"chunk_length": 32, "max_chunks": 3, "validation_text": options["validation_text"]}, "corpus", False),
        ({"text": None}, "corpus validation chunk_length max_chunks max_validation_chunks", False),
    ):
        wanted = Wanted("owner/m", spec(given))
        assert wanted.open == set(left_open.split())
        assert wanted.is_planned == planned
    assert Wanted("owner/m", spec({})).plan.spec.chunk_length == 2
    assert Wanted("owner/m", spec({"validation_split": "test"})).open == {"corpus", "chunk_length", *LIMITS}
    for more in ({"split": "test"}, {"text_column": "story"}):  # which is of a text that is not named
        with pytest.raises(UsageError, match="no corpus"):
            Wanted("owner/m", spec(more))
    with pytest.raises(CollapseError, match="other/m"):
        Wanted("other/m", spec(options))


def test_a_length_that_no_model_tells_is_what_the_store_has(publish, options):
    publish(MODEL | {"config.json": b"{}"})
    wanted = Wanted("owner/m", spec(without(options, "chunk_length")))
    assert not wanted.is_planned
    assert wanted.open == {"chunk_length"}
    assert wanted.plan.texts.training is not None


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
    "layers": ["other"],
    "weights": "sha256:0",
    "tokenizer": "sha256:0",
}


@pytest.mark.parametrize("field", DIFFERENT)
def test_a_store_of_anything_else_is_not_used(publish, options, caplog, field):
    caplog.set_level("INFO", logger="collapse")
    identity = asked(options)
    publish(MODEL | stored(identity))
    assert find_store("owner/m", spec(options)).origin == f"owner/m/collapse/s@{A}"
    assert find_store_at("owner/m", "owner/m", spec(options)).origin == f"owner/m/collapse/s@{A}"
    assert "is not what was asked for" not in caplog.text
    publish(MODEL | stored(identity | {field: DIFFERENT[field]}))
    assert find_store("owner/m", spec(options)) is None
    assert "is not what was asked for, it differs in " in caplog.text
    with pytest.raises(UsageError, match=f"owner/m has no store of owner/m as it was asked for .*differs in {field}"):
        find_store_at("owner/m", "owner/m", spec(options))


@pytest.mark.parametrize("field", ["corpus", "validation", "chunk_length", "max_chunks"])
def test_what_is_left_open_may_be_anything(publish, options, field):
    identity = asked(options)
    publish(MODEL | stored(identity | {field: DIFFERENT[field]}))
    option = {"corpus": "text", "validation": "validation_text"}.get(field, field)
    given = without(options, option)
    found = find_store("owner/m", spec(given))
    assert found is not None
    assert Wanted("owner/m", spec(given)).differences(found) == []
    assert Wanted("owner/m", spec(options)).differences(found) != []


def no_validation(content):
    content["coverage"]["validation"] = None
    content["corpus"]["validation"] = None
    content["identity"]["validation"] = None
    del content["files"]["top/validation.safetensors"]


def test_only_a_whole_store_is_used(publish, options):
    identity = asked(options)
    files = stored(identity, lambda content: content["coverage"].update(validation=None))
    store = Store(json.loads(files[f"collapse/s/{MANIFEST}"]), None)
    assert Wanted("owner/m", spec(options)).differences(store) == ["it is not complete (trained)"]
    trained = {**options, "validation_text": None}
    files = stored(asked(trained), no_validation)
    store = Store(json.loads(files[f"collapse/s/{MANIFEST}"]), None)
    assert Wanted("owner/m", spec(trained)).differences(store) == []
    (said,) = Wanted("owner/m", spec(options)).differences(store)
    assert said.startswith("validation: ")


def test_a_split_that_a_data_set_lacks_is_no_difference(publish, options, tmp_path):
    refs = tmp_path / "hub" / "datasets--owner--data" / "refs"
    refs.mkdir(parents=True)
    (refs / "main").write_text(B)
    (refs.parent / "snapshots" / B).mkdir(parents=True)
    given = {**options, "text": "owner/data", "validation_text": None}
    identity = asked(given)
    assert identity["validation"]["split"] == "validation"
    for held, change, expected in (
        (identity, None, False),
        (identity | {"validation": None}, no_validation, False),
        (identity | {"validation": DIFFERENT["validation"]}, None, True),
    ):
        store = Store(json.loads(stored(held, change)[f"collapse/s/{MANIFEST}"]), None)
        assert bool(Wanted("owner/m", spec(given)).differences(store)) == expected
    named = {**given, "validation_text": "owner/data"}
    store = Store(json.loads(stored(identity, no_validation)[f"collapse/s/{MANIFEST}"]), None)
    assert len(Wanted("owner/m", spec(named)).differences(store)) == 1


def test_whole_texts_come_first_then_the_longest_chunks(publish, options, caplog):
    texts = {key: options[key] for key in ("text", "validation_text")}
    identity = asked(options)
    stores = [("a", 64, 5), ("b", 16, None), ("c", 32, None), ("d", 32, None), ("e", None, None)]
    there = dict(MODEL)
    for name, length, share in stores:
        there |= stored(identity | {"chunk_length": length, "max_chunks": share}, folder=f"collapse/{name}")
    publish(there)
    found = find_store("owner/m", spec(texts))
    assert found.origin == f"owner/m/collapse/c@{A}"
    assert "measuring the published store owner/m/collapse/c@" in caplog.text
    assert "32 tokens a chunk, the whole text (--recollect collects)" in caplog.text
    assert found.named == {"model": "owner/m", "corpus": "text.jsonl", "validation": "validation.jsonl"}
    only = find_store_at("owner/m/collapse/a", "owner/m", spec(texts))
    assert only.origin == f"owner/m/collapse/a@{A}"
    assert "64 tokens a chunk, 5 chunks (--recollect" in caplog.text
    assert find_store_at("owner/m/a", "owner/m", spec(texts)).origin == only.origin
    assert find_store("owner/m", spec({})).named == {"model": "owner/m"}  # the store's own texts keep their names


def test_a_limit_of_the_validation_text_is_open_only_where_that_of_each_text_is(publish, options, caplog):
    texts = {key: options[key] for key in ("text", "validation_text")}
    identity = asked({**options, "max_validation_chunks": 3})
    assert identity["max_validation_chunks"] == 3
    publish(MODEL | stored(identity))
    assert find_store("owner/m", spec(options)) is None  # --max-chunks limits both
    assert find_store("owner/m", spec({**options, "max_validation_chunks": 4})) is None
    assert find_store("owner/m", spec({**options, "max_validation_chunks": 3})) is not None
    assert find_store("owner/m", spec(texts)) is not None
    assert "32 tokens a chunk, 40 chunks, validated on 3 chunks (--recollect" in caplog.text
    whole = identity | {"max_chunks": None}
    unlimited = {name: value for name, value in whole.items() if name != "max_validation_chunks"}
    publish(MODEL | stored(whole, folder="collapse/a") | stored(unlimited, folder="collapse/b"))
    assert find_store("owner/m", spec(texts)).origin == f"owner/m/collapse/b@{A}"


def test_a_damaged_store_costs_only_itself(publish, options, caplog):
    identity = asked(options)
    damaged = stored(identity, folder="collapse/a")
    damaged[f"collapse/a/{MANIFEST}"] = b"{}"
    publish(MODEL | damaged | stored(identity))
    assert find_store("owner/m", spec(options)).origin == f"owner/m/collapse/s@{A}"
    assert "it is not used" in caplog.text


def test_folders_and_names_of_nothing_have_no_published_store(publish, options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_store("owner/m", spec(options)) is None
    assert find_store("m", spec(options)) is None
    assert find_store("other/m", spec(options)) is None
    publish(MODEL | stored(asked(options)))
    assert find_store("owner/m", spec(options)) is not None
    assert find_store("owner/m", spec({**options, "revision": A})) is not None
    assert find_store("owner/m", spec({**options, "revision": "v1"})) is None
    for name, data in MODEL.items():
        (tmp_path / "owner" / "m").mkdir(parents=True, exist_ok=True)
        (tmp_path / "owner" / "m" / name).write_bytes(data)
    assert find_store("owner/m", spec(options)) is None
    publish({"README.md": b""}, "other/empty")
    assert find_store_at("other/empty", "owner/m", spec(options)) is None


def test_what_is_cached_comes_first(publish, options, own_home):
    wanted = Wanted("owner/m", spec(options))
    publish(MODEL | stored(wanted.plan.identity))
    assert find_store("owner/m", spec(options)) is not None
    for name, data in stored(wanted.plan.identity, folder=str(wanted.plan.cached)).items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(data)
    assert find_store("owner/m", spec(options)) is None  # collecting opens it
    publish(MODEL | {"README.md": b"", **stored(wanted.plan.identity)}, commit=B)  # another commit of the same files
    assert find_store("owner/m", spec(options)) is None
    publish(MODEL | {"model.safetensors": b"others"}, commit=B)
    assert Wanted("owner/m", spec(options)).plan.cached != wanted.plan.cached


def test_other_peoples_stores_are_named_and_never_fetched(publish, monkeypatch, caplog):
    from collapse.collection import finding

    hits = [SimpleNamespace(id=name) for name in ("z/y", "owner/m", "a/b", "no/such/name", "z/y")]
    monkeypatch.setattr(finding, "models_tagged", lambda *tags, limit: hits if "base_model:owner/m" in tags else [])
    _report_others(Remote("owner/m", A, False))
    assert not caplog.messages
    _report_others(Remote("owner/m", A, True))
    (said,) = caplog.messages
    assert said.endswith("of owner/m; they are used only where you name one: --store a/b, --store z/y")
    _report_others(Remote("owner/x", A, True))
    assert len(caplog.messages) == 1


def test_names_of_stores(publish, options):
    identity = asked(options)
    two = stored(identity) | stored(identity | {"dtype": "bfloat16"}, folder="collapse/t")
    publish(MODEL | two)
    publish(stored(identity), "owner/one")
    publish({"README.md": b""}, "owner/none")
    publish(stored(identity, folder="x") | {"README.md": b""}, "owner/x")
    assert open_store("owner/m/collapse/t").identity["dtype"] == "bfloat16"
    assert open_store("owner/m/t@main").identity["dtype"] == "bfloat16"
    assert open_store("owner/one").identity["dtype"] == "float32"
    for name, said in (
        ("owner/m", "owner/m has several stores: name one of owner/m/collapse/s, owner/m/collapse/t$"),
        ("owner/m/u", "owner/m has no store u; it has owner/m/collapse/s, owner/m/collapse/t$"),
        ("owner/none", "owner/none has no store$"),
        ("owner", "there is no store owner: give a folder"),
        ("./owner/m", "there is no store ./owner/m"),
    ):
        with pytest.raises(UsageError, match=said):
            open_store(name)
    assert open_named("owner/m") is None  # a model
    assert open_named("owner/none") is open_named("nowhere/x") is open_named("owner") is None
    assert open_named("owner/one").origin == f"owner/one/collapse/s@{A}"
    assert open_named("owner/x/x").origin == open_named("owner/x").origin
