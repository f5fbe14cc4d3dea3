"""The command that a run records trains the same model again."""

import shlex

import pytest

from collapse_zoo.commands._options import recipe_values, source_arguments
from collapse_zoo.commands.train import command
from collapse_zoo.recipes import parse
from collapse_zoo.records import repeat_command
from collapse_zoo.sources import find_source

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
        ["1x16", "--stories", 60, "--tokenizer", "model", "--shards", 3],
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
