"""A run directory names its texts and stores: it can be measured without further options."""

import json
import shutil

import pytest

import collapse
from collapse.errors import CollapseError
from collapse_zoo.recipes import Recipe
from collapse_zoo.runs import Run
from collapse_zoo.training import train


@pytest.fixture(scope="module")
def trained(source, tmp_path_factory):
    recipe = Recipe(1, 16, heads=4, chunk_length=64, batch_size=8, precision="float32", vocabulary=400)
    return train(recipe, source, tmp_path_factory.mktemp("runs") / "run", device="cpu", measure=True)


@pytest.fixture
def copied(trained, tmp_path):
    return Run(shutil.copytree(trained.path, tmp_path / "run"))


def test_a_run_is_measured_on_its_texts_and_without_collecting_again(copied, tmp_path):
    store = collapse.collect(copied.path, device="cpu")
    assert store.path == copied.store(0)
    assert collapse.measure(store).measurements == copied.results()[-1].measurements
    fewer = collapse.collect(copied.path, device="cpu", max_chunks=3, store=tmp_path / "s")
    assert fewer.identity == store.identity | {"max_chunks": 3}


def test_a_checkpoint_of_a_run_is_measured_on_its_texts_too(copied, monkeypatch):
    monkeypatch.chdir(copied.path / "checkpoints")
    name = f"checkpoint-{copied.epochs[0].step}"
    row, known = collapse.measure(name, device="cpu"), copied.results()[-1]
    assert (row.model, row.step) == (f"run/{name}", known.step)
    assert (row.corpus_id, row.validation_id, row.chunk_length) == (known.corpus_id, known.validation_id, 64)
    assert row.measurements == pytest.approx(known.measurements, rel=1e-9, abs=1e-12, nan_ok=True)


def test_a_store_of_another_text_keeps_it(copied, texts, tmp_path):
    others = {"text": texts["validation_text"], "max_chunks": 4, "store": tmp_path / "s"}
    store = collapse.collect(copied.path, device="cpu", **others)
    assert collapse.collect(copied.path, device="cpu", store=tmp_path / "s").digest == store.digest
    fewer = collapse.collect(copied.path, device="cpu", max_chunks=3, store=tmp_path / "f")
    again = collapse.collect(copied.path, device="cpu", store=tmp_path / "f", layers="0")
    assert (again.identity, again.layers) == (fewer.identity, ["0", "top"])


@pytest.mark.parametrize(("option", "which"), [("text", "corpus"), ("validation_text", "validation")])
def test_a_text_that_changed_is_not_taken_for_what_was_trained_on(copied, tmp_path, texts, option, which):
    here = copied.record["here"]
    mine = tmp_path / "train.jsonl"
    mine.write_text(json.dumps({"text": "another text " * 400}) + "\n")
    copied.update(here=here | {"texts": here["texts"] | {option: [str(mine)]}})
    with pytest.raises(CollapseError, match=rf"the texts of .* have changed since training \({which}\)"):
        collapse.collect(copied.path, device="cpu")
    named = {name: texts[name] for name in ("text", "validation_text")}
    store = collapse.collect(copied.path, device="cpu", **named)
    assert store.identity["corpus"] == collapse.Store.load(copied.store(0)).identity["corpus"]
