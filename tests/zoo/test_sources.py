"""What a run is trained on is what it is collected on: the same texts, and the same split that may be absent."""

import shutil

import pytest
from client_cache import offline_cache

import collapse
from collapse.errors import UsageError
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.text_pair import find_texts
from collapse.measurement.comparing import SAME_TEXTS
from collapse_zoo.sources import find_source


@pytest.fixture(autouse=True)
def _offline(tmp_path, monkeypatch):
    """A cache of the Hub's client that knows the commit of a data set; no network."""
    offline_cache(tmp_path, monkeypatch)("owner/data", kind="dataset")


@pytest.mark.parametrize(
    ("names", "label"),
    [
        (["my.jsonl"], "my"),
        (["My stories, 2nd.jsonl"], "My.stories.2nd"),
        (["train.jsonl"], "wiki.en"),
        (["a.jsonl", "b.jsonl"], "wiki.en"),
        (["…….jsonl"], "TinyStories"),
    ],
)
def test_a_run_is_named_after_its_text(tiny, tmp_path, names, label):
    files = [tmp_path / "wiki_en" / name for name in names]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        shutil.copy(tiny.text, file)
    assert find_source(tokenizer=str(tiny.model), text=[str(file) for file in files]).label == label


@pytest.mark.parametrize(
    ("options", "optional"),
    [
        ({"text": "owner/data"}, True),
        ({"text": "owner/data", "validation_split": "test"}, False),
        ({"text": "owner/data", "split": "most", "validation_text": "owner/data", "max_chunks": 3}, False),
    ],
)
def test_a_run_is_collected_on_the_texts_that_it_was_trained_on(tiny, options, optional):
    source = find_source(tokenizer=str(tiny.model), **options)
    assert source.texts.optional == optional
    collecting = source.collecting(64)
    texts = find_texts(CollectionSpec(**collecting))
    assert texts == source.texts
    assert (collecting["shards"], collecting.get("max_chunks")) == (2, options.get("max_chunks"))


def test_the_validation_text_has_a_limit_of_its_own(tiny, tmp_path):
    texts = {"tokenizer": str(tiny.model), "text": str(tiny.text)}
    source = find_source(**texts, validation_text=str(tiny.validation), max_chunks=9, max_validation_chunks=4)
    assert (len(source.chunks(32)), len(source.validation_chunks(32))) == (9, 4)
    store = collapse.collect(tiny.model, store=tmp_path / "s", **source.collecting(32))
    assert [store.manifest["coverage"][phase]["chunks"] for phase in ("train", "validation")] == [9, 4]
    with pytest.raises(UsageError, match="--max-validation-chunks 4 does not apply without a validation text"):
        find_source(**texts, max_validation_chunks=4)


def test_local_texts_are_collected_on_again(tiny):
    source = find_source(tokenizer=str(tiny.model), text=str(tiny.text), validation_text=str(tiny.validation))
    assert find_texts(CollectionSpec(**source.collecting(64))) == source.texts
    again = find_source(**source.collecting(64), tokenizer=source.tokenizer_name)  # as a sweep's job finds it
    assert again.identity() == source.identity()
    alone = find_source(tokenizer=str(tiny.model), text=[str(tiny.text)], shards=3)
    assert alone.texts.validation is None
    assert "validation_text" not in alone.collecting(64)
    assert alone.collecting(64)["shards"] == 3


def test_training_says_as_measuring_does_that_its_texts_are_the_same(texts, run, tmp_path):
    def said(model, validation):
        given = ["--text", texts / "train.jsonl", "--validation-text", texts / validation]
        sizes = ["--tokenizer", texts / "tokenizer", "--heads", 4, "--chunk-length", 64, "--max-steps", 1]
        done = run("zoo", "train", model, *given, *sizes, "--device", "cpu", "--output", tmp_path / model)
        return done.stderr.count(SAME_TEXTS)

    assert (said("1x16", "train.jsonl"), said("1x32", "validation.jsonl")) == (1, 0)
    measured = run("measure", tmp_path / "1x16", "--metrics", "val_loss")
    assert SAME_TEXTS in " ".join(measured.stdout.split())
    assert SAME_TEXTS in measured.stderr
