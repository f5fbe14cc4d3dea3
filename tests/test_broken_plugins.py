"""Plugins that cannot be used: installed, one costs a line; named with -p, it ends the command."""

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import click
import pytest
from golden_store import GOLDEN

import collapse
from collapse import analysis
from collapse.cli import _add_commands, _run, cli
from collapse.cli.analyze import analysis_command
from collapse.errors import PluginError
from collapse.plugin import plugin_manager
from collapse.plugin.analysis_options import TAKEN
from collapse.plugin.commands import command_plugins
from collapse.plugin.metrics import declaration
from collapse.plugin.plugin_manager import plugins
from collapse.testing import tiny_statistics

METRIC = "from collapse import metric\n@metric('{name}')\ndef a({parameter}): return 1.0\n"

BROKEN = {
    "import": ("import nothing_of_this_name", "nothing_of_this_name"),
    "syntax": ("def (", "SyntaxError"),
    "misspelt_hook": (
        "from collapse import hookimpl\n@hookimpl\ndef collapse_result(): return {}",
        "no hook collapse_result; did you mean collapse_results",
    ),
    "misspelt_parameter": (
        METRIC.format(name="x.a", parameter="maens"),
        "a asks for 'maens', which nothing gives; did you mean means",
    ),
    "pairs_for_a_number": (
        METRIC.format(name="x.a", parameter="cosine"),
        "a asks for 'cosine', which only functions of pairs get",
    ),
    "classes_for_a_pair": (
        "from collapse import Mean, pair_metric\n@pair_metric(Mean('x.a'))\ndef a(norms): return norms",
        "a asks for 'norms', which has a row a class: ask for row_norms and column_norms",
    ),
    "circle": (
        "from collapse import derived\n@derived\ndef a(b): return b\n@derived\ndef b(a): return a",
        "functions ask for each other in a circle: ",
    ),
    "taken_name": (
        METRIC.format(name="nc1.trace_ratio", parameter="means"),
        "nc1.trace_ratio of taken_name is already defined in collapse_metrics.nc1",
    ),
    "name_of_a_column": (
        METRIC.format(name="dim", parameter="means"),
        "metric dim of name_of_a_column has the name of a column of every table: call it mine.dim",
    ),
    "option_as_a_name": (
        "from collapse import analysis\n@analysis('--json')\ndef a(results): return None",
        "'--json' is not an analysis name: use lower-case letters",
    ),
    "parameters_of_a_hook": (
        "from collapse import hookimpl\n@hookimpl\ndef collapse_results(first, second): return {}",
        "collapse_results",
    ),
    "file_of_the_store": (
        "from collapse import Statistic\nclass Mine(Statistic):\n    name = 'Train'",
        "'Train' cannot name a statistic",
    ),
    "letters_of_no_file": (
        "from collapse import Statistic\nclass Mine(Statistic):\n    name = 'größte'",
        "'größte' cannot name a statistic",
    ),
    "unmarked": (
        "def collapse_results(): return {}",
        "collapse_results() is not marked: write @collapse.hookimpl above it",
    ),
    "nothing": ("import math", "it declares nothing: decorate a function with @collapse.metric"),
    "earlier": ("COLLAPSE_API = 1\n" + METRIC.format(name="x.a", parameter="means"), "written for API 1 of collapse"),
}


@pytest.fixture
def install(tmp_path, monkeypatch) -> Iterator[Callable[..., None]]:
    """Make a module an installed plugin of this process, for one test."""

    def install(name: str, text: str, group: str = "collapse") -> None:
        info = tmp_path / "site" / "guest-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guest\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {name}\n")
        (tmp_path / "site" / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path / "site")
        monkeypatch.delitem(sys.modules, name, raising=False)
        plugins.cache_clear()

    yield install
    plugins.cache_clear()


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_plugin_costs_only_its_own_rows(install, kind, capsys):
    text, told = BROKEN[kind]
    install(kind, text)
    problem = plugins().problems[0]
    assert told in problem
    assert f"plugin {kind}" in problem
    names = set(plugins().measurements())
    assert {"nc1.trace_ratio", "nc4.agreement"} <= names
    row = collapse.measure(tiny_statistics(), metrics=["nc1.trace_ratio"])
    assert row.measurements["nc1.trace_ratio"] > 0


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_plugin_that_was_named_ends_the_command(tmp_path, monkeypatch, kind, capsys):
    text, told = BROKEN[kind]
    told = re.sub("of (taken_name|name_of_a_column)", r"of collapse_plugin_\1", told)
    (tmp_path / f"{kind}.py").write_text(text)
    monkeypatch.setattr(plugin_manager, "_extra", [str(tmp_path / f"{kind}.py")])
    plugins.cache_clear()
    _add_commands()
    for words in (["metrics"], ["plugins"], ["measure", "nowhere"], ["analyze", "permutation", "nowhere.csv"]):
        assert _run(words) == 2
        said = capsys.readouterr().err
        assert told in said
        assert "leave it out of -p and COLLAPSE_PLUGINS" in said
        assert len(said.splitlines()) == 1
    assert _run(["--help"]) == 0
    monkeypatch.setattr(plugin_manager, "_extra", [])
    monkeypatch.setenv("COLLAPSE_PLUGINS", str(tmp_path / f"{kind}.py"))
    plugins.cache_clear()
    assert _run(["metrics"]) == 2
    plugins.cache_clear()


def test_a_plugin_that_is_not_there_ends_the_command(run):
    for name in ("nowhere.py", "no_such_module"):
        done = run("-p", name, "metrics", ok=False)
        assert done.returncode == 2
        assert name in done.stderr
        assert not done.stdout


WRONG = {
    "towards_text": ("@metric('a.x', towards='0')", "towards= of a.x is '0': give a number"),
    "reachable_nan": ("@metric('a.x', reachable=float('nan'))", "reachable= of a.x is nan"),
    "limit": ("@metric('a.x', towards=lambda c: 1 / c)", "towards= of a.x asks for 'c', which no limit gets"),
    "reducer": ("@class_metric(Medan('a.x'))", "cannot reduce values: give Mean"),
    "no_measure": ("@class_metric()", "one measure or more"),
    "name": ("@metric('A x')", "'A x' is not a measurement name"),
    "name_of_a_number": ("@metric(3)", "3 is not a measurement name"),
    "twice": ("@class_metric(Mean('a.x'), Std('a.x'))", "two measures have one name"),
    "better": ("@metric('a.x', better='smaller')", "better='smaller': give 'lower', 'higher'"),
    "version": ("@metric('a.x', version='2')", "version='2': give a whole number"),
    "scale": ("@class_metric(Mean('a.x'), scale='2')", "scale='2': give the exponent"),
}


DECLARE = """
import json, sys
from collapse.errors import PluginError
from collapse.plugin.metrics import *

class Medan(Measure):
    pass

refused = {}
for kind, text in json.load(sys.stdin).items():
    try:
        exec(text + "\\ndef f(means): return 1.0")
    except PluginError as error:
        refused[kind] = str(error)
print(json.dumps(refused))
"""


def test_a_wrong_declaration_is_refused_where_it_is_made():
    # in a process of its own: here, arguments are checked by the tests' own type checker first
    texts = json.dumps({kind: text for kind, (text, _) in WRONG.items()})
    done = subprocess.run([sys.executable, "-c", DECLARE], input=texts, capture_output=True, text=True, check=True)
    refused = json.loads(done.stdout)
    for kind, (_, told) in WRONG.items():
        assert re.search(told, refused[kind]), kind


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("raise RuntimeError('at import')", "adds no command: RuntimeError: at import"),
        (
            "import click\nfrom collapse import hookimpl\n@hookimpl\ndef collapse_commands(cli):\n"
            "    cli.add_command(click.Command('measure', callback=lambda: 7))\n"
            "    cli.add_command(click.Command('mine', callback=lambda: 8))\n",
            "adds no command measure: there is one of this name, which stays",
        ),
    ],
    ids=["import", "clash"],
)
def test_a_broken_command_plugin_costs_only_its_command(install, text, told, capsys):
    install("commanding", text, group="collapse.commands")
    group = click.Group(commands=dict(cli.commands))
    before = dict(group.commands)
    found = command_plugins(group)
    assert f"plugin commanding (guest 1.0) {told}" in [each.problem for each in found if each.problem][-1]
    assert before.items() <= group.commands.items()
    assert ("mine" in group.commands) == ("measure" in told)
    assert capsys.readouterr().out == ""


NAMED = """
from collapse import metric
@metric('{name}.x')
def x(means): return 1.0
"""

ANALYSIS = """
@analysis('covariance')
def y(results): return results
"""


def test_two_packages_may_call_a_plugin_alike(install, tmp_path):
    install("mine", NAMED.format(name="mine"))
    info = tmp_path / "site" / "other-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 2.0\n")
    (info / "entry_points.txt").write_text("[collapse]\nmine = others\n")
    (tmp_path / "site" / "others.py").write_text(NAMED.format(name="others"))
    found = plugins()
    assert found.problems == []
    assert {(each.name, each.origin) for each in found.found} >= {("mine", "guest 1.0"), ("other:mine", "other 2.0")}
    assert {"mine.x", "others.x"} <= found.measurements().keys()
    assert found.owners["metric", "others.x"].name == "other:mine"


def test_things_of_other_kinds_may_share_a_name(install):
    maker = plugins().maker(plugins().statistics["covariance"])
    text = NAMED.format(name="mine").replace("mine.x", "covariance")
    install("mine", text.replace("metric\n", "analysis, metric\n", 1) + ANALYSIS)
    found = plugins()
    assert found.problems == []
    assert "covariance" in found.measurements().keys() & found.analyses.keys()
    assert found.maker(found.statistics["covariance"]) == maker
    row = collapse.measure(collapse.Store.load(GOLDEN), metrics=["covariance", "nc1.covariance_ratio"])
    assert None not in row.measurements.values()


def test_a_plugin_can_be_left_out(install, monkeypatch, capsys):
    install("mine", NAMED.format(name="mine"))
    monkeypatch.setattr(plugin_manager, "_extra", [])
    for name in ("no:mine", "no:guest:mine"):
        monkeypatch.setenv("COLLAPSE_PLUGINS", f"{name},no:nc4")
        plugins.cache_clear()
        measurements = plugins().measurements()
        assert "mine.x" not in measurements
        assert "nc4.agreement" not in measurements
        assert "nc1.cdnv" in measurements
    monkeypatch.delenv("COLLAPSE_PLUGINS")
    _add_commands()
    assert _run(["-p", "no:nc5", "metrics"]) == 2
    assert "no plugin is called 'nc5'; did you mean nc" in capsys.readouterr().err


COMMANDS = """
import pandas
import click

@click.command(help="Counts classes.")
@click.argument("number", type=int)
def count(number):
    click.echo(f"counted {number}")

nothing = 3
"""


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--help"], 0, "count .* Of guest 1.0"),
        (["--version"], 0, "^collapse, version [^\n]*\n$"),
        (["count", "4"], 0, "^counted 4\n$"),
        (["count", "--help"], 0, "Counts classes"),
        (["count"], 2, "Missing argument 'NUMBER'"),
        (["nothing"], 1, r"command nothing \(guest 1.0\): named_commands:nothing is of type int, and no click command"),
        (["broken"], 1, r"command broken \(guest 1.0\) cannot be loaded: ModuleNotFoundError: No module named 'absent"),
    ],
)
def test_a_command_named_by_its_entry_point_is_loaded_when_it_is_used(tmp_path, words, code, told):
    site = tmp_path / "site"
    info = site / "guest-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guest\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[collapse.commands]\ncount = named_commands:count\nnothing = named_commands:nothing\nbroken = absent:command\n"
    )
    (site / "named_commands.py").write_text(COMMANDS)
    path = os.pathsep.join(each for each in (str(site), os.environ.get("PYTHONPATH")) if each)
    words = [sys.executable, "-m", "collapse", *words]
    done = subprocess.run(words, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}, timeout=60)
    assert done.returncode == code
    assert re.search(told, done.stdout + done.stderr)
    assert "Traceback" not in done.stderr


ANALYSES = {
    "raises": ("raise KeyError('no_column')", "failed: KeyError: 'no_column'"),
    "returns_text": ("return 'a table'", "returned str, not a collapse.Table"),
    "short_row": ("return Table('t', ['a', 'b'], [[1, 2], [3]])", "returned rows that do not have one value for each"),
}


@pytest.mark.parametrize("kind", ANALYSES)
def test_an_analysis_that_fails_ends_in_a_line(tmp_path, monkeypatch, capsys, kind):
    body, told = ANALYSES[kind]
    (tmp_path / "mine.py").write_text(
        "import sys\nfrom collapse import Table, analysis\n"
        f"@analysis('odd')\ndef odd(results):\n    '''Odd.'''\n    {body}\n"
    )
    (tmp_path / "results.csv").write_text("model,a\nx,1\n")
    monkeypatch.setattr(plugin_manager, "_extra", [])
    _add_commands()
    assert _run(["-p", str(tmp_path / "mine.py"), "analyze", "odd", str(tmp_path / "results.csv"), "--json"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"collapse: analysis odd of collapse_plugin_mine {told}")
    assert shown.err.count("\n") == 1
    plugins.cache_clear()


@pytest.mark.parametrize("name", sorted(TAKEN))
def test_an_analysis_cannot_take_a_parameter_of_the_command(name):
    with pytest.raises(PluginError, match=rf"parameter {name}\b.*my_"):
        exec(f"@analysis('odd')\ndef odd(rows, *, {name}: str = 'x'): return None", {"analysis": analysis})


def test_the_names_that_an_analysis_cannot_take_are_those_of_the_command():
    command = analysis_command(declaration(analysis("plain")(lambda rows: None)))
    found = command.get_params(click.Context(command))
    names = {name.lstrip("-") for each in [*found, *cli.params] for name in each.opts if not name[1:].isalpha()}
    names |= {each.name for each in command.params} | set(inspect.signature(collapse.analyze).parameters)
    assert names - {"version", "options"} == TAKEN
