"""``collapse analyze``: a command for every registered analysis, its options taken from the function's signature."""

import inspect
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

import click

from collapse.cli.formats import deliver, table_options
from collapse.cli.terminal import installed

if TYPE_CHECKING:
    from collapse.plugin.metrics import Analysis

_SECTION = re.compile(r"^(?:(Args|Returns|Raises|Yields|Examples?|Sources?|Notes?):|>>> ).*", re.MULTILINE)


class Analyses(click.Group):
    """The analyses of all plugins, which are loaded only when this group is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return their names, sorted."""
        return sorted(installed().analyses)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        """Return the command of an analysis.

        Raises:
            UsageError: No plugin has it.
        """
        from collapse.plugin.plugin_manager import plugins

        return analysis_command(plugins().analysis(cmd_name))

    def invoke(self, ctx: click.Context) -> Any:
        """Run an analysis, after one line for each plugin that is not used."""
        installed()
        return super().invoke(ctx)


@click.command("analyze", cls=Analyses)
def command() -> None:
    """Analyse a results table: tests, correlations, scaling.

    RESULTS is a .csv, .json or .parquet file, or the name of a table that is installed: `paper` has the published
    measurements of the paper's 230 models. Depth, width, epochs, decay, seed, checkpoint, architecture and recipe are
    columns wherever the names of the models say them.
    """


def analysis_command(analysis: "Analysis") -> click.Command:
    """Make a click command for an analysis: ``f(results, *, options...) -> Table``.

    Annotated keyword-only parameters become options: str, int, float, bool (a pair of flags), a Literal of strings (a
    choice), a list or Sequence of these (given several times), or any of them or None. The docstring gives the help.
    The command of an analysis with another parameter raises a PluginError, so that the help lists the others.
    """
    function = analysis.function
    about, helps = read_docstring(inspect.getdoc(function) or "")
    given = [each for each in inspect.signature(function).parameters.values() if each.kind is each.KEYWORD_ONLY]
    kinds = {each.name: _option_type(_resolved(each, function)) for each in given}
    wrong = [name for name, (kind, _) in kinds.items() if kind is None]

    def run(results: Path, format_: str | None, output: str | None, **options: Any) -> None:
        from collapse.errors import PluginError
        from collapse.measurement.analyzing import analyze

        if wrong:
            raise PluginError(
                f"analysis {analysis.name} of {function.__module__}: parameter {wrong[0]} cannot become an option; "
                "annotate it as str, int, float, bool, a Literal of strings, a Sequence of these, or None"
            )
        # click passes an empty tuple for a repeatable option that was not given: then use the function's default
        table = analyze(analysis.name, results, **{name: value for name, value in options.items() if value != ()})
        deliver(format_, output, table)

    params: list[click.Parameter] = [click.Argument(["results"], type=click.Path(path_type=Path)), *table_options()]
    params += [_option(each, *kinds[each.name], helps.get(each.name, "")) for each in given]
    return click.Command(analysis.name, params=params, callback=run, help=about)


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
        # an entry starts at the section's indentation; deeper lines continue it
        for entry in re.split(r"\n {4}(?! )", text[section.end() : end])[1:] if section[1] == "Args" else ():
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


def _option_type(hint: Any) -> tuple[Any, bool]:
    """Return the click type of an annotation, None if it is unsupported, and whether it takes several values."""
    if get_origin(hint) in (Union, UnionType):
        kinds = [each for each in get_args(hint) if each is not NoneType]
        return _option_type(kinds[0]) if len(kinds) == 1 else (None, False)
    if get_origin(hint) in (list, tuple, Sequence) and get_args(hint):
        inner, several = _option_type(get_args(hint)[0])
        return (None if several or inner is bool else inner), True
    if get_origin(hint) is Literal and all(isinstance(each, str) for each in get_args(hint)):
        return click.Choice(get_args(hint)), False
    return (hint if hint in (str, int, float, bool) else None), False


def _option(parameter: inspect.Parameter, kind: Any, multiple: bool, said: str) -> click.Option:
    name, flag = parameter.name, "--" + parameter.name.replace("_", "-")
    about: dict[str, Any] = {"multiple": multiple, "help": said}
    if multiple:
        about["help"] = f"{said} May be given several times.".strip()
    if parameter.default is parameter.empty:
        about["required"] = True
    else:
        about |= {"default": parameter.default, "show_default": parameter.default is not None}
    if kind is bool:
        return click.Option([f"{flag}/--no-{flag[2:]}", name], **about)
    short = [f"-{name}"] if len(name) == 1 and name not in "pv" else []  # those belong to every command
    return click.Option([*short, flag, name], type=kind or str, **about)
