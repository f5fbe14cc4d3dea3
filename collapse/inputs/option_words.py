"""Parse options of a collection from words of a command line, and write options as such words."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from collapse.errors import UsageError
from collapse.inputs.collection_spec import CollectionSpec, flag_of


def parsed(name: str, words: Any) -> Any:
    """Convert what click parsed for an option to the value of the option.

    An invalid ``part`` or ``batch_size`` is returned unchanged, because :class:`CollectionSpec` rejects it.

    Raises:
        UsageError: A model argument is not ``key=value``.
    """
    if name == "model_args":
        return dict(key_value(each) for each in words)
    if name == "part":
        k, _, n = words.partition("/")
        return (int(k), int(n)) if k.isdecimal() and n.isdecimal() and 1 <= int(k) <= int(n) else words
    return int(words) if name == "batch_size" and words.isdecimal() else words


def key_value(text: str, flag: str = "--model-arg", example: str = "gguf_file=model.Q4_1.gguf") -> tuple[str, Any]:
    """Split ``key=value`` into (key, value); the value is parsed if it is JSON, and is a text otherwise.

    ``flag`` and ``example`` are for the message of the UsageError, which is raised for a text of another form.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.isidentifier():
        raise UsageError(f"{flag} must be key=value, such as {example}, got {text}")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def key_values(arguments: Mapping[str, Any]) -> list[str]:
    """Return arguments as ``key=value`` texts, which :func:`key_value` reads."""
    return [
        f"{key}={each if isinstance(each, str) and key_value(f'k={each}')[1] == each else json.dumps(each)}"
        for key, each in arguments.items()
    ]


def typed(spec: CollectionSpec) -> str:
    """Return the options of a spec that differ from their defaults, as one text for a command line.

    Manifests contain this text, and may be published. So it contains no paths of local folders, and no secrets.

    >>> typed(CollectionSpec(text=["/home/ann/a b.txt", "c.txt"], chunk_length=64, fast_attention=False))
    "--text 'a b.txt' --text c.txt --chunk-length 64 --no-fast-attention"
    """
    from collapse.stores.provenance import shown_arguments, shown_word

    words: list[str] = []
    for name, value in spec.given.items():
        if isinstance(value, bool):
            words.append(flag_of(name))
            continue
        if name == "model_args":
            value = key_values(shown_arguments(value))
        if name == "part":
            value = "{}/{}".format(*value)
        for each in value if isinstance(value, list | tuple) else (value,):
            words += [flag_of(name), shown_word(str(each))]
    return shlex.join(words)
