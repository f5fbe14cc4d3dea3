"""A run knows its texts and its stores: it is measured by its folder alone."""

import json
import shutil

import pytest

import collapse
from collapse.errors import CollapseError
from collapse_zoo.measuring import measure_run
from collapse_zoo.recipes import Recipe
from collapse_zoo.runs import TEXTS, Run
from collapse_zoo.sources import find_source
from collapse_zoo.training import train

NAME = "texts-01x0016_01d"


def source_of(texts):
    return {
        "text": str(texts / "train.jsonl"),
        "validation_text": str(texts / "validation.jsonl"),
        "tokenizer": str(texts / "tokenizer"),
    }


@pytest.fixture(scope="module")
def source(texts):
    return find_source(**source_of(texts))


@pytest.fixture(scope="module")
def trained(source, tmp_path_factory):
    recipe = Recipe(1, 16, heads=4, chunk_length=64, batch_size=8, precision="float32", vocabulary=400)
    run = train(recipe, source, tmp_path_factory.mktemp("runs") / NAME, name=NAME, device="cpu")
    measure_run(run, source)
    return run


@pytest.fixture
def copied(trained, tmp_path):
    return Run(shutil.copytree(trained.path, tmp_path / "runs" / NAME))


def test_a_run_is_measured_without_collecting_again(copied):
    store = collapse.collect(copied.path, device="cpu")
    assert store.path == copied.store(0)
    assert collapse.measure(store).measurements == copied.results()[-1].measurements


def test_other_options_collect_on_the_same_texts(copied, tmp_path):
    store = collapse.collect(copied.path, device="cpu", max_chunks=3, store=tmp_path / "s")
    whole = collapse.Store.load(copied.store(0))
    assert store.identity == whole.identity | {"max_chunks": 3}


def test_a_given_validation_text_replaces_the_known_one_only(copied, texts):
    whole = collapse.Store.load(copied.store(0)).identity
    other = str(texts / "train.jsonl")
    store = collapse.collect(copied.path, device="cpu", validation_text=other)
    assert store.identity["corpus"] == whole["corpus"]
    assert store.identity["validation"]["sha256"] == whole["corpus"]["sha256"]


def test_a_store_with_a_statistic_that_is_not_wanted_is_not_used(copied):
    held = collapse.Store.load(copied.store(0)).manifest["statistics"]
    store = collapse.collect(copied.path, device="cpu", without=sorted(held))
    assert store.path != copied.store(0)
    assert not store.manifest["statistics"]


def test_a_text_that_changed_is_not_taken_for_what_was_trained_on(copied, tmp_path, texts):
    where = json.loads((copied.path / TEXTS).read_text())
    mine = tmp_path / "train.jsonl"
    mine.write_text(json.dumps({"text": "another text " * 400}) + "\n")
    for option, said in (
        ("text", "trained on changed since"),
        ("validation_text", "the validation text of .* changed"),
    ):
        (copied.path / TEXTS).write_text(json.dumps(where | {option: [str(mine)]}))
        with pytest.raises(CollapseError, match=said):
            collapse.collect(copied.path, device="cpu")
    (copied.path / TEXTS).write_text("[")
    with pytest.raises(CollapseError, match=r"texts\.json cannot be read"):
        collapse.collect(copied.path, device="cpu")
    named = source_of(texts)
    store = collapse.collect(copied.path, device="cpu", text=named["text"], validation_text=named["validation_text"])
    assert store.identity["corpus"] == collapse.Store.load(copied.store(0)).identity["corpus"]


class Stopped(Exception):
    """Ends a collection between two batches."""


def test_the_same_command_resumes_a_runs_store_and_opens_it_when_it_is_finished(copied, tmp_path):
    def stop(what, done, total, note=""):
        if what == "collecting validation":
            raise Stopped

    options = {"store": tmp_path / "s", "device": "cpu", "max_chunks": 30}
    with pytest.raises(Stopped):
        collapse.collect(copied.path, progress=stop, **options)
    assert collapse.Store.load(tmp_path / "s").state == "trained"
    done = collapse.collect(copied.path, **options)
    assert done.state == "complete"
    assert collapse.collect(copied.path, **options).digest == done.digest
    with pytest.raises(CollapseError, match="max_chunks: 30 and none"):
        collapse.collect(copied.path, store=tmp_path / "s", device="cpu")


def test_a_merged_store_of_a_run_is_validated_on_the_runs_text(copied, tmp_path):
    parts = [collapse.collect(copied.path, store=tmp_path / f"{k}", device="cpu", part=(k, 2)) for k in (1, 2)]
    merged = collapse.merge(parts, store=tmp_path / "merged")
    assert merged.state == "trained"
    done = collapse.collect(copied.path, store=tmp_path / "merged", device="cpu")
    assert done.state == "complete"
    assert done.identity == collapse.Store.load(copied.store(0)).identity


def test_a_store_on_another_text_keeps_its_text(copied, tmp_path, texts):
    other = {"text": str(texts / "validation.jsonl"), "chunk_length": 32, "device": "cpu", "store": tmp_path / "s"}
    trained_on_other = collapse.collect(copied.path, **other)
    assert trained_on_other.state == "trained"
    again = collapse.collect(
        copied.path, store=tmp_path / "s", device="cpu", validation_text=str(texts / "train.jsonl")
    )
    assert again.state == "complete"
    assert again.identity["corpus"] == trained_on_other.identity["corpus"]
    assert again.identity["chunk_length"] == 32
