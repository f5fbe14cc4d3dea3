"""What is to be collected, told without loading anything: each thing that changes a number changes the identity."""

import json

import pytest

from collapse.collection.planning import plan_collection
from collapse.collection.request import part_of
from collapse.errors import UsageError
from collapse.inputs.collection_spec import ROLES, CollectionSpec, options_of
from collapse.inputs.text_source import first_batch, largest_batch, slice_length
from collapse.stores.files import sha256_of
from collapse.stores.manifest import VERSION

COMMIT = "a" * 40


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
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    for name, commit in (("main", COMMIT), ("v1", "b" * 40)):
        file = tmp_path / "hub" / "datasets--owner--data" / "refs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(commit)
        (file.parents[1] / "snapshots" / commit).mkdir(parents=True)


def plan(model, there=None, **options):
    given = {"text": str(model.parent / "text.jsonl"), "validation_text": str(model.parent / "validation.jsonl")}
    return plan_collection(str(model), CollectionSpec(**{**given, "chunk_length": 32, **options}), there=there)


def test_the_identity_says_everything(model):
    made = plan(model)
    identity = made.identity
    assert identity == {
        "weights": made.model.weights,
        "tokenizer": made.model.tokenizer,
        "model_args": {},
        "corpus": made.texts.training.identity(),
        "validation": made.texts.validation.identity(),
        "chunk_length": 32,
        "shards": 2,
        "eos_between": False,
        "max_chunks": None,
        "dtype": "float32",
        "layers": ["top"],
    }
    texts = {"corpus": "text.jsonl", "validation": "validation.jsonl"}
    assert made.names == {"model": "small", "tokenizer": made.tokenizer.location, **texts}
    assert not made.texts.optional
    without = plan(model, validation_text=None)
    assert without.identity == identity | {"validation": None}
    assert without.names["validation"] is None
    assert not without.texts.optional


def test_a_cache_key_is_of_the_whole_identity(model, own_home):
    made = plan(model)
    assert made.cached == own_home / "stores" / sha256_of([VERSION, made.identity])[:40]
    assert len(made.cached.name) == 40


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
    one, other = plan(model).identity, plan(model, **options).identity
    (option,) = options
    assert options_of()[option].role in (*ROLES, fields)
    assert {name for name in {*one, *other} if one.get(name) != other.get(name)} == set(fields.split())
    if "fast_attention" in options:
        assert other["fast_attention"] is False


def test_a_plan_of_another_store_is_told_by_its_files_not_by_their_names(model):
    first = plan(model)
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        file = model / name
        before = file.read_bytes()
        file.write_bytes(before + b" ")
        assert plan(model).cached != first.cached
        file.write_bytes(before)
    assert plan(model.rename(model.parent / "renamed")).cached == first.cached


def test_code_counts_only_where_it_is_trusted(model):
    (model / "config.json").write_text('{"auto_map": {"AutoModel": "code.Model"}, "max_position_embeddings": 64}')
    (model / "code.py").write_text("one")
    assert "code" not in plan(model).identity
    trusted = plan(model, trust_remote_code=True)
    assert trusted.identity["code"]["model"].startswith("sha256:")
    (model / "code.py").write_text("two")
    assert plan(model, trust_remote_code=True).identity["code"] != trusted.identity["code"]


@pytest.mark.parametrize(("option", "least"), [("chunk_length", 2), ("max_chunks", 1), ("shards", 1)])
def test_numbers_that_make_no_sense_are_refused(model, option, least):
    assert plan(model, **{option: least}).identity[option] == least
    for value in (least - 1, -1):
        with pytest.raises(UsageError, match=f"--{option.replace('_', '-')} must be at least {least}, got {value}"):
            plan(model, **{option: value})


def test_lengths_are_those_of_the_option_the_store_or_the_model(model):
    assert plan(model, chunk_length=None).spec.chunk_length == 64
    there = {"corpus": plan(model).identity["corpus"], "chunk_length": 16, "max_chunks": 5}
    stores = plan(model, text=None, chunk_length=None, there=there).spec
    assert (stores.chunk_length, stores.max_chunks) == (16, 5)
    own = plan(model, text=None, chunk_length=8, max_chunks=3, there=there).spec
    assert (own.chunk_length, own.max_chunks) == (8, 3)
    named = plan(model, chunk_length=None, there=there).spec  # a request that names its text stands on its own
    assert (named.chunk_length, named.max_chunks) == (64, None)
    with pytest.raises(UsageError, match="--chunk-length 65 is longer"):
        plan(model, chunk_length=65)


def test_arguments_that_are_not_taken_are_refused(model):
    with pytest.raises(UsageError, match="--model-arg state_dict=… is not allowed"):
        plan(model, model_args={"state_dict": 1})


def test_arguments_are_recorded_without_secrets():
    assert CollectionSpec(model_args={"variant": "fp16"}).identity["model_args"] == {"variant": "fp16"}
    assert "hunter2" not in str(CollectionSpec(model_args={"token": "hunter2"}).identity)


def test_without_a_text_the_card_names_it(model, offline, caplog):
    with pytest.raises(UsageError, match="no corpus: the card of small names no data set"):
        plan(model, text=None)
    (model / "README.md").write_text("---\ndatasets: [owner/data, owner/second, owner/third]\n---\n")
    caplog.set_level("INFO", logger="collapse")
    made = plan(model, text=None)
    assert made.identity["corpus"] == {"name": "owner/data", "revision": COMMIT, "split": "train", "column": "text"}
    assert made.names["corpus"] == "owner/data"
    assert "corpus: owner/data, named by the card of small" in caplog.text
    assert not made.texts.optional
    own = plan(model, text=None, validation_text=None, validation_split="test")
    assert not own.texts.optional  # a split that is named must be there
    assert own.identity["validation"] == made.identity["corpus"] | {"split": "test"}
    assert plan(model).identity["corpus"] != made.identity["corpus"]  # a text that is given comes first


def test_a_data_set_is_validated_on_its_own_split(model, offline):
    made = plan(model, text="owner/data@v1", validation_text=None, split="most", text_column="story")
    assert made.identity["corpus"] == {"name": "owner/data", "revision": "b" * 40, "split": "most", "column": "story"}
    assert made.identity["validation"] == made.identity["corpus"] | {"split": "validation"}
    assert made.texts.optional
    other = plan(model, text="owner/data", validation_text="owner/data@v1")
    assert other.identity["validation"]["revision"] == "b" * 40
    assert not other.texts.optional


def test_a_store_to_go_on_with_stands_in_for_texts(model, offline):
    there = plan(model).identity
    validated = plan(model, text=None, there=there)
    assert validated.texts.training is None
    assert validated.identity == there
    assert validated.names["corpus"] is None
    with pytest.raises(UsageError, match=f"local file: name it again .*begins {there['validation']['sha256'][:12]}\\)"):
        plan(model, text=None, validation_text=None, there=there)
    alone = plan(model, text=None, validation_text=None, there=there | {"validation": None})
    assert alone.identity == there | {"validation": None}
    hub = there | {"validation": {"name": "owner/data", "revision": "c" * 40, "split": "test", "column": "story"}}
    assert plan(model, text=None, validation_text=None, there=hub).identity == hub
    again = plan(model, there=hub)  # a text that is given is the one that is meant, and so is its validation
    assert again.identity == there
    assert plan(model, validation_text=None, there=hub).texts.validation is None


def test_a_plan_cannot_be_changed(model):
    made = plan(model)
    with pytest.raises(AttributeError):
        made.spec = CollectionSpec()
    with pytest.raises(AttributeError):
        made.spec.dtype = "float64"


def test_parts_are_runs_without_gaps():
    for slices in (1, 2, 7, 16):
        for n in range(1, slices + 1):
            runs = [part_of(slices, (k, n)) for k in range(1, n + 1)]
            assert [each for run in runs for each in range(*run)] == list(range(slices))
            assert all(start < stop for start, stop in runs)
    assert part_of(9, None) == (0, 9)
    for part in ((0, 3), (4, 3), (-1, 3), (1, 0)):
        with pytest.raises(UsageError, match="--part must be 1/"):
            part_of(9, part)
    with pytest.raises(UsageError, match="only 3 slices"):
        part_of(3, (1, 4))


@pytest.mark.parametrize(
    ("chunks", "length", "expected"),
    [
        (229_367, 2048, 1024),
        (10**6, 16_384, 1024),
        (16_384, 16_384, 1024),
        (16_383, 16_384, 1023),
        (16_383, 2048, 1016),
        (1_000, 2048, 56),
        (16, 512, 2),
        (15, 512, 1),
        (190, 128, 16),
        (255, 128, 16),
        (255, 129, 8),
        (1, 2, 1),
        (10**6, 2, 8192),
    ],
)
def test_slices_are_whole_batches_and_at_least_eight(chunks, length, expected):
    assert slice_length(chunks, length) == expected


@pytest.mark.parametrize(
    ("chunks", "length", "largest", "cpu"),
    [
        (229_367, 2048, 8, 1),
        (229_367, 512, 32, 4),
        (10**6, 511, 32, 4),
        (10**6, 513, 16, 2),
        (10**6, 16_384, 1, 1),
        (10**6, 8_192, 2, 1),
        (64, 2, 8, 8),
        (63, 2, 4, 4),
        (16, 2, 2, 2),
        (15, 2, 1, 1),
        (127, 128, 8, 8),
        (128, 128, 16, 16),
        (511, 128, 16, 16),
        (512, 128, 32, 16),
        (10**6, 2, 8192, 1024),
    ],
)
def test_automatic_batches_are_powers_of_two_within_their_tokens(chunks, length, largest, cpu):
    assert largest_batch(chunks, length) == largest
    assert first_batch(chunks, length, "cpu") == cpu
    assert first_batch(chunks, length, "cuda") == largest
