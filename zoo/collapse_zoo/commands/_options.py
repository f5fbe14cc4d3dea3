"""Options shared by ``zoo train`` and ``zoo sweep``, and their conversion to texts, a tokenizer and recipe values."""

import logging
from dataclasses import Field, fields
from typing import TYPE_CHECKING, Any

import click

from collapse.cli.options import Command, given_options, option_of, with_options
from collapse.errors import UsageError
from collapse.inputs.collection_spec import CollectionSpec, flag_of
from collapse.inputs.option_words import key_value
from collapse_zoo.recipes import DATA_SET, TOKENIZER, Recipe

if TYPE_CHECKING:
    from collapse_zoo.sources import Source

log = logging.getLogger("collapse")

_SOURCE_NAMES = (
    "text validation_text split validation_split text_column tokenizer max_chunks max_validation_chunks shards "
    "eos_between"
).split()
_CHANGED = {"text": {"unset": DATA_SET}, "tokenizer": {"unset": TOKENIZER, "help": "Tokenizer: a folder or Hub id."}}
_SOURCE = (
    *(option_of(each, **_CHANGED.get(each.name, {})) for each in fields(CollectionSpec) if each.name in _SOURCE_NAMES),
    click.option("--generated", is_flag=True, help="Train offline, on generated stories with their own tokenizer."),
    click.option(
        "--stories", type=click.IntRange(min=1), metavar="N", help="Number of generated stories.  [default: 10,000]"
    ),
)
_TRAINING = (
    click.option(
        "--regularize",
        multiple=True,
        metavar="NAME:WEIGHT",
        help="Add WEIGHT times the loss NAME to the cross-entropy: nc3, uniformity, cdnv, or a plugin's loss.",
    ),
    click.option("--config-arg", multiple=True, metavar="KEY=VALUE", help="Any other value of GPTNeoConfig."),
    click.option("--trainer-arg", multiple=True, metavar="KEY=VALUE", help="Any other value of TrainingArguments."),
    click.option(
        "--precision",
        type=click.Choice(["auto", "bf16", "float32"]),
        default="auto",
        show_default=True,
        help="auto means bf16, as in the paper, or float32 if there is no GPU with bf16.",
    ),
    click.option(
        "--save-every",
        type=click.IntRange(min=1),
        metavar="STEPS",
        help="Also save the newest state every STEPS steps, to resume from it.",
    ),
    click.option(
        "--micro-batch",
        type=click.IntRange(min=1),
        metavar="CHUNKS",
        help="Compute the batch in pieces of CHUNKS chunks, to save memory.  [default: the whole batch]",
    ),
    click.option("--device", default="auto", show_default=True, type=click.Choice(["auto", "cpu", "cuda"])),
)


def training_options(command: Command) -> Command:
    """Give a command the options of text, recipe and training."""
    return with_options(*_SOURCE, *map(option_of, _recipe_fields()), *_TRAINING)(command)


def _recipe_fields() -> list[Field[Any]]:
    """Return the fields of a recipe that have an option; the recipe checks their values."""
    return [each for each in fields(Recipe) if each.metadata and each.metadata["option"].help]


def given_source(options: dict[str, Any], *, remark: bool = True) -> "Source":
    """Return the texts and tokenizer that options name.

    With ``remark``, warn if the training text and the validation text are the same.

    Raises:
        UsageError: Options cannot be used together.
        CollapseError: A text or the tokenizer is not available.
    """
    from collapse.measurement.comparable import SAME_TEXTS, same_texts
    from collapse_zoo.sources import STORIES, find_source

    generated = options["generated"] or options["stories"] is not None
    said = given_options({name: options[name] for name in _SOURCE_NAMES})
    for name in ("text", "validation_text", "split", "validation_split", "text_column"):
        if generated and name in said:
            raise UsageError(f"{flag_of(name)} cannot be used with --generated or --stories: remove one of them")
    stories = (options["stories"] or STORIES) if generated else None
    source = find_source(**said, generated=stories, vocabulary=options["vocabulary"])
    if remark and same_texts(source.identity()):
        log.warning(SAME_TEXTS)
    return source


def recipe_values(options: dict[str, Any], cuda: bool | None = None) -> dict[str, Any]:
    """Return the recipe's values that options set.

    ``cuda`` decides the precision "auto": True if the job has a GPU, False if it has none, None to ask torch.

    Raises:
        UsageError: The value of ``--regularize``, ``--config-arg`` or ``--trainer-arg`` is invalid.
    """
    values = {each.name: options[each.name] for each in _recipe_fields() if options[each.name] is not None}
    if options["regularize"]:
        losses = [_weighted(each) for each in options["regularize"]]
        values["regularize"] = dict(losses)
        if len(values["regularize"]) < len(losses):
            raise UsageError("--regularize has the same loss twice: give each loss once, with the sum of its weights")
    for name, option in (("config", "config_arg"), ("trainer", "trainer_arg")):
        values[name] = dict(key_value(each, f"--{option.replace('_', '-')}", "key=0.1") for each in options[option])
    precision = options["precision"]
    if precision == "auto":
        import torch

        if cuda is None:
            cuda = options["device"] != "cpu" and torch.cuda.is_available() and torch.cuda.is_bf16_supported()
        precision = "bf16" if cuda else "float32"
    return values | {"precision": precision}


def _weighted(text: str) -> tuple[str, float]:
    name, _, weight = text.partition(":")
    try:
        return name, float(weight)
    except ValueError as error:
        raise UsageError(f"--regularize must be NAME:WEIGHT, such as nc3:0.1, got {text}") from error


def training_arguments(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that are arguments of :func:`collapse_zoo.training.train`."""
    return {name: options[name] for name in ("save_every", "micro_batch", "device")}
