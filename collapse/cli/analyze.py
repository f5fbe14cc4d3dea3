"""``collapse analyze``: a command for every registered analysis, its options taken from the function's signature."""

import inspect
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

import click

from collapse.cli.formats import check_suffix, deliver, table_options
from collapse.cli.terminal import say_error

if TYPE_CHECKING:
    from collapse.plugin.metrics import Analysis
    from collapse.plugin.registry import Plugins

_SECTION = re.compile(r"^(?:(Args|Returns|Raises|Yields|Examples?|Sources?|Notes?):|>>> ).*", re.MULTILINE)
_SCALARS = (str, int, float, bool)


class Analyses(click.Group):
    """The analyses of all plugins, which are loaded only when this group is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return their names, sorted."""
        return sorted(_installed().analyses)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve the command, after one line for each plugin that is not used."""
        _installed()
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        """Return the command of an analysis.

        Raises:
            UsageError: No plugin has it.
        """
        from collapse.plugin.plugin_manager import plugins

        return analysis_command(plugins().analysis(cmd_name))


@click.command("analyze", cls=Analyses)
def command() -> None:
    """Analyse a results table: tests, correlations, scaling.

    RESULTS is a .csv, .json or .parquet file, or the name of a table that is installed: `paper` has the published
    measurements of the paper's 230 models. Depth, width, epochs, decay, seed, checkpoint, architecture and recipe are
    columns wherever the names of the models say them.
    """


def _installed() -> "Plugins":
    from collapse.plugin.plugin_manager import plugins

    for problem in plugins().problems:
        say_error(problem)
    return plugins()


def analysis_command(analysis: "Analysis") -> click.Command:
    """Make a click command for an analysis: ``f(results, *, options...) -> Table``.

    Annotated keyword-only parameters become options: str, int, float, bool (a pair of flags), a Literal of strings (a
    choice), a list or Sequence of these (given several times), or any of them or None. The docstring gives the help.
    The command of an analysis with another parameter raises a PluginError, so that the help lists the others.
    """
    from collapse.errors import PluginError

    about, helps = read_docstring(inspect.getdoc(analysis.function) or "")
    options: list[click.Parameter] = [click.Argument(["results"], type=click.Path(path_type=Path)), *table_options()]
    run: Callable[..., None] = _runner(analysis)
    for parameter in inspect.signature(analysis.function).parameters.values():
        if parameter.kind is not parameter.KEYWORD_ONLY:
            continue
        kind = _option_type(_resolved(parameter, analysis.function))
        if kind is None:
            run = _refusal(
                PluginError(
                    f"analysis {analysis.name} of {analysis.function.__module__}: parameter {parameter.name} cannot "
                    "become an option; annotate it as str, int, float, bool, a Literal of strings, a Sequence of "
                    "these, or None"
                )
            )
            kind = str, False
        options.append(_option(parameter, kind, helps.get(parameter.name, "")))
    return click.Command(analysis.name, params=options, callback=run, help=about)


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return the text of a Google-style docstring before its first section, and its description of each parameter.

    >>> read_docstring("Does it.\\n\\nArgs:\\n    n: How many\\n        times.\\n    k: What.\\n\\nReturns:\\n    It.")
    ('Does it.', {'n': 'How many times.', 'k': 'What.'})
    """
    sections = list(_SECTION.finditer(text))
    about = text[: sections[0].start()] if sections else text
    args: dict[str, str] = {}
    ends = [*(section.start() for section in sections[1:]), len(text)]
    for section, end in zip(sections, ends, strict=False):  # no section, no ends that matter
        if section[1] != "Args":
            continue
        # an entry starts at the section's indentation; deeper lines continue it
        for entry in re.split(r"\n {4}(?! )", text[section.end() : end])[1:]:
            name, _, said = entry.partition(":")
            args[name.split("(")[0].strip()] = " ".join(said.split())
    return about.strip(), args


def _resolved(parameter: inspect.Parameter, function: Callable[..., Any]) -> Any:
    """Evaluate an annotation that is a string; those of other parameters need not be importable."""
    holder = SimpleNamespace(__annotations__={"it": parameter.annotation})
    try:
        return get_type_hints(holder, globalns=inspect.unwrap(function).__globals__)["it"]
    except Exception:  # evaluating a plugin's annotations can raise anything
        return None


def _option_type(hint: Any) -> tuple[Any, bool] | None:
    """Return the click type of an annotation, and whether it takes several values; None if it is unsupported."""
    if get_origin(hint) in (Union, UnionType):
        kinds = [each for each in get_args(hint) if each is not NoneType]
        return _option_type(kinds[0]) if len(kinds) == 1 else None
    if get_origin(hint) in (list, tuple, Sequence) and get_args(hint):
        inner = _option_type(get_args(hint)[0])
        return (inner[0], True) if inner and not inner[1] and inner[0] is not bool else None
    if get_origin(hint) is Literal and all(isinstance(each, str) for each in get_args(hint)):
        return click.Choice(get_args(hint)), False
    return (hint, False) if hint in _SCALARS else None


def _option(parameter: inspect.Parameter, kind: tuple[Any, bool], said: str) -> click.Option:
    type_, multiple = kind
    flag = "--" + parameter.name.replace("_", "-")
    names = [flag, parameter.name]
    about: dict[str, Any] = {"type": type_, "multiple": multiple, "help": said}
    if type_ is bool:
        names[0] = f"{flag}/--no-{flag[2:]}"
        about.pop("type")
    elif len(parameter.name) == 1 and parameter.name not in "pv":  # those belong to every command
        names.insert(0, f"-{parameter.name}")
    if parameter.default is parameter.empty:
        about["required"] = True
    else:
        about |= {"default": parameter.default, "show_default": parameter.default is not None}
    if multiple:
        about["help"] = f"{said} May be given several times.".strip()
    return click.Option(names, **about)


def _refusal(error: Exception) -> Callable[..., None]:
    def run(**options: Any) -> None:
        raise error

    return run


def _runner(analysis: "Analysis") -> Callable[..., None]:
    def run(results: Path, format_: str | None, output: str | None, **options: Any) -> None:
        from collapse.measurement.analyzing import analyze

        check_suffix(output)
        # click passes an empty tuple for a repeatable option that was not given: then use the function's default
        table = analyze(analysis.name, results, **{name: value for name, value in options.items() if value != ()})
        deliver(format_, output, table)

    return run
