"""What a run is trained on is what it is collected on: the same texts, and the same split that may be absent."""

import json
import shlex
import shutil

import pytest

import collapse
from collapse.errors import UsageError
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.text_pair import find_texts
from collapse.measurement.comparing import SAME_TEXTS
from collapse_zoo.commands._options import recipe_values, source_arguments
from collapse_zoo.commands.train import command
from collapse_zoo.recipes import parse
from collapse_zoo.records import repeat_command
from collapse_zoo.sources import find_source

COMMIT = "a" * 40


@pytest.fixture(autouse=True)
def _offline(tmp_path, monkeypatch):
    """A cache of the Hub's client that knows the commit of a data set; no network."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    file = tmp_path / "hub" / "datasets--owner--data" / "refs" / "main"
    file.parent.mkdir(parents=True)
    file.write_text(COMMIT)
    (tmp_path / "hub" / "datasets--owner--data" / "snapshots" / COMMIT).mkdir(parents=True)


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


TEXTS = ["--text", "train.jsonl", "--validation-text", "valid.jsonl", "--tokenizer", "model"]


def asked(words):
    """The source and recipe that a command line asks for."""
    with command.make_context("train", [str(word) for word in words]) as context:
        options = context.params
        source = find_source(**source_arguments(options))
        seeds = {name: options[name] for name in ("seed", "data_seed")}
        return source, source.recipe(parse(options["model"]), **seeds, **recipe_values(options))


@pytest.mark.parametrize(
    "words",
    [
        ["1x16", *TEXTS, "--precision", "float32"],
        ["3x48_10L07i03", *TEXTS, "--shards", 3, "--eos-between", "--max-chunks", 9, "--heads", 4],
        ["2x32", *TEXTS, "--weight-decay", 0.3, "--max-steps", 7, "--learning-rate", 1e-3, "--seed", 5, "--epochs", 2],
        ["1x16", *TEXTS, "--config-arg", "resid_dropout=0.1", "--trainer-arg", "lr_scheduler_type=cosine"],
        ["1x16", *TEXTS, "--batch-size", 5, "--chunk-length", 64, "--vocabulary", 3000, "--adam-beta1", 0.8],
        ["1x16", "--stories", 60],
        ["1x16", "--stories", 60, "--max-chunks", 9, "--eos-between"],
    ],
    ids=lambda words: " ".join(map(str, words[:1] + words[-2:])),
)
def test_a_recorded_command_asks_for_the_same(tiny, tmp_path, monkeypatch, words):
    monkeypatch.setenv("COLLAPSE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for name, there in (("train.jsonl", tiny.text), ("valid.jsonl", tiny.validation), ("model", tiny.model)):
        (tmp_path / name).symlink_to(there)
    source, recipe = asked(words)
    recorded = repeat_command(recipe, source)
    assert recorded.startswith("collapse zoo train ")
    again, same = asked(shlex.split(recorded)[3:])
    assert same == recipe
    assert again.identity() == source.identity()
    assert str(tmp_path) not in recorded
    found = find_source(**recorded_texts(source), tokenizer=source.tokenizer_name)  # as a sweep's job finds it
    assert found.identity() == source.identity()


def recorded_texts(source):
    """What a run's record says of its texts."""
    return json.loads(json.dumps(source.collecting(64)))


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
    texts = find_texts(CollectionSpec(**collecting), lambda: "never asked")
    assert texts == source.texts
    assert (collecting["shards"], collecting.get("max_chunks")) == (2, options.get("max_chunks"))


def test_the_validation_text_has_a_limit_of_its_own(tiny, tmp_path):
    texts = {"tokenizer": str(tiny.model), "text": str(tiny.text)}
    source = find_source(**texts, validation_text=str(tiny.validation), max_chunks=9, max_validation_chunks=4)
    assert (len(source.chunks(32)), len(source.validation_chunks(32))) == (9, 4)
    store = collapse.collect(tiny.model, store=tmp_path / "s", **source.collecting(32))
    assert [store.manifest["coverage"][phase]["chunks"] for phase in ("train", "validation")] == [9, 4]
    with pytest.raises(
        UsageError, match="--max-validation-chunks 4 does not apply, because there is no validation text"
    ):
        find_source(**texts, max_validation_chunks=4)


def test_local_texts_are_collected_on_again(tiny):
    source = find_source(tokenizer=str(tiny.model), text=str(tiny.text), validation_text=str(tiny.validation))
    assert find_texts(CollectionSpec(**source.collecting(64)), lambda: "never asked") == source.texts
    alone = find_source(tokenizer=str(tiny.model), text=[str(tiny.text)], shards=3)
    assert alone.validation is None
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
