"""Options shared by training and sweeping, and their conversion to arguments of a source and values of a recipe."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from collapse.cli.options import collecting_options, given_options
from collapse.inputs.collection_spec import flag_of
from collapse.inputs.option import key_value

if TYPE_CHECKING:
    from collapse_zoo.sources import Source

log = logging.getLogger("collapse")

Command = TypeVar("Command", bound=Callable[..., Any])

_SOURCE_NAMES = (
    "text validation_text split validation_split text_column tokenizer max_chunks max_validation_chunks shards "
    "eos_between"
).split()
_UNSET = {"text": "roneneldan/TinyStories", "tokenizer": "EleutherAI/gpt-neo-125M"}
_SOURCE: tuple[Callable[[Any], Any], ...] = (
    collecting_options(only=_SOURCE_NAMES, unset=_UNSET, help={"tokenizer": "Folder or Hub id."}),
    click.option("--generated", is_flag=True, help="Train on generated stories and their own tokenizer, offline."),
    click.option(
        "--stories", type=click.IntRange(min=1), metavar="N", help="Number of generated stories.  [default: 10,000]"
    ),
)
_RECIPE: dict[str, tuple[type, str]] = {
    "epochs": (int, "Passes over the text.  [default: as the name says, else 1]"),
    "weight_decay": (float, "[default: as the name says, else 0.0005]"),
    "max_steps": (int, "Number of optimizer steps; overrides the number of epochs."),
    "batch_size": (int, "Chunks per step, over all processes.  [default: the paper's]"),
    "learning_rate": (float, "Initial learning rate; decays linearly to zero.  [default: 5e-5]"),
    "chunk_length": (int, "Tokens per chunk; the longest sequence.  [default: 2048]"),
    "vocabulary": (int, "Rows of the embedding.  [default: the tokenizer's]"),
    "heads": (int, "Attention heads.  [default: 16]"),
    "window": (int, "Keys that a local layer sees.  [default: 256]"),
    "adam_beta1": (float, "[default: 0.9]"),
    "adam_beta2": (float, "[default: 0.999]"),
    "adam_epsilon": (float, "[default: 1e-8]"),
    "max_grad_norm": (float, "Largest norm of the gradient.  [default: 1.0]"),
}
"""Fields of a recipe that have an option; the recipe checks them."""
_TRAINING: tuple[Callable[[Any], Any], ...] = (
    click.option("--config-arg", multiple=True, metavar="KEY=VALUE", help="Any other value of GPTNeoConfig."),
    click.option("--trainer-arg", multiple=True, metavar="KEY=VALUE", help="Any other of TrainingArguments."),
    click.option(
        "--precision",
        type=click.Choice(["auto", "bf16", "float32"]),
        default="auto",
        show_default=True,
        help="auto: bf16 as in the paper, but float32 without a GPU.",
    ),
    click.option(
        "--save-every", type=click.IntRange(min=1), metavar="STEPS", help="Also save a checkpoint every so many steps."
    ),
    click.option("--device", default="auto", show_default=True, type=click.Choice(["auto", "cpu", "cuda"])),
    click.option("--compile", "compile_model", is_flag=True, help="Use torch.compile."),
    click.option("--no-fast-attention", is_flag=True, help="Use transformers' own attention."),
    click.option(
        "--report-to",
        multiple=True,
        type=click.Choice(["tensorboard", "wandb", "trackio"]),
        help="Also log to this service; may be repeated.",
    ),
)


def training_options(command: Command) -> Command:
    """Give a command the options of text, recipe and training."""
    recipe = [click.option(flag_of(name), type=kind, help=help) for name, (kind, help) in _RECIPE.items()]
    for option in reversed((*_SOURCE, *recipe, *_TRAINING)):
        command = option(command)
    return command


def source_arguments(options: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of :func:`collapse_zoo.sources.find_source`."""
    from collapse.errors import UsageError
    from collapse_zoo.sources import STORIES

    generated = options["generated"] or options["stories"] is not None
    said = given_options({name: options[name] for name in _SOURCE_NAMES})
    for name in ("text", "validation_text", "split", "validation_split", "text_column"):
        if generated and name in said:
            raise UsageError(f"--generated uses its own texts: leave out {flag_of(name)}")
    return said | {"generated": (options["stories"] or STORIES) if generated else None}


def given_source(options: dict[str, Any], *, remark: bool = True) -> "Source":
    """Return the source of the options; with ``remark``, warn where its two texts are the same."""
    from collapse.measurement.comparing import SAME_TEXTS
    from collapse_zoo.sources import find_source

    source = find_source(**source_arguments(options))
    if remark and source.same_texts:
        log.warning(SAME_TEXTS)
    return source


def recipe_values(options: dict[str, Any], cuda: bool | None = None) -> dict[str, Any]:
    """Return the recipe's values that options set; give ``cuda`` if another machine will run it."""
    values = {name: options[name] for name in _RECIPE if options[name] is not None}
    for name, option in (("config", "config_arg"), ("trainer", "trainer_arg")):
        values[name] = dict(key_value(each, f"--{option.replace('_', '-')}", "key=0.1") for each in options[option])
    precision = options["precision"]
    if precision == "auto":
        import torch

        if cuda is None:
            cuda = options["device"] != "cpu" and torch.cuda.is_available() and torch.cuda.is_bf16_supported()
        precision = "bf16" if cuda else "float32"
    return values | {"precision": precision}


def training_arguments(options: dict[str, Any]) -> dict[str, Any]:
    """Return keyword arguments of :func:`collapse_zoo.training.train`."""
    names = ("save_every", "device", "compile_model", "report_to")
    return {name: options[name] for name in names} | {"fast_attention": not options["no_fast_attention"]}
