"""Every option of a collection, defined once.

The fields of :class:`CollectionSpec` generate the command-line options, the signature and documentation of
:func:`collapse.collect`, the checks of values, and the options in a store's identity (identity.py).
"""

import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from operator import index
from typing import Any, SupportsIndex

from collapse.errors import UsageError
from collapse.hub.textfiles import TextNames, text_names
from collapse.inputs.option_fields import Option, checked, option
from collapse.inputs.tasks import TASKS
from collapse.stores.layer_names import FORM, TOP

NULLS = ("untrained", "shuffled")
"""Null baselines: ``untrained`` is the architecture with initial weights, which are drawn with a fixed seed;
``shuffled`` is the embeddings of the model with permuted labels."""

OF_PACKING = (
    *("validation_text", "split", "validation_split", "text_column", "tokenizer", "chunk_length", "max_chunks"),
    *("max_validation_chunks", "shards", "eos_between", "special_tokens", "trust_remote_code"),
)
"""Options that determine, together with ``text``, the chunks of a collection."""

OF_SOURCE = ("without", "recollect", "batch_size", "deterministic", "part")
"""Options of a collection that apply to any source."""


# valid=bool rejects an empty list, for example from a glob without matches, which would otherwise mean the default text
_NAMES: dict[str, Any] = {"metavar": "FILES|DATASET", "many": True, "read": text_names, "valid": bool}
_NAMES["wanted"] = "one or several names"


def _token_ids(value: Any) -> Any:
    """Return token ids as the identity records them, such as "0,5": ascending, each id once.

    A value that does not consist of ids, such as "special", is returned unchanged.
    """
    words = ",".join(map(str, text_names(value))).replace(" ", "").split(",")
    return ",".join(map(str, sorted({*map(int, words)}))) if all(word.isdecimal() for word in words) else value


def _layers(value: Any) -> str | None:
    words = ",".join(map(str, text_names(value))).replace(" ", "")
    return None if words == TOP else words


def _number_of_chunks(value: Any) -> Any:
    return index(value) if isinstance(value, SupportsIndex) else value


def _is_part(value: Any) -> bool:
    is_pair = isinstance(value, tuple | list) and [type(number) for number in value] == [int, int]
    return is_pair and 1 <= value[0] <= value[1]


@dataclass(frozen=True, kw_only=True)
class CollectionSpec:
    """The options of a collection. Each field is described by an :class:`Option`.

    Raises:
        UsageError: A value is invalid.
    """

    text: TextNames | None = option(
        "Training text: files, folders, globs, a Hub data set or a packed text.",
        "corpus",
        unset="the data set in the model's card",
        **_NAMES,
    )
    validation_text: TextNames | None = option(
        "Validation text: files, folders, globs, a Hub data set or a packed text.",
        "validation",
        unset="the data set's validation split, if any",
        **_NAMES,
    )
    split: str | None = option("Training split of a data set.", "corpus", unset="train")
    validation_split: str | None = option("Validation split of a data set.", "validation", unset="validation")
    text_column: str | None = option("Column that holds the text.", "corpus validation", unset="text")
    task: str | None = option(
        f"Measure a classifier with this head: {', '.join(TASKS)}.", "changed", choices=tuple(TASKS), metavar="TASK"
    )
    data: TextNames | None = option(
        "Training data of --task: a folder of class folders with images, files of rows, or a Hub data set.",
        "corpus",
        **_NAMES,
    )
    validation_data: TextNames | None = option(
        "Validation data of --task.", "validation", unset="the data set's validation split, if any", **_NAMES
    )
    columns: str | None = option(
        "Columns of --data: inputs, then labels. If no labels follow the comma, as in 'text,', all samples are one "
        "class.",
        "corpus validation",
        unset="by --task: image,label; text,label; tokens,ner_tags; or text",
        metavar="INPUT[,INPUT],[LABEL]",
    )
    tokenizer: str | None = option("Tokenizer to use instead of the model's own.", "tokenizer", metavar="MODEL")
    revision: str | None = option("Branch, tag or commit of a Hub model.", "weights tokenizer")
    chunk_length: int | None = option(
        "Tokens per chunk.", "recorded", unset="min(2048, the model's limit)", metavar="T", least=2
    )
    max_chunks: int | None = option(
        "Maximum number of chunks of the training text, and of the validation text.", "recorded", metavar="N", least=1
    )
    max_validation_chunks: int | None = option(
        "Maximum number of chunks of the validation text; overrides --max-chunks.", "changed", metavar="N", least=1
    )
    batch_size: int | str = option(
        "Chunks or samples per batch; halved when memory runs out.",
        "running",
        default="auto",
        read=_number_of_chunks,
        valid=lambda value: value == "auto" or (isinstance(value, int) and value >= 1),
        wanted="a number of chunks or auto",
    )
    shards: int = option("Number of text shards; each is cut into chunks.", "recorded", default=2, least=1)
    eos_between: bool = option("Put the end-of-text token after each text.", "recorded", default=False)
    special_tokens: bool = option(
        "Let the tokenizer add its special tokens, such as BOS, to each text.",
        "changed",
        default=True,
        flag="--no-special-tokens",
        off="Do not let the tokenizer add special tokens, such as BOS, to each text.",
    )
    ignore_tokens: str | Iterable[int] | None = option(
        "Skip samples whose next token is special, or one of these ids.",
        "changed",
        metavar="special|IDS",
        read=_token_ids,
        valid=lambda value: re.fullmatch(r"special|\d+(,\d+)*", str(value)),
        wanted="special or ids, such as 0,50256",
    )
    layers: str | Iterable[int] | None = option(
        "Also collect inner layers. Layer l is the input of block l, counted from 0; -1 is the top layer.",
        "layers",
        unset="only top, the input of the output embedding",
        metavar="all|every:K|0,4,...",
        read=_layers,
        valid=FORM.fullmatch,
        wanted="all, every:K, or numbers such as 0,4,8 or -2",
    )
    dtype: str = option(
        "Data type in which the model runs: float32, bfloat16, float16 or float64.",
        "recorded",
        default="float32",
        read=lambda value: str(value).removeprefix("torch."),  # torch.bfloat16 is bfloat16
        choices=("float32", "bfloat16", "float16", "float64"),
    )
    device: str = option("Device of the model: auto, cpu, cuda, cuda:1, ...", "running", default="auto")
    device_map: str | Mapping[str, Any] | None = option(
        "Spread the model over devices: auto, balanced, or a JSON file of modules and devices (cpu, disk, 0, ...).",
        "running",
        unset="one device",
        metavar="auto|balanced|FILE",
    )
    quantize: str | None = option(
        "Quantize the model: 8bit or 4bit of bitsandbytes, or a configuration of torchao.",
        "changed",
        metavar="8bit|4bit|TORCHAO",
    )
    adapter: str | None = option(
        "Apply this PEFT adapter to the model: a folder or Hub id.", "adapter", metavar="ADAPTER"
    )
    model_args: Mapping[str, Any] | None = option(
        "Argument of from_pretrained.", "recorded", flag="--model-arg", metavar="KEY=VALUE", many=True
    )
    trust_remote_code: bool = option("Run code of the model's repository.", "code", default=False)
    without: str | Iterable[str] = option(
        "Do not collect this statistic of a plugin.",
        "statistics",
        default=(),
        metavar="STATISTIC",
        many=True,
        read=text_names,
    )
    fast_attention: bool = option(
        "Let plugins replace modules, such as attention, with equivalent faster ones.",
        "changed",
        default=True,
        flag="--no-fast-attention",
        off="Keep the model's own modules, such as attention and GELU.",
    )
    exact_loss: bool = option("Sum the loss over the vocabulary in float64.", "changed", default=False)
    null: str | None = option(
        "Collect a null instead: the model before training, or its embeddings with shuffled labels.",
        "changed",
        metavar="|".join(NULLS),
        choices=NULLS,
    )
    deterministic: bool = option("Make reruns byte-identical on CUDA too.", "running", default=False)
    recollect: bool = option(
        "Collect again with the same options, and replace the store at the end.", "running", default=False
    )
    part: tuple[int, int] | None = option(
        "Collect only the k-th of n parts; the last part that is collected into a folder completes the pass.",
        "running",
        metavar="k/n",
        valid=_is_part,
        wanted="k/n with 1 ≤ k ≤ n, such as 2/4 (in Python (2, 4))",
    )

    def __post_init__(self) -> None:
        for each in fields(self):
            value, read = getattr(self, each.name), each.metadata["option"].read
            if isinstance(value, os.PathLike):
                value = os.fspath(value)
            if getattr(value, "shape", None) == ():  # a scalar of NumPy or torch
                value = value.item()
            if read is not None and value is not None:
                value = read(value)
            if value is not None and value != each.default:
                value = checked(each, value)
            object.__setattr__(self, each.name, dict(value or {}) if each.name == "model_args" else value)
        if self.task is None and (self.data or self.validation_data or self.columns):
            raise UsageError(f"--data, --validation-data and --columns need a --task: {', '.join(TASKS)}")

    @property
    def beside_identity(self) -> dict[str, Any]:
        """The options that a :class:`~collapse.stores.request.Request` has as fields, outside its identity, by name."""
        names = ("part", "batch_size", "deterministic", "recollect", "without", "layers")
        return {name: getattr(self, name) for name in names}

    @property
    def of_validation(self) -> "CollectionSpec":
        """The options for the validation text: ``max_validation_chunks``, if given, replaces ``max_chunks``."""
        return replace(self, max_chunks=self.max_validation_chunks or self.max_chunks)

    @property
    def given(self) -> dict[str, Any]:
        """The options whose values differ from their defaults, by name."""
        plain = CollectionSpec()
        values = {name: getattr(self, name) for name in options_of()}
        return {name: value for name, value in values.items() if value != getattr(plain, name)}


def options_of() -> dict[str, Option]:
    """Return the options of a collection by name."""
    return {each.name: each.metadata["option"] for each in fields(CollectionSpec)}


def flag_of(name: str) -> str:
    """Return an option's name on the command line, such as ``--chunk-length``."""
    return options_of().get(name, Option(help="", role="")).flag_for(name)


def check_applies(what: str, given: Iterable[str], applying: Collection[str]) -> None:
    """Raise UsageError if an option in ``given`` is not in ``applying``, the names of the options that apply.

    ``what`` begins the message, such as "a.safetensors is a features file".
    """
    for name in given:
        if name not in applying:
            raise UsageError(f"{what}: {flag_of(name)} does not apply; remove the option")
