"""Checks before training: the recipe gives a valid model that covers all tokens, and the directory has no other run."""

from typing import Any

import torch
import transformers

from collapse.errors import CollapseError, UsageError, first_line
from collapse.stores.lock import LOCK
from collapse_zoo.recipes import Recipe
from collapse_zoo.runs import RECORD, Run
from collapse_zoo.sources import Source


def check_same(run: Run, recipe: Recipe, source: Source) -> None:
    """Raise an error if a directory holds anything but this recipe's run on this text."""
    record = run.record
    if record is None:
        left = (LOCK, f".{RECORD}.partial")  # left by a process that was killed before it wrote a record
        if run.path.is_file() or (run.path.is_dir() and any(each.name not in left for each in run.path.iterdir())):
            raise UsageError(f"{run.path} holds other things than a run (no {RECORD}): choose another --output")
        return
    differ = Recipe.from_dict(record["recipe"]).differences(recipe)
    unknown = sorted(set(record["recipe"]) - set(recipe.as_dict()))
    differ += [f"{name} {_brief(record['recipe'][name])}, which this version does not know," for name in unknown]
    names = record["corpus"] | {"corpus": record["corpus"]["name"]}
    shown = _named(source)
    for key, now in source.identity().items():
        there = record["text"].get(key)
        if there != now:
            before, after = (
                f"{_brief(name)} ({_brief(what)})" if name else _brief(what)
                for name, what in ((names.get(key), there), (shown.get(key), now))
            )
            differ.append(f"{key} {before} and {after}")
    if differ:
        raise UsageError(
            f"{run.path} holds another run, which differs in {'; '.join(differ)} (there and now): "
            "choose another --output, or give the same options"
        )


def check_tokens(run: Run, tokens: dict[str, str | None]) -> None:
    """Refuse to resume a run on other tokens than it was started with, whatever the text's hash."""
    recorded = (run.record or {}).get("tokens") or {}
    for which, digest in recorded.items():
        if tokens.get(which) != digest:
            raise CollapseError(
                f"{run.path} was begun on other tokens of the {which} text than are read now: its text or its "
                "tokenizer was replaced meanwhile. Restore them, or choose another --output"
            )


def check_model(recipe: Recipe) -> None:
    """Refuse a configuration that gives no valid model, by building it on torch's meta device (without memory)."""
    try:
        with torch.device("meta"):
            transformers.GPTNeoForCausalLM(recipe.configuration())
    except CollapseError:
        raise
    except Exception as error:  # invalid values raise many kinds of exceptions
        raise UsageError(
            f"--config-arg: no GPT-Neo can be built with {dict(recipe.config)}: {type(error).__name__}: "
            f"{first_line(error)}"
        ) from error


def check_vocabulary(recipe: Recipe, source: Source) -> None:
    """Refuse a vocabulary that is too small for the tokenizer."""
    tokens = len(source.tokenizer)
    if tokens > recipe.vocabulary:
        raise UsageError(
            f"a vocabulary of {recipe.vocabulary:,} is too small for the tokenizer of {source.reference.name}, "
            f"which has {tokens:,} tokens: give --vocabulary {tokens}, or leave it out"
        )


def _named(source: Source) -> dict[str, str | None]:
    validation = source.validation.name if source.validation else None
    return {"corpus": source.corpus.name, "validation": validation, "tokenizer": source.reference.name}


def _brief(value: Any) -> str:
    if isinstance(value, dict) and value.get("sha256"):
        return f"sha256 {str(value['sha256'])[:12]}…"
    text = str(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
