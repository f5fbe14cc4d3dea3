"""A run knows its texts and its stores: it is measured by its folder alone."""

import json
import shutil

import pytest

import collapse
from collapse.errors import CollapseError
from collapse.plugin.figures import numbers_of
from collapse.testing import check_figure
from collapse_zoo.figures import run_loss
from collapse_zoo.recipes import Recipe
from collapse_zoo.runs import Run
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
    return train(recipe, source, tmp_path_factory.mktemp("runs") / NAME, name=NAME, device="cpu", measure=True)


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


def test_a_text_that_changed_is_not_taken_for_what_was_trained_on(copied, tmp_path, texts):
    here = copied.record["here"]
    mine = tmp_path / "train.jsonl"
    mine.write_text(json.dumps({"text": "another text " * 400}) + "\n")
    for option, said in (
        ("text", "the corpus text of .* changed"),
        ("validation_text", "the validation text of .* changed"),
    ):
        copied.update(here=here | {"texts": here["texts"] | {option: [str(mine)]}})
        with pytest.raises(CollapseError, match=said):
            collapse.collect(copied.path, device="cpu")
    named = source_of(texts)
    store = collapse.collect(copied.path, device="cpu", text=named["text"], validation_text=named["validation_text"])
    assert store.identity["corpus"] == collapse.Store.load(copied.store(0)).identity["corpus"]


def test_the_loss_of_a_run_is_drawn_through_its_stores(trained):
    stores = [collapse.load(trained.store(0))]
    check_figure(run_loss, stores=stores)
    rows = numbers_of(collapse.draw("run-loss", stores).spec)
    lines = trained.state()["log_history"]
    assert [row["loss"] for row in rows if "loss" in row] == [line["loss"] for line in lines if "loss" in line]
    assert len([row for row in rows if "validation" in row]) == 1
