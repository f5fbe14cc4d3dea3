"""Plugins that cannot be used: an installed one is reported in one line, one named with -p ends the command."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator

import click
import pytest
from safetensors.torch import save_file

from collapse import class_metric, metric
from collapse.cli import cli
from collapse.errors import PluginError
from collapse.plugin.loading import command_plugins
from collapse.plugin.plugin_manager import plugins
from collapse.testing import random_features


def scalar(body: str, name: str, asks: str = "means") -> str:
    return f"from collapse import metric\n@metric('{name}')\ndef value({asks}):\n    {body}\n"


def hook(line: str) -> str:
    return f"from collapse import hookimpl\n@hookimpl\ndef {line}: return {{}}"


# Each plugin's text, and what the line about it says: plugin, function, remedy.
UNUSABLE = {
    "import": ("import nothing_of_this_name", "nothing_of_this_name"),
    "nothing": ("import math\n", "the module declares nothing: decorate a function with"),
    "misspelt_hook": (hook("collapse_result()"), "unknown hook 'collapse_result'"),
    "keyword": (
        scalar("return 1.0", "bad.keyword", "maens"),
        "value has the parameter 'maens', which names no known value; did you mean means",
    ),
    "circle": (
        "from collapse import derived\n@derived\ndef a(b): return b\n@derived\ndef b(a): return a",
        "functions are parameters of each other in a cycle: ",
    ),
    "clash": (scalar("return 1.0", "nc1.cdnv"), r"nc1\.cdnv is already defined in .*nc1: give it another name"),
    "column": (scalar("return 1.0", "dim"), "dim is already a column of every table: use a name such as mine.dim"),
    "option": (
        "from collapse import analysis\n@analysis('--json')\ndef a(results): return None",
        "'--json' is not a valid analysis name: use lower-case letters",
    ),
    "file": (
        "from collapse import Statistic\nclass Mine(Statistic):\n    name = 'Train'",
        "'Train' cannot be the name of a statistic",
    ),
}
FAILING = {
    "raises": (
        scalar("raise KeyError('no')", "bad.raises"),
        r"value failed: KeyError: 'no' \(module_\d+\.py:4\) \(disable it with -p",
    ),
    "nan": (scalar("return float('nan')", "bad.nan"), r"value gave nan: let it return collapse\.Noted"),
}


def install(site, name: str, text: str, group: str = "collapse", maker: str = "guest", entry: str = "") -> None:
    """Make a module an installed plugin."""
    info = site / f"{maker}_{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {maker}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{entry or name} = {name}\n")
    (site / f"{name}.py").write_text(text)


@pytest.fixture
def here(own_plugins, tmp_path, monkeypatch) -> Iterator[Callable[..., None]]:
    """Install modules for this process, for one test."""
    monkeypatch.syspath_prepend(tmp_path / "site")
    installed = []

    def here(name: str, text: str, **more: str) -> None:
        install(tmp_path / "site", name, text, **more)
        installed.append(name)
        plugins.cache_clear()

    yield here
    for name in installed:
        sys.modules.pop(name, None)


def test_each_installed_one_costs_itself_and_one_line_with_plugin_and_remedy(tmp_path, run):
    save_file(random_features(12, 6, 200), tmp_path / "features.safetensors")
    broken = UNUSABLE | FAILING
    for number, (name, (text, _)) in enumerate(broken.items()):
        install(tmp_path / "site", f"module_{number}", text, maker=f"bad{number}", entry=name)
    words = ("measure", tmp_path / "features.safetensors", "--json")
    path = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    after = run(*words, env=os.environ | {"PYTHONPATH": path})
    (plain,), (row,) = json.loads(run(*words).stdout), json.loads(after.stdout)
    numbers = {name: value for name, value in row["measurements"].items() if not name.startswith("bad.")}
    assert numbers == plain["measurements"]
    assert all(value is None for name, value in row["measurements"].items() if name.startswith("bad."))
    # what is no error stands in the notes alone
    told = [*after.stderr.splitlines(), *(each["text"] for each in row["notes"] if each["measurement"] == "bad.nan")]
    for name, (_, said) in broken.items():
        assert sum(bool(re.search(rf"plugin {name}\b.*{said}", line)) for line in told) == 1 + (name == "circle"), (
            name,
            told,
        )
    assert len(told) == len(broken) + 1  # both functions of the circle


@pytest.mark.parametrize("kind", ["import", "keyword", "column"])
def test_a_broken_plugin_that_was_named_ends_the_command(load_plugin, kind, told):
    text, wrong = UNUSABLE[kind]
    load_plugin(text)
    for words in (["metrics"], ["measure", "nowhere"], ["analyze", "permutation", "nowhere.csv"]):
        (said,) = told(2, *words).splitlines()
        assert re.search(wrong, said)
        assert "remove it from -p and COLLAPSE_PLUGINS" in said
    told(0, "--help")


def test_a_plugin_that_is_not_there_ends_the_command(run):
    for name in ("nowhere.py", "no_such_module"):
        done = run("-p", name, "metrics", code=2)
        assert name in done.stderr
        assert not done.stdout


WRONG = {
    "a limit of c": (lambda: metric("a.x", towards=lambda c: 1 / c), "has an unknown parameter 'c'"),
    "no measure": (lambda: class_metric("a.x"), r"needs measures, such as Mean\('mine.distance'\), got \('a.x',\)"),
    "a name with a space": (lambda: metric("A x"), "'A x' is not a measurement name"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_declaration_is_refused_where_it_is_made(kind):
    declare, told = WRONG[kind]
    with pytest.raises(PluginError, match=told):
        declare()(lambda means: 1.0)


COMMANDS = """
import click
from collapse import hookimpl
@hookimpl
def collapse_commands(cli):
    cli.add_command(click.Command('measure', callback=lambda: 7))
    cli.add_command(click.Command('mine', callback=lambda: 8))
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("raise RuntimeError('at import')", "RuntimeError: at import"),
        (COMMANDS, "command measure already exists: give the new command another name"),
    ],
    ids=["import", "clash"],
)
def test_a_broken_command_plugin_costs_only_its_command(here, text, told):
    here("commanding", text, group="collapse.commands")
    group = click.Group(commands=dict(cli.commands))
    before = dict(group.commands)
    found = command_plugins(group)
    assert f"plugin commanding (guest 1.0): {told}" in [each.problem for each in found if each.problem]
    assert before.items() <= group.commands.items()
    assert ("mine" in group.commands) == ("measure" in told)


def test_an_installed_plugin_can_be_left_out(here, monkeypatch, told):
    here("mine", scalar("return 1.0", "mine.x"))
    here("others", scalar("return 1.0", "others.x"), maker="other")
    found = plugins()
    assert found.problems == []
    assert {(each.name, each.origin) for each in found.found} >= {("mine", "guest 1.0"), ("others", "other 1.0")}
    assert {"mine.x", "others.x"} <= found.measurements().keys()
    assert found.made_by(found.chosen("others.x")) == {"others.x": "other 1.0"}
    monkeypatch.setenv("COLLAPSE_PLUGINS", "no:mine,no:nc4")
    plugins.cache_clear()
    measurements = plugins().measurements()
    assert not {"mine.x", "nc4.agreement"} & measurements.keys()
    assert {"nc1.cdnv", "others.x"} <= measurements.keys()
    monkeypatch.delenv("COLLAPSE_PLUGINS")
    assert "no plugin is called 'nc5'; did you mean nc" in told(2, "-p", "no:nc5", "metrics")


def test_an_analysis_that_fails_ends_in_a_line(load_plugin, tmp_path, told):
    head = "from collapse import analysis\n@analysis('odd')\ndef odd(results):\n"
    load_plugin(f"{head}    '''Odd.'''\n    raise KeyError('no_column')\n")
    (tmp_path / "results.csv").write_text("model,a\nx,1\n")
    (said,) = told(1, "analyze", "odd", tmp_path / "results.csv", "--json").splitlines()
    assert said.startswith("collapse: analysis odd of collapse_plugin_mine failed: KeyError: 'no_column'")
    load_plugin(f"{head}    '''Odd.'''\n    return [1]\n")
    (said,) = told(1, "analyze", "odd", tmp_path / "results.csv", "--json").splitlines()
    assert said == "collapse: analysis odd of collapse_plugin_mine must return a collapse.Table, got list"
