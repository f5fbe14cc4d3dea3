"""A run is trained and collected on the same texts, also if the default validation split is absent."""

import shutil

import pytest
from client_cache import offline_cache

import collapse
from collapse.errors import UsageError
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.text_pair import find_texts
from collapse.measurement.comparable import SAME_TEXTS
from collapse_zoo.sources import find_source


@pytest.fixture(autouse=True)
def _offline(tmp_path, monkeypatch):
    """A cache of the Hub's client that knows the commit of a data set; no network."""
    offline_cache(tmp_path, monkeypatch)("owner/data", kind="dataset")


@pytest.mark.parametrize(
    ("names", "label"),
    [(["my, 2nd.jsonl"], "my.2nd"), (["train.jsonl"], "wiki.en"), (["a.jsonl", "b.jsonl"], "wiki.en")],
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
    assert source.texts.may_be_absent == optional
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


@pytest.mark.parametrize("options", [{"shards": 3}, {"validation_text": "validation"}])
def test_local_texts_are_found_again_as_a_job_of_a_sweep_finds_them(tiny, options):
    if "validation_text" in options:
        options = {"validation_text": str(tiny.validation)}
    source = find_source(tokenizer=str(tiny.model), text=str(tiny.text), **options)
    again = find_source(**source.collecting(64), tokenizer=source.tokenizer_name)
    assert again.identity() == source.identity()
    assert (again.texts, again.spec.shards) == (source.texts, options.get("shards", 2))


def test_training_says_as_measuring_does_that_its_texts_are_the_same(texts, run, tmp_path):
    same = ["--text", texts["text"], "--validation-text", texts["text"], "--tokenizer", texts["tokenizer"]]
    small = ["--chunk-length", 64, "--max-steps", 1, "--device", "cpu", "--output", tmp_path / "1x16"]
    assert run("zoo", "train", "1x16", *same, *small).stderr.count(SAME_TEXTS) == 1
    measured = run("measure", tmp_path / "1x16", "--metrics", "val_loss")
    assert SAME_TEXTS in " ".join(measured.stdout.split())
    assert SAME_TEXTS in measured.stderr
