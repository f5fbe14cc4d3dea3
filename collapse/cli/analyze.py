"""``collapse analyze``: a command for every registered analysis, with options from the function's signature."""

import inspect
import re
from collections.abc import Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

import click

from collapse.cli.formats import deliver, prints_a_table
from collapse.cli.terminal import plugins_reporting_problems

if TYPE_CHECKING:
    from collapse.plugin.metrics import Analysis

_SECTION = re.compile(r"^(?:(?:Args|Returns|Raises|Examples?|Sources?|Notes?):|>>> )", re.MULTILINE)
_ARGS = re.compile(r"^Args:\n((?:(?: {4}.*)?\n)*)", re.MULTILINE)


class Analyses(click.Group):
    """A group with a command for each analysis. Plugins are loaded only when the group is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from collapse.plugin.plugin_manager import plugins

        return sorted((plugins() if ctx.resilient_parsing else plugins_reporting_problems()).analyses)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        from collapse.plugin.plugin_manager import plugins

        return analysis_command(plugins().analysis(cmd_name))

    def invoke(self, ctx: click.Context) -> Any:
        """Print a line for each plugin with a problem, then run the analysis."""
        plugins_reporting_problems()
        return super().invoke(ctx)


@click.command("analyze", cls=Analyses)
def command() -> None:
    """Analyse a results table: tests, correlations, scaling.

    RESULTS is a .csv, .json or .parquet file, or the name of an installed table: `paper` has the published measurements
    of the paper's 230 models. If a model's name contains its depth, width, epochs, decay, seed, checkpoint,
    architecture or recipe, these are columns too.
    """


def analysis_command(analysis: "Analysis") -> click.Command:
    """Make a click command for an analysis: ``f(results, *, options...) -> Table``.

    Keyword-only parameters become options. Supported annotations are int, float, bool (a pair of flags), a
    Literal of strings (a choice), a list or Sequence of these (an option that may be repeated), and a union of one of
    these with None. A parameter with any other annotation takes text. The help comes from the docstring.
    """
    about, helps = read_docstring(inspect.getdoc(analysis.function) or "")

    def run(results: Path, format_: str | None, output: str | None, **options: Any) -> None:
        from collapse.measurement.analyzing import analyze

        # click passes an empty tuple for a repeatable option that is not given; use the function's default instead
        table = analyze(analysis.name, results, **{name: value for name, value in options.items() if value != ()})
        deliver(format_, output, table)

    made = click.command(analysis.name, help=about)(prints_a_table(run))
    made.params.insert(0, click.Argument(["results"], type=click.Path(path_type=Path)))
    namespace = inspect.unwrap(analysis.function).__globals__
    for each in inspect.signature(analysis.function).parameters.values():
        if each.kind is each.KEYWORD_ONLY:
            hint = eval(each.annotation, namespace) if isinstance(each.annotation, str) else each.annotation
            made.params.append(_option(each, *_option_type(hint), helps.get(each.name, "")))
    return made


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return a Google-style docstring's text before its first section, and its description of each parameter.

    >>> read_docstring("Does it.\\n\\nArgs:\\n    n: How many\\n        times.\\n    k: What.\\n\\nReturns:\\n    It.")
    ('Does it.', {'n': 'How many times.', 'k': 'What.'})
    """
    args = _ARGS.search(f"{text}\n")
    # an entry starts at the section's indentation; deeper lines continue it
    entries = re.split(r"^ {4}(?! )", args[1], flags=re.MULTILINE)[1:] if args else []
    said = {name: " ".join(text.split()) for name, _, text in (entry.partition(":") for entry in entries)}
    return _SECTION.split(text, maxsplit=1)[0].strip(), said


def _option_type(hint: Any) -> tuple[Any, bool]:
    """Return the click type of an annotation, and whether the option may be given several times."""
    origin, inner = get_origin(hint), [each for each in get_args(hint) if each is not NoneType]
    if origin in (Union, UnionType):
        return _option_type(inner[0])
    if origin in (list, tuple, Sequence):
        return _option_type(inner[0])[0], True
    if origin is Literal:
        return click.Choice(inner), False
    return (hint if hint in (int, float, bool) else str), False


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
    short = [f"-{name}"] if len(name) == 1 and name not in "pv" else []  # every command has -p and -v
    return click.Option([*short, flag, name], type=kind, **about)
