"""Every option of a collection, defined once.

The fields of :class:`CollectionSpec` generate the command-line options, the signature and documentation of
:func:`collapse.collect`, the checks of values, and what a store's identity records of them.
"""

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field, dataclass, fields, replace
from functools import wraps
from inspect import Parameter, signature
from types import NoneType
from typing import Any, ParamSpec, TypeVar

from collapse.errors import UsageError, near_names
from collapse.inputs.option import (
    Option,
    Role,
    TextNames,
    at_least,
    check_part,
    is_number,
    key_value,
    key_values,
    option,
    parse_part,
    text_names,
)

P = ParamSpec("P")
R = TypeVar("R")

NULLS = ("untrained", "shuffled")
"""References: the architecture with initial weights of a fixed seed; the embeddings with the text's labels permuted."""

DTYPES = ("float32", "bfloat16", "float16", "float64")


def _check_batch_size(size: Any) -> None:
    if size != "auto" and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
        raise UsageError(f"--batch-size must be a number of chunks or auto, got {size}")


def _check_dtype(dtype: Any) -> None:
    if dtype not in DTYPES:
        raise UsageError(f"no dtype is called {dtype!r}; {near_names(str(dtype), DTYPES)}")


def _check_null(null: Any) -> None:
    if null is not None and null not in NULLS:
        raise UsageError(f"--null must be {' or '.join(NULLS)}, got {null}")


def _record_arguments(model_args: Mapping[str, Any]) -> dict[str, Any]:
    from collapse.stores.provenance import shown_argument

    return {name: shown_argument(name, value) for name, value in model_args.items()}


@dataclass(frozen=True, kw_only=True)
class CollectionSpec:
    """The options of a collection. Each field is described by an :class:`Option`.

    Raises:
        UsageError: A value is invalid.
    """

    text: TextNames | None = option(
        "Training text: files, globs or a Hub data set.",
        Role.RESOLVED,
        resolved="corpus",
        unset="the one that the model's card names",
        metavar="FILES|DATASET",
        many=True,
    )
    validation_text: TextNames | None = option(
        "The same for validation.",
        Role.RESOLVED,
        resolved="validation",
        unset="the data set's validation split, if any",
        metavar="FILES|DATASET",
        many=True,
    )
    split: str | None = option("Training split of a data set.", Role.RESOLVED, resolved="corpus", unset="train")
    validation_split: str | None = option(
        "Validation split of a data set.", Role.RESOLVED, resolved="validation", unset="validation"
    )
    text_column: str | None = option(
        "Column that holds the text.", Role.RESOLVED, resolved="corpus validation", unset="text"
    )
    tokenizer: str | None = option(
        "Another tokenizer than the model's own.", Role.RESOLVED, resolved="tokenizer", metavar="MODEL"
    )
    revision: str | None = option("Branch, tag or commit of a Hub model.", Role.RESOLVED, resolved="weights tokenizer")
    chunk_length: int | None = option(
        "Tokens per chunk.",
        Role.RECORDED,
        unset="min(2048, the model's limit)",
        metavar="T",
        check=at_least(2, "--chunk-length"),
    )
    max_chunks: int | None = option(
        "At most this many chunks of each text.", Role.RECORDED, metavar="N", check=at_least(1, "--max-chunks")
    )
    max_validation_chunks: int | None = option(
        "At most this many chunks of the validation text, in place of --max-chunks.",
        Role.CHANGED,
        metavar="N",
        check=at_least(1, "--max-validation-chunks"),
    )
    batch_size: int | str = option(
        "Chunks per batch; auto halves it when memory runs out.",
        Role.RUNNING,
        default="auto",
        read=lambda text: int(text) if is_number(text) else text,
        check=_check_batch_size,
    )
    shards: int = option(
        "Shards of the text before it is cut into chunks.",
        Role.RECORDED,
        default=2,
        check=at_least(1, "--shards", optional=False),
    )
    eos_between: bool = option("Put the end-of-text token after each text.", Role.RECORDED, default=False)
    dtype: str = option("Data type in which the model runs.", Role.RECORDED, default="float32", check=_check_dtype)
    device: str = option("auto, cpu, cuda, cuda:1, ...", Role.RUNNING, default="auto")
    model_args: Mapping[str, Any] | None = option(
        "Argument of from_pretrained.",
        Role.RECORDED,
        flag="--model-arg",
        metavar="KEY=VALUE",
        many=True,
        read=lambda words: dict(key_value(each) for each in words),
        record=_record_arguments,
    )
    trust_remote_code: bool = option(
        "Run code of the model's repository.", Role.RESOLVED, resolved="code", default=False
    )
    without: str | Iterable[str] = option(
        "Do not collect this statistic of a plugin.",
        Role.RESOLVED,
        resolved="statistics",
        default=(),
        metavar="STATISTIC",
        many=True,
    )
    fast_attention: bool = option(
        "Let plugins swap in an equal, faster attention.",
        Role.CHANGED,
        default=True,
        flag="--no-fast-attention",
        off="Keep the model's own attention, however slow.",
    )
    exact_loss: bool = option("Sum the loss over the vocabulary in float64.", Role.CHANGED, default=False)
    null: str | None = option(
        "Collect a null instead: the model before training, or its embeddings with shuffled labels.",
        Role.CHANGED,
        metavar="|".join(NULLS),
        check=_check_null,
    )
    deterministic: bool = option("Byte-identical reruns on CUDA too.", Role.RUNNING, default=False)
    recollect: bool = option("Collect again, and replace the store at the end.", Role.RUNNING, default=False)
    part: tuple[int, int] | None = option(
        "Only the k-th of n shares of the work, to be merged later.",
        Role.RUNNING,
        metavar="k/n",
        read=parse_part,
        check=check_part,
    )

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, os.PathLike | Iterator):  # an iterator can be read only once
                value = tuple(value) if isinstance(value, Iterator) else os.fspath(value)
                object.__setattr__(self, each.name, value)
            _check_kind(each, value)
            each.metadata["option"].check(value)
        for name in ("text", "validation_text"):
            object.__setattr__(self, name, text_names(getattr(self, name)) or None)
        object.__setattr__(self, "without", text_names(self.without))
        object.__setattr__(self, "model_args", dict(self.model_args or {}))

    @property
    def identity(self) -> dict[str, Any]:
        """Values that affect a stored number, as a store's identity records them."""
        recorded = {}
        for each in fields(self):
            about, value = each.metadata["option"], getattr(self, each.name)
            if about.role is Role.RECORDED or (about.role is Role.CHANGED and value != each.default):
                recorded[each.name] = about.record(value)
        return recorded

    @property
    def of_validation(self) -> "CollectionSpec":
        """The same options with the validation text's own limit, if there is one, in ``max_chunks``."""
        return replace(self, max_chunks=self.max_validation_chunks or self.max_chunks)

    @property
    def given(self) -> dict[str, Any]:
        """Values that differ from their defaults."""
        plain = type(self)()
        values = {name: getattr(self, name) for name in options_of(type(self))}
        return {name: value for name, value in values.items() if value != getattr(plain, name)}


def options_of(spec: type[CollectionSpec] = CollectionSpec) -> dict[str, Option]:
    """Return the options of a spec by name."""
    return {each.name: each.metadata["option"] for each in fields(spec)}


def flag_of(name: str, about: Option | None = None) -> str:
    """Return an option's name on the command line, such as ``--chunk-length``."""
    about = about or options_of().get(name)
    return about.flag if about and about.flag else f"--{name.replace('_', '-')}"


def typed(spec: CollectionSpec, *, shown: bool = False) -> str:
    """Return the command-line form of the options of a spec that differ from their defaults.

    Args:
        spec: The options.
        shown: Write it for a manifest, which is published: no folders of this machine, no secrets.

    >>> typed(CollectionSpec(text=["a b.txt", "c.txt"], chunk_length=64, fast_attention=False))
    "--text 'a b.txt' --text c.txt --chunk-length 64 --no-fast-attention"
    """
    from collapse.stores.provenance import shown_word

    words: list[str] = []
    for name, value in spec.given.items():
        if isinstance(value, bool):
            words.append(flag_of(name))
            continue
        if name == "model_args":
            value = key_values(_record_arguments(value) if shown else value)
        if name == "part":
            value = "{}/{}".format(*value)
        for each in value if isinstance(value, list | tuple) else (value,):
            words += [flag_of(name), shown_word(str(each)) if shown else str(each)]
    return shlex.join(words)


def accepts(spec: type[CollectionSpec]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Add the fields of a spec as keywords to the signature and docstring of a function that takes ``**options``.

    Descriptions of the fields replace ``{options}`` in its docstring. An unknown argument raises a TypeError that
    suggests similar names.
    """

    def accept(function: Callable[P, R]) -> Callable[P, R]:
        plain = signature(function)
        own = [each for each in plain.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
        known = {*options_of(spec), *(each.name for each in own)}

        @wraps(function)
        def run(*arguments: P.args, **options: P.kwargs) -> R:
            for name in options.keys() - known:
                raise TypeError(f"{function.__name__}() takes no argument {name!r}; {near_names(name, known)}")
            return function(*arguments, **options)

        more = [Parameter(f.name, Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type) for f in fields(spec)]
        run.__signature__ = plain.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        run.__doc__ = (function.__doc__ or "").replace("{options}", described(spec))
        return run

    return accept


def described(spec: type[CollectionSpec], indent: int = 8) -> str:
    """Describe the options of a spec for the ``Args`` section of a docstring."""
    lines = [
        f"{name}: {each.help}{f' None: {each.unset}.' if each.unset else ''}" for name, each in options_of(spec).items()
    ]
    return f"\n{' ' * indent}".join(lines)


def _check_kind(each: Field[Any], value: Any) -> None:
    """Raise an error for a value whose type differs from its default's, unless another check applies."""
    about: Option = each.metadata["option"]
    flag, got = flag_of(each.name, about), f"got {value!r:.40}"
    if isinstance(each.default, bool):
        if not isinstance(value, bool):
            raise UsageError(f"{flag} must be True or False, {got}")
    elif each.name == "model_args":
        if not isinstance(value, Mapping | NoneType):
            raise UsageError(f"{flag} must be a dictionary, {got}")
    elif about.many:
        if not all(isinstance(text, str | os.PathLike) for text in text_names(value)):
            raise UsageError(f"{flag} must be a string or a list of strings, {got}")
        if each.default is None and value is not None and not text_names(value):
            raise UsageError(f"{flag} is an empty list: give a text, or leave the option out")
    elif each.type in (str, str | None) and not isinstance(value, str | (NoneType if each.default is None else str)):
        raise UsageError(f"{flag} must be a string, {got}")
