"""Plugins that cannot be used: installed, one costs a line; named with -p, it ends the command."""

import sys
from collections.abc import Callable, Iterator

import click
import pytest

import collapse
from collapse import Mean, Std, analysis, class_metric, metric
from collapse.cli import _add_commands, _run, cli
from collapse.errors import PluginError
from collapse.plugin import plugin_manager
from collapse.plugin.commands import command_plugins
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
    "classes_for_a_pair": (
        "from collapse import Mean, pair_metric\n@pair_metric(Mean('x.a'))\ndef a(norms): return norms",
        "a asks for 'norms', which has a row a class: ask for row_norms and column_norms",
    ),
    "circle": (
        "from collapse import derived\n@derived\ndef a(b): return b\n@derived\ndef b(a): return a",
        "functions ask for each other in a circle: ",
    ),
    "name_of_a_column": (
        METRIC.format(name="dim", parameter="means"),
        "name_of_a_column has the name of a column of every table: call it mine.dim",
    ),
    "option_as_a_name": (
        "from collapse import analysis\n@analysis('--json')\ndef a(results): return None",
        "'--json' cannot name the analysis: use lower-case letters",
    ),
    "parameters_of_a_hook": (
        "from collapse import hookimpl\n@hookimpl\ndef collapse_results(first, second): return {}",
        "collapse_results",
    ),
    "file_of_the_store": (
        "from collapse import Statistic\nclass Mine(Statistic):\n    name = 'Train'",
        "'Train' cannot name a statistic",
    ),
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
    (tmp_path / f"{kind}.py").write_text(text)
    monkeypatch.setattr(plugin_manager, "_extra", [str(tmp_path / f"{kind}.py")])
    plugins.cache_clear()
    _add_commands()
    for words in (["metrics"], ["measure", "nowhere"], ["analyze", "permutation", "nowhere.csv"]):
        assert _run(words) == 2
        said = capsys.readouterr().err
        assert told in said
        assert "leave it out of -p and COLLAPSE_PLUGINS" in said
        assert len(said.splitlines()) == 1
    assert _run(["--help"]) == 0
    plugins.cache_clear()


def test_a_plugin_that_is_not_there_ends_the_command(run):
    for name in ("nowhere.py", "no_such_module"):
        done = run("-p", name, "metrics", ok=False)
        assert done.returncode == 2
        assert name in done.stderr
        assert not done.stdout


WRONG = {
    "a limit of c": (
        lambda: metric("a.x", towards=lambda c: 1 / c),
        "towards= of a.x asks for 'c', which no limit gets",
    ),
    "no measure": (lambda: class_metric(), "one measure or more"),
    "two of one name": (lambda: class_metric(Mean("a.x"), Std("a.x")), "two measures have one name"),
    "a name with a space": (lambda: metric("A x"), "'A x' is not a measurement name"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_declaration_is_refused_where_it_is_made(kind):
    declare, told = WRONG[kind]
    with pytest.raises(PluginError, match=told):
        declare()(lambda means: 1.0)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("raise RuntimeError('at import')", "RuntimeError: at import"),
        (
            "import click\nfrom collapse import hookimpl\n@hookimpl\ndef collapse_commands(cli):\n"
            "    cli.add_command(click.Command('measure', callback=lambda: 7))\n"
            "    cli.add_command(click.Command('mine', callback=lambda: 8))\n",
            "there is already a command measure, which stays: give it another name",
        ),
    ],
    ids=["import", "clash"],
)
def test_a_broken_command_plugin_costs_only_its_command(install, text, told, capsys):
    install("commanding", text, group="collapse.commands")
    group = click.Group(commands=dict(cli.commands))
    before = dict(group.commands)
    found = command_plugins(group)
    assert f"plugin commanding (guest 1.0): {told}" in [each.problem for each in found if each.problem][-1]
    assert before.items() <= group.commands.items()
    assert ("mine" in group.commands) == ("measure" in told)
    assert capsys.readouterr().out == ""


NAMED = """
from collapse import metric
@metric('{name}.x')
def x(means): return 1.0
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


def test_a_plugin_can_be_left_out(install, monkeypatch, capsys):
    install("mine", NAMED.format(name="mine"))
    monkeypatch.setattr(plugin_manager, "_extra", [])
    monkeypatch.setenv("COLLAPSE_PLUGINS", "no:mine,no:nc4")
    plugins.cache_clear()
    measurements = plugins().measurements()
    assert not {"mine.x", "nc4.agreement"} & measurements.keys()
    assert "nc1.cdnv" in measurements
    monkeypatch.delenv("COLLAPSE_PLUGINS")
    _add_commands()
    assert _run(["-p", "no:nc5", "metrics"]) == 2
    assert "no plugin is called 'nc5'; did you mean nc" in capsys.readouterr().err


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


def test_an_analysis_cannot_take_a_parameter_of_the_command():
    with pytest.raises(PluginError, match=r"parameter format .*my_format"):

        @analysis("odd")
        def odd(rows, *, format: str = "x"):
            return None
