"""Click options from the fields of ``CollectionSpec``, and a group that lists its commands in a fixed order."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import Field, fields, replace
from typing import Any, TypeVar

import click

from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.option_fields import Option
from collapse.inputs.option_words import parsed

Command = TypeVar("Command", bound=Callable[..., Any])


class InOrder(click.Group):
    """A group that lists its commands in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


class Counts(click.ParamType):
    """Option type: numbers of samples, separated by commas."""

    name = "N,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        one = click.IntRange(min=1)
        return tuple(dict.fromkeys(one.convert(each.strip(), param, ctx) for each in value.split(",")))


def with_options(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Return a decorator that gives a command several options, in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def collecting_options(*, besides: Collection[str] = ()) -> Callable[[Command], Command]:
    """Return a decorator that gives a command the options of a collection, except those in ``besides``."""
    return with_options(*(option_of(each) for each in fields(CollectionSpec) if each.name not in besides))


def is_given(context: click.Context, name: str | None) -> bool:
    """Return whether the user gave the parameter ``name`` of a command; False if ``name`` is None or unknown."""
    return name in context.params and context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options given on the command line, as keyword arguments of :func:`collapse.collect`.

    Raises:
        UsageError: The value of an option is invalid.
    """
    context = click.get_current_context()
    given: dict[str, Any] = {}
    for each in fields(CollectionSpec):
        if each.name in options and is_given(context, each.name):
            value = options[each.name]
            # a --no-… flag that is given means False
            given[each.name] = not value if each.default is True else parsed(each.name, value)
    CollectionSpec(**given)  # raises the error, before any work is done
    return given


def option_of(each: Field[Any], **changes: str) -> Callable[[Command], Command]:
    """Return the click option for a field with an :class:`Option`; ``changes`` replace the fields of this Option."""
    about: Option = replace(each.metadata["option"], **changes)
    flag, help = about.flag_for(each.name), about.off or about.help
    if isinstance(each.default, bool):
        return click.option(flag, each.name, is_flag=True, help=help)
    if about.unset or each.default not in (None, ()):
        help += f"  [default: {about.unset or each.default}]"
    kind = int if each.type in (int, int | None) else float if each.type is float else str
    return click.option(flag, each.name, type=kind, metavar=about.metavar, multiple=about.many, help=help)
