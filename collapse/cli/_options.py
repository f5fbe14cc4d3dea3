"""Options that several commands share, and what turns their texts into arguments."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from collapse.errors import UsageError
from collapse.reading import parse_json

Command = TypeVar("Command", bound=Callable[..., Any])

_COLLECTING: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--text", multiple=True, metavar="FILES|DATASET", help="Training text: files, globs or a Hub data set."
    ),
    click.option("--validation-text", multiple=True, metavar="FILES|DATASET", help="The same for validation."),
    click.option("--split", help="Training split of a data set.  [default: train]"),
    click.option("--validation-split", help="Validation split of a data set.  [default: validation]"),
    click.option("--text-column", default="text", show_default=True, help="Column that holds the text."),
    click.option("--tokenizer", metavar="MODEL", help="Another tokenizer than the model's own."),
    click.option("--revision", help="Branch, tag or commit of a Hub model."),
    click.option(
        "--chunk-length", type=int, metavar="T", help="Tokens a chunk.  [default: min(2048, the model's limit)]"
    ),
    click.option("--max-chunks", type=int, metavar="N", help="At most this many chunks of each text."),
    click.option(
        "--batch-size", default="auto", show_default=True, help="Chunks a batch; auto halves when memory runs out."
    ),
    click.option(
        "--shards", type=int, default=2, show_default=True, help="Shards of the text before it is cut into chunks."
    ),
    click.option("--eos-between", is_flag=True, help="Put the end-of-text token after each text."),
    click.option("--dtype", default="float32", show_default=True, help="In which the model runs."),
    click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1, ..."),
    click.option("--model-arg", "model_args", multiple=True, metavar="KEY=VALUE", help="Passed on to from_pretrained."),
    click.option("--trust-remote-code", is_flag=True, help="Let code of the model's repository run."),
    click.option("--no-covariance", is_flag=True, help="Do not collect the within-class covariance."),
    click.option("--no-fast-attention", is_flag=True, help="Keep the model's own attention, however slow."),
    click.option("--deterministic", is_flag=True, help="Byte-identical reruns on CUDA too."),
    click.option("--recollect", is_flag=True, help="Collect anew; what is there is replaced at the end."),
)


def collecting_options(command: Command) -> Command:
    """Give a command the options of :func:`collapse.collect`."""
    for option in reversed(_COLLECTING):
        command = option(command)
    return command


def collect_arguments(options: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments of :func:`collapse.collect` from the shared options."""
    arguments = dict(options)
    arguments["text"] = list(options["text"]) or None
    arguments["validation_text"] = list(options["validation_text"]) or None
    arguments["batch_size"] = _batch_size(options["batch_size"])
    arguments["model_args"] = dict(key_value(each, "--model-arg") for each in options["model_args"])
    arguments["fast_attention"] = not arguments.pop("no_fast_attention")
    arguments["without"] = ["covariance"] if arguments.pop("no_covariance") else []
    return arguments


def parse_part(text: str | None) -> tuple[int, int] | None:
    """``2/4`` as (2, 4)."""
    if text is None:
        return None
    k, _, n = text.partition("/")
    if not (k.isdigit() and n.isdigit() and 1 <= int(k) <= int(n)):
        raise UsageError(f"--part {text} makes no sense: give k/n with 1 ≤ k ≤ n, such as 2/4")
    return int(k), int(n)


def _batch_size(text: str) -> int | str:
    if text == "auto":
        return text
    if not text.isdigit() or int(text) < 1:
        raise UsageError(f"--batch-size {text} makes no sense: give a number of chunks, or auto")
    return int(text)


def key_value(text: str, option: str) -> tuple[str, Any]:
    """``key=value`` as (key, value), the value read as JSON where it is that."""
    key, equals, value = text.partition("=")
    if not equals or not key.isidentifier():
        example = "gguf_file=model.Q4_1.gguf" if option == "--model-arg" else "key=0.1"
        raise UsageError(f"{option} {text} makes no sense: give key=value, such as {example}")
    try:
        return key, parse_json(value.encode())
    except ValueError:
        return key, value
