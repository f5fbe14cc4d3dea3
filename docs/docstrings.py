"""Prepare docstrings for mkdocstrings, which loads this file when it builds the Python reference."""

import re
from textwrap import indent
from typing import Any

from griffe import Extension, Function, Object

_ROLE = re.compile(r":\w+:`~?([^`]+)`")
_SHARED = re.compile(r"^    (\w+(?:, \w+)+): (.*(?:\n {8}.*)*)", re.MULTILINE)


class PlainDocstrings(Extension):
    """Translate what mkdocstrings does not know: roles, an entry of several parameters, a doctest without a heading."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if isinstance(obj, Function):
            obj.overloads = None
        if obj.docstring:
            text, _, doctest = _ROLE.sub(r"`\1`", obj.docstring.value).partition("\n>>>")
            text = _SHARED.sub(
                lambda entry: "\n".join(f"    {name}: {entry[2]}" for name in entry[1].split(", ")), text
            )
            text = text.replace("{options}", "**options: Options of a collection.")
            obj.docstring.value = f"{text}\nExamples:\n{indent(f'>>>{doctest}', '    ')}" if doctest else text
