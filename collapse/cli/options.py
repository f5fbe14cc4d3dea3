"""Make click options from the fields of :class:`collapse.inputs.collection_spec.CollectionSpec`; ordered groups."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import Field, fields
from typing import Any, TypeVar

import click

from collapse.inputs.collection_spec import CollectionSpec, Option, flag_of
from collapse.inputs.option_words import parsed

Command = TypeVar("Command", bound=Callable[..., Any])


class InOrder(click.Group):
    """Commands in their usual order of use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


class Counts(click.ParamType):
    """Numbers of samples, separated by commas."""

    name = "N,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        one = click.IntRange(min=1)
        return tuple(dict.fromkeys(one.convert(each.strip(), param, ctx) for each in value.split(",")))


def collecting_options(
    *,
    only: Collection[str] | None = None,
    besides: Collection[str] = (),
    unset: Mapping[str, str] | None = None,
    help: Mapping[str, str] | None = None,
) -> Callable[[Command], Command]:
    """Give a command the options of a collection: only some fields of the spec, or all besides some.

    ``unset`` and ``help`` override the spec's description of a default and its help text.
    """

    def decorate(command: Command) -> Command:
        for each in reversed(fields(CollectionSpec)):
            if (only is None or each.name in only) and each.name not in besides:
                command = _option(each, (unset or {}).get(each.name), (help or {}).get(each.name))(command)
        return command

    return decorate


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a collection that were given on the command line, as keyword arguments of collapse.collect.

    Raises:
        UsageError: A value is invalid.
    """
    context = click.get_current_context()
    default = click.core.ParameterSource.DEFAULT
    given: dict[str, Any] = {}
    for each in fields(CollectionSpec):
        if each.name in options and context.get_parameter_source(each.name) is not default:
            value = options[each.name]
            # a --no-… flag that is given means False
            given[each.name] = not value if each.default is True else parsed(each.name, value)
    CollectionSpec(**given)  # report an invalid value before any work is done
    return given


def _option(each: Field[Any], unset: str | None, help: str | None) -> Callable[[Command], Command]:
    about: Option = each.metadata["option"]
    flag, unset = flag_of(each.name, about), unset or about.unset
    help = (help or about.off or about.help) + (f"  [default: {unset}]" if unset else "")
    if isinstance(each.default, bool):
        return click.option(flag, each.name, is_flag=True, help=help)
    kind = int if each.type in (int, int | None) else str
    shown: dict[str, Any] = {} if each.default in (None, ()) else {"default": each.default, "show_default": True}
    return click.option(flag, each.name, type=kind, metavar=about.metavar, multiple=about.many, help=help, **shown)
