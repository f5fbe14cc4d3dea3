"""What must hold before a recipe is trained: it makes a model, of all tokens, in a directory of no other run."""

from typing import Any

import torch
import transformers

from collapse.errors import CollapseError, UsageError, first_line
from collapse_zoo.recipes import Recipe
from collapse_zoo.runs import RECORD, Run
from collapse_zoo.sources import Source


def check_same(run: Run, recipe: Recipe, source: Source) -> None:
    """Refuse a directory that holds anything but this recipe's run on this text."""
    record = run.record
    if record is None:
        if run.path.is_file() or (run.path.is_dir() and any(each.name != ".lock" for each in run.path.iterdir())):
            raise UsageError(f"{run.path} holds other things than a run (no {RECORD}): choose another --output")
        return
    differ = Recipe.from_dict(record["recipe"]).differences(recipe)
    now = source.identity()
    differ += [
        f"{key} {_brief(record['text'].get(key))} and {_brief(now[key])}"
        for key in now
        if record["text"].get(key) != now[key]
    ]
    if differ:
        raise UsageError(
            f"{run.path} holds another run, which differs in {'; '.join(differ)} (there and now): "
            "choose another --output, or give the same options"
        )


def check_model(recipe: Recipe) -> None:
    """Refuse a configuration that makes no model, at the price of none: on torch's meta device."""
    try:
        with torch.device("meta"):
            transformers.GPTNeoForCausalLM(recipe.configuration())
    except CollapseError:
        raise
    except Exception as error:  # each value is refused in its own way
        raise UsageError(
            f"--config-arg: no GPT-Neo can be built with {dict(recipe.config)}: {type(error).__name__}: "
            f"{first_line(error)}"
        ) from error


def check_vocabulary(recipe: Recipe, source: Source) -> None:
    """Refuse a vocabulary that the tokenizer does not fit into."""
    tokens = len(source.tokenizer)
    if tokens > recipe.vocabulary:
        raise UsageError(
            f"a vocabulary of {recipe.vocabulary:,} is too small for the tokenizer of {source.reference.name}, "
            f"which has {tokens:,} tokens: give --vocabulary {tokens}, or leave it out"
        )


def _brief(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
