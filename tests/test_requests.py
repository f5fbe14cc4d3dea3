"""Requests, made without loading anything: everything that changes a number changes the identity."""

import json

import pytest
from client_cache import A, B, offline_cache

from collapse.errors import UsageError
from collapse.hub.corpus import find_corpus
from collapse.hub.references import find_model
from collapse.inputs.collection_spec import CollectionSpec, options_of
from collapse.inputs.text_request import asked_model, text_request
from collapse.stores.dealing_slices import slices_of_part


@pytest.fixture
def model(tmp_path):
    """A folder that looks like a model; nothing here loads it."""
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "config.json").write_text('{"max_position_embeddings": 64}')
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "tokenizer.json").write_text("{}")
    for name in ("text", "other", "validation"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"text": name, "story": name}) + "\n")
    return folder


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """A cache of the Hub's client that knows the commit of a data set, and of its revision v1; no network."""
    put = offline_cache(tmp_path, monkeypatch)
    put("owner/data", kind="dataset")
    put("owner/data", ref="v1", commit=B, kind="dataset")


def request(model, **options):
    given = {"text": str(model.parent / "text.jsonl"), "validation_text": str(model.parent / "validation.jsonl")}
    spec = CollectionSpec(**{**given, "chunk_length": 32, **options})
    return text_request(asked_model(str(model), spec), spec).with_default_folder()


def test_the_identity_says_everything(model):
    made = request(model)
    assert made.identity == {
        "weights": find_model(str(model)).weights,
        "tokenizer": find_model(str(model)).tokenizer,
        "model_args": {},
        "corpus": find_corpus(str(model.parent / "text.jsonl")).identity(),
        "validation": find_corpus(str(model.parent / "validation.jsonl")).identity(),
        "chunk_length": 32,
        "shards": 2,
        "eos_between": False,
        "max_chunks": None,
        "dtype": "float32",
    }
    texts = {"corpus": "text.jsonl", "validation": "validation.jsonl"}
    assert made.shown_names == {"model": "small", "revision": None, "tokenizer": str(model), **texts}
    without = request(model, validation_text=None)
    assert without.identity == made.identity | {"validation": None}
    assert without.shown_names["validation"] is None


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ("chunk_length", {"chunk_length": 16}),
        ("shards", {"shards": 1}),
        ("eos_between", {"eos_between": True}),
        ("max_chunks", {"max_chunks": 1}),
        ("dtype", {"dtype": "bfloat16"}),
        ("model_args", {"model_args": {"attn_implementation": "eager"}}),
        ("fast_attention", {"fast_attention": False}),
        ("corpus", {"text": "other.jsonl"}),
        ("validation", {"validation_text": "other.jsonl"}),
        ("corpus validation", {"text_column": "story"}),
        ("tokenizer", {"tokenizer": "elsewhere"}),
    ],
)
def test_each_option_changes_its_field_and_no_other(model, monkeypatch, fields, options):
    monkeypatch.chdir(model.parent)
    (model.parent / "elsewhere").mkdir()
    (model.parent / "elsewhere" / "tokenizer.json").write_text("[]")
    one, other = request(model).identity, request(model, **options).identity
    (option,) = options
    assert options_of()[option].role in ("recorded", "changed", fields)
    assert {name for name in {*one, *other} if one.get(name) != other.get(name)} == set(fields.split())


def test_a_cache_key_is_of_the_content_of_files_not_of_their_names(model, own_home):
    first = request(model)
    assert first.folder.parent == own_home / "stores"
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        file = model / name
        before = file.read_bytes()
        file.write_bytes(before + b" ")
        assert request(model).folder != first.folder
        file.write_bytes(before)
    assert request(model.rename(model.parent / "renamed")).folder == first.folder


def test_code_counts_only_where_it_is_trusted(model):
    (model / "config.json").write_text('{"auto_map": {"AutoModel": "code.Model"}, "max_position_embeddings": 64}')
    (model / "code.py").write_text("one")
    assert "code" not in request(model).identity
    trusted = request(model, trust_remote_code=True)
    (model / "code.py").write_text("two")
    assert request(model, trust_remote_code=True).identity["code"] != trusted.identity["code"]


def test_the_chunk_length_is_at_most_the_models_limit(model):
    assert request(model, chunk_length=None).identity["chunk_length"] == 64
    with pytest.raises(UsageError, match="--chunk-length 65 is longer"):
        request(model, chunk_length=65)


def test_without_a_text_the_card_names_it(model, offline, caplog):
    with pytest.raises(UsageError, match="no corpus: the card of small names no data set"):
        request(model, text=None)
    (model / "README.md").write_text("---\ndatasets: [owner/data, owner/second, owner/third]\n---\n")
    caplog.set_level("INFO", logger="collapse")
    made = request(model, text=None)
    assert made.identity["corpus"] == {"name": "owner/data", "revision": A, "split": "train", "column": "text"}
    assert made.shown_names["corpus"] == "owner/data"
    assert "corpus: owner/data, named by the card of small" in caplog.text
    own = request(model, text=None, validation_text=None, validation_split="test")
    assert not own.split_may_be_absent  # a split that is named must be there
    assert own.identity["validation"] == made.identity["corpus"] | {"split": "test"}


def test_a_data_set_is_validated_on_its_own_split(model, offline):
    made = request(model, text="owner/data@v1", validation_text=None, split="most", text_column="story")
    assert made.identity["corpus"] == {"name": "owner/data", "revision": B, "split": "most", "column": "story"}
    assert made.identity["validation"] == made.identity["corpus"] | {"split": "validation"}
    assert made.split_may_be_absent  # the data set may lack such a split
    assert not request(model, text="owner/data", validation_text="owner/data@v1").split_may_be_absent


def test_parts_are_runs_without_gaps():
    for slices in (1, 2, 7, 16):
        for n in range(1, slices + 4):
            runs = [slices_of_part(slices, (k, n)) for k in range(1, n + 1)]
            assert [each for run in runs for each in range(*run)] == list(range(slices))
            assert sum(start == stop for start, stop in runs) == max(0, n - slices)
