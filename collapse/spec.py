"""Every option of a collection, written once.

The command line, the signature and documentation of :func:`collapse.collect`, the checks of values and what a store's
identity records of them are made from the fields of :class:`CollectionSpec`.
"""

import json
import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from enum import Enum
from functools import wraps
from inspect import Parameter, signature
from types import NoneType
from typing import Any, ParamSpec, TypeVar

from collapse.errors import UsageError, near_names
from collapse.reading import parse_json

P = ParamSpec("P")
R = TypeVar("R")

TextNames = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
MOST = 2**63 - 1
DTYPES = ("float32", "bfloat16", "float16", "float64")


class Role(Enum):
    """What the identity of a collection holds of an option."""

    RECORDED = "its value"
    CHANGED = "its value, unless it is the default"
    RESOLVED = "what it refers to"
    RUNNING = "nothing: it changes no number"


@dataclass(frozen=True, kw_only=True)
class Option:
    """How an option is typed, shown, checked and recorded.

    Attributes:
        help: What it does, in one sentence.
        role: What the identity holds of it.
        unset: What None stands for, where a value is found then.
        flag: As it is typed; None for the field's name.
        off: What the flag of an option that is on by default does: it turns the option off.
        metavar: What stands for the value in a help text.
        many: It may be given several times.
        read: Returns the value of the words that were typed, where they are not plain.
        check: Raises UsageError for a value that makes no sense.
        record: Returns what the identity holds of the value.
    """

    help: str
    role: Role
    unset: str = ""
    flag: str | None = None
    off: str = ""
    metavar: str | None = None
    many: bool = False
    read: Callable[[Any], Any] = lambda words: words
    check: Callable[[Any], None] = lambda value: None
    record: Callable[[Any], Any] = lambda value: value


def option(help: str, role: Role, *, default: Any = None, **how: Any) -> Any:
    """A field of a :class:`CollectionSpec`; ``how`` are fields of :class:`Option`."""
    return field(default=default, metadata={"option": Option(help=help, role=role, **how)})


def at_least(least: int, flag: str, *, optional: bool = True) -> Callable[[Any], None]:
    """A check that a number is whole and not too small."""

    def check(value: Any) -> None:
        if value is None and optional:
            return
        if isinstance(value, bool) or not isinstance(value, int):
            raise UsageError(f"{flag} {value} makes no sense: give a whole number")
        if value < least:
            raise UsageError(f"{flag} {value} makes no sense: give at least {least}")
        if value > MOST:
            raise UsageError(f"{flag} {value} makes no sense: give at most {MOST:,}")

    return check


def key_value(text: str, flag: str = "--model-arg", example: str = "gguf_file=model.Q4_1.gguf") -> tuple[str, Any]:
    """``key=value`` as (key, value), the value read as JSON where it is that.

    Raises:
        UsageError: It is no key=value.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.isidentifier():
        raise UsageError(f"{flag} {text} makes no sense: give key=value, such as {example}")
    try:
        return key, parse_json(value.encode())
    except ValueError:
        return key, value


def _parse_part(text: str) -> tuple[int, int]:
    k, _, n = text.partition("/")
    if not (_is_number(k) and _is_number(n)):
        raise UsageError(f"--part {text} makes no sense: give k/n with 1 ≤ k ≤ n, such as 2/4")
    return int(k), int(n)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _check_part(part: Any) -> None:
    if part is None:
        return
    if not isinstance(part, tuple | list) or [type(each) for each in part] != [int, int]:
        raise UsageError(f"--part {part} makes no sense: give (k, n), such as (2, 4)")
    if not 1 <= part[0] <= part[1]:
        raise UsageError(f"--part {part[0]}/{part[1]} makes no sense: give k/n with 1 ≤ k ≤ n, such as 2/4")


def _check_batch_size(size: Any) -> None:
    if size != "auto" and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
        raise UsageError(f"--batch-size {size} makes no sense: give a number of chunks, or auto")


def _check_dtype(dtype: Any) -> None:
    if dtype not in DTYPES:
        raise UsageError(f"no dtype is called {dtype!r}; {near_names(str(dtype), DTYPES)}")


def _record_arguments(model_args: Mapping[str, Any]) -> dict[str, Any]:
    from collapse.provenance import shown_argument

    return {name: shown_argument(name, value) for name, value in model_args.items()}


@dataclass(frozen=True, kw_only=True)
class CollectionSpec:
    """What a user can say about a collection. Each field is an :class:`Option`, which describes it.

    Raises:
        UsageError: A value makes no sense.
    """

    text: TextNames | None = option(
        "Training text: files, globs or a Hub data set.",
        Role.RESOLVED,
        unset="the one that the model's card names",
        metavar="FILES|DATASET",
        many=True,
    )
    validation_text: TextNames | None = option(
        "The same for validation.",
        Role.RESOLVED,
        unset="the data set's validation split, if any",
        metavar="FILES|DATASET",
        many=True,
    )
    split: str | None = option("Training split of a data set.", Role.RESOLVED, unset="train")
    validation_split: str | None = option("Validation split of a data set.", Role.RESOLVED, unset="validation")
    text_column: str = option("Column that holds the text.", Role.RESOLVED, default="text")
    tokenizer: str | None = option("Another tokenizer than the model's own.", Role.RESOLVED, metavar="MODEL")
    revision: str | None = option("Branch, tag or commit of a Hub model.", Role.RESOLVED)
    chunk_length: int | None = option(
        "Tokens a chunk.",
        Role.RECORDED,
        unset="min(2048, the model's limit)",
        metavar="T",
        check=at_least(2, "--chunk-length"),
    )
    max_chunks: int | None = option(
        "At most this many chunks of each text.", Role.RECORDED, metavar="N", check=at_least(1, "--max-chunks")
    )
    batch_size: int | str = option(
        "Chunks a batch; auto halves when memory runs out.",
        Role.RUNNING,
        default="auto",
        read=lambda text: int(text) if _is_number(text) else text,
        check=_check_batch_size,
    )
    shards: int = option(
        "Shards of the text before it is cut into chunks.",
        Role.RECORDED,
        default=2,
        check=at_least(1, "--shards", optional=False),
    )
    eos_between: bool = option("Put the end-of-text token after each text.", Role.RECORDED, default=False)
    dtype: str = option("In which the model runs.", Role.RECORDED, default="float32", check=_check_dtype)
    device: str = option("auto, cpu, cuda, cuda:1, ...", Role.RUNNING, default="auto")
    model_args: Mapping[str, Any] | None = option(
        "Passed on to from_pretrained.",
        Role.RECORDED,
        flag="--model-arg",
        metavar="KEY=VALUE",
        many=True,
        read=lambda words: dict(key_value(each) for each in words),
        record=_record_arguments,
    )
    trust_remote_code: bool = option("Let code of the model's repository run.", Role.RESOLVED, default=False)
    without: str | Sequence[str] = option(
        "Do not collect this statistic of a plugin.",
        Role.RESOLVED,
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
    deterministic: bool = option("Byte-identical reruns on CUDA too.", Role.RUNNING, default=False)
    recollect: bool = option("Collect anew; what is there is replaced at the end.", Role.RUNNING, default=False)
    part: tuple[int, int] | None = option(
        "Only the k-th of n shares of the work, to be merged later.",
        Role.RUNNING,
        metavar="k/n",
        read=_parse_part,
        check=_check_part,
    )

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, os.PathLike):
                value = os.fspath(value)
                object.__setattr__(self, each.name, value)
            _check_kind(each, value)
            each.metadata["option"].check(value)
        for name in ("text", "validation_text"):
            object.__setattr__(self, name, text_names(getattr(self, name)) or None)
        object.__setattr__(self, "without", text_names(self.without))
        object.__setattr__(self, "model_args", dict(self.model_args or {}))

    @property
    def identity(self) -> dict[str, Any]:
        """Values that change a stored number, as a store's identity records them."""
        recorded = {}
        for each in fields(self):
            about, value = each.metadata["option"], getattr(self, each.name)
            if about.role is Role.RECORDED or (about.role is Role.CHANGED and value != each.default):
                recorded[each.name] = about.record(value)
        return recorded

    @property
    def given(self) -> dict[str, Any]:
        """Values that are not the defaults."""
        plain = type(self)()
        values = {name: getattr(self, name) for name in options_of(type(self))}
        return {name: value for name, value in values.items() if value != getattr(plain, name)}


def options_of(spec: type[CollectionSpec] = CollectionSpec) -> dict[str, Option]:
    """The options of a spec, by name."""
    return {each.name: each.metadata["option"] for each in fields(spec)}


def flag_of(name: str, about: Option | None = None) -> str:
    """An option as it is typed: ``--chunk-length``."""
    about = about or options_of().get(name)
    return about.flag if about and about.flag else f"--{name.replace('_', '-')}"


def typed(spec: CollectionSpec) -> str:
    """The options of a spec as they are typed, but those that are as by default.

    >>> typed(CollectionSpec(text=["a b.txt", "c.txt"], chunk_length=64, fast_attention=False))
    "--text 'a b.txt' --text c.txt --chunk-length 64 --no-fast-attention"
    """
    words: list[str] = []
    for name, value in spec.given.items():
        if isinstance(value, bool):
            words.append(flag_of(name))
            continue
        if name == "model_args":
            value = [f"{key}={each if isinstance(each, str) else json.dumps(each)}" for key, each in value.items()]
        if name == "part":
            value = "{}/{}".format(*value)
        for each in value if isinstance(value, list | tuple) else (value,):
            words += [flag_of(name), str(each)]
    return shlex.join(words)


def accepts(spec: type[CollectionSpec]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Show the fields of a spec as keywords of a function that takes ``**options``: in its signature and its docs.

    Its docstring says ``{options}`` where they are to be described. An argument that is not known is a TypeError that
    gives near names.
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
    """The options of a spec, for the ``Args`` of a docstring."""
    lines = [
        f"{name}: {each.help}{f' None: {each.unset}.' if each.unset else ''}" for name, each in options_of(spec).items()
    ]
    return f"\n{' ' * indent}".join(lines)


def _check_kind(each: Field[Any], value: Any) -> None:
    """Refuse a value of another type than its default and those that are not checked in other ways."""
    about: Option = each.metadata["option"]
    said = f"{flag_of(each.name, about)} {value!r:.40} makes no sense"
    if isinstance(each.default, bool):
        if not isinstance(value, bool):
            raise UsageError(f"{said}: give True or False")
    elif each.name == "model_args":
        if not isinstance(value, Mapping | NoneType):
            raise UsageError(f"{said}: give a dictionary")
    elif about.many:
        if not all(isinstance(text, str | os.PathLike) for text in text_names(value)):
            raise UsageError(f"{said}: give a text, or a list of texts")
    elif each.type in (str, str | None) and not isinstance(value, str | (NoneType if each.default is None else str)):
        raise UsageError(f"{said}: give a text")


def text_names(value: Any) -> tuple[Any, ...]:
    """One name or several, or none, as a tuple; paths as texts."""
    some = value if isinstance(value, Iterable) and not isinstance(value, str) else () if value is None else (value,)
    return tuple(os.fspath(each) if isinstance(each, os.PathLike) else each for each in some)
