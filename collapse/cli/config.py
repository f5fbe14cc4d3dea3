"""``--config`` and ``--save-config``: the options and arguments of any command in a YAML file.

Options and arguments in the file are added to the command line, except those that the command line already has. In the
file, a flag is true or false, and several values are a list.
"""

import shlex
from typing import Any, ClassVar

import click

from collapse.cli.options import Counts
from collapse.core.paths import expanded
from collapse.errors import CollapseError, UsageError, near_names
from collapse.stores.writing import write_output

_NO_KEYS = ("config", "save_config", "version", "help")


def with_config(cli: click.Group, words: list[str]) -> list[str]:
    """Return the command line ``words`` with the values of its ``--config`` file added.

    Also write the options and arguments of the resulting command line to its ``--save-config`` file, if it has one.
    """
    own, _, _ = cli.make_parser(_context(cli, "collapse")).parse_args(list(words))
    path, save = own.get("config"), own.get("save_config")
    if not (path or save):
        return words
    held = _read(path) if path else {}
    if named := own.get("plugin") or held.get("plugin"):  # a plugin's analyses are commands
        from collapse.plugin.plugin_manager import add_plugins

        add_plugins([named] if isinstance(named, str) else named)
    context, rest, given = _parsed(cli, words)
    if isinstance(context.command, click.Group):  # no command, or an unknown one
        return words
    everywhere = _keys(cli)
    known = everywhere | _keys(context.command)
    before, options, arguments = list[str](), list[str](), list[str]()
    for key, value in held.items():
        if key not in known:
            raise UsageError(f"{path}: {context.command_path} has no parameter {key!r}; {near_names(key, known)}")
        if not _is_given(given.get(known[key].name)):
            more = arguments if isinstance(known[key], click.Argument) else before if key in everywhere else options
            more += _as_words(key, known[key], value, str(path))
    end = ["--"] if arguments and "--" not in rest else []
    words = [*before, *words[: len(words) - len(rest)], *options, *rest, *end, *arguments]
    if save:
        context, rest, given = _parsed(cli, words)
        context.command.make_context(context.info_name, list(rest), context.parent)  # report errors first
        values = dict[str, Any]()
        for key, parameter in known.items():
            if (value := _as_value(parameter, given.get(parameter.name))) is not None:
                values[key] = value
                del given[parameter.name]  # another option may have the same name
        _write(save, context.command_path, values)
    return words


def _parsed(cli: click.Group, words: list[str]) -> tuple[click.Context, list[str], dict[Any, Any]]:
    """Return the context of the called command, the words after its name, and the given values by parameter.

    The values include those of options before the command's name.
    """
    context, rest, given = _context(cli, "collapse"), words, dict[Any, Any]()
    while True:
        command = context.command
        found, left, _ = command.make_parser(context).parse_args(list(rest))
        given |= found
        called = command.get_command(context, left[0]) if isinstance(command, click.Group) and left else None
        if called is None:
            return context, rest, given
        context, rest = _context(called, left[0], context), left[1:]


def _context(command: click.Command, name: str, parent: click.Context | None = None) -> click.Context:
    return click.Context(command, parent, name, **command.context_settings)


def _keys(command: click.Command) -> dict[str, click.Parameter]:
    """Return the parameters of a command by their keys: the long name of an option, and the name of an argument."""
    return {max(each.opts, key=len).lstrip("-"): each for each in command.params if each.name not in _NO_KEYS}


def _is_given(value: Any) -> bool:
    return isinstance(value, str | bool | list | tuple) and value != ()


def _as_words(key: str, parameter: click.Parameter, value: Any, path: str) -> list[str]:
    """Return the value of an option or argument as words of a command line; raise UsageError if it is invalid.

    ``path`` is the path of the ``--config`` file, for error messages.
    """
    number, listed = parameter.nargs, value if isinstance(value, list) else [value]
    if is_flag := getattr(parameter, "is_flag", False):
        form, valid = "true or false", value in ("true", "false")
    else:
        several = number == -1 or getattr(parameter, "multiple", False)
        form = "one or several texts" if several else "a text" if number == 1 else f"{number} texts"
        valid = (several or len(listed) == number) and all(isinstance(each, str) and each for each in listed)
    if not valid:
        comma = isinstance(value, list) and isinstance(parameter.type, click.types.StringParamType | Counts)
        hint = f": write {','.join(map(str, value))}" if comma and form == "a text" else ""
        raise UsageError(f"{path}: {key} must be {form}, got {value!r:.60}{hint}")
    if is_flag:
        return [f"--{key}"] if value == "true" else parameter.secondary_opts[:1]
    try:
        for each in listed:
            parameter.type.convert(each, parameter, None)
    except click.BadParameter as error:
        raise UsageError(f"{path}: {key}: {error.message}") from error
    if isinstance(parameter, click.Argument):
        return listed
    # with "=", the value may begin with a dash
    return [f"--{key}={each}" for each in listed] if number == 1 else [f"--{key}", *listed]


def _as_value(parameter: click.Parameter, given: Any) -> Any:
    """Return the value to save in the file for an option or argument; None if the command line does not have it."""
    if isinstance(given, bool):
        return str(given).lower()
    if isinstance(parameter, click.Option) and parameter.is_flag:  # such as --json, which sets the value of --format
        return "true" if given == parameter.flag_value else None
    return given if _is_given(given) else None


def _read(path: str) -> dict[str, Any]:
    import yaml

    try:
        held = yaml.load(expanded(path).read_bytes(), yaml.BaseLoader)  # texts, lists and dictionaries only
    except FileNotFoundError as error:
        raise UsageError(f"--config {path}: there is no such file: check its path") from error
    except yaml.YAMLError as error:
        raise CollapseError(f"{path} cannot be read as YAML: {' '.join(str(error).split())}. Correct it") from error
    if not isinstance(held or {}, dict):
        raise UsageError(f"{path} must hold an option or argument per line, such as max-chunks: 100")
    return held or {}


def _write(path: str, command: str, values: dict[str, Any]) -> None:
    import yaml

    class Plain(yaml.SafeDumper):
        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}  # write the texts 100 and true without quotes

    text = yaml.dump(values, Dumper=Plain, sort_keys=False, allow_unicode=True)
    written = f"# {command} --config {shlex.quote(path)}\n{text}".encode()
    write_output(expanded(path), written)
