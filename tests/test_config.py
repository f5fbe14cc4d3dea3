"""Options and arguments in a file, and shell completion."""

import subprocess
import sys
from pathlib import Path

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from collapse.cli import _add_commands, cli
from collapse.cli.config import with_config
from collapse.testing import random_features


def commands(group: click.Group, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], click.Command]:
    """Every command by its path, those of plugins too."""
    found: dict[tuple[str, ...], click.Command] = {}
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        found |= commands(command, (*path, name)) if isinstance(command, click.Group) else {(*path, name): command}
    return found


_add_commands()
COMMANDS = commands(cli)
# YAML ends lines at the excluded characters; UTF-8 has no lone surrogates
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0\x85\u2028\u2029"), min_size=1)


def values(parameter: click.Parameter) -> st.SearchStrategy[str]:
    """Valid values of an option or argument."""
    if isinstance(parameter.type, click.Choice):
        return st.sampled_from(parameter.type.choices)
    if parameter.name in (checked := {"output": "r.csv", "group_by": "a regular expression"}):
        return st.just(checked[parameter.name])
    is_text = isinstance(parameter.type, click.types.StringParamType | click.Path)
    return texts if is_text else st.integers(2, 9).map(str)


@st.composite
def command_lines(draw: st.DrawFn) -> tuple[tuple[str, ...], list[str]]:
    """A command's path, and words after it: some of its options, and its arguments, which may begin with a dash."""
    path = draw(st.sampled_from(sorted(COMMANDS)))
    options, arguments = list[str](), list[str]()
    for each in COMMANDS[path].params:
        if isinstance(each, click.Argument):
            arguments += draw(st.lists(values(each), min_size=1, max_size=1 if each.nargs == 1 else 3))
        elif each.required or draw(st.booleans()):
            flag = (
                draw(st.sampled_from([*each.opts, *each.secondary_opts])) if each.is_flag else max(each.opts, key=len)
            )
            for _ in range(draw(st.integers(1, 2 if each.multiple else 1))):
                options += [flag] if each.is_flag else [flag, *(draw(values(each)) for _ in range(each.nargs))]
    return path, [*options, "--", *arguments]


def parsed(path: tuple[str, ...], words: list[str]) -> dict[str, object]:
    assert words[: len(path)] == list(path)
    command = COMMANDS[path]
    return command.make_parser(click.Context(command)).parse_args(words[len(path) :])[0]


@settings(max_examples=40, deadline=None)
@given(line=command_lines())
def test_what_is_saved_is_read_back(line, tmp_path_factory):
    path, words = line
    file = str(tmp_path_factory.mktemp("config") / "run.yaml")
    with_config(cli, ["--save-config", file, "-v", *path, *words])
    again = with_config(cli, ["--config", file, "--threads", "1", "--save-config", f"{file}2", *path])
    assert again[0] == "--verbose"
    assert parsed(path, again[7:]) == parsed(path, [*path, *words])
    first, second = (Path(each).read_text().splitlines() for each in (file, f"{file}2"))
    assert [line for line in second[1:] if line != "threads: 1"] == first[1:]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate("ab"):
        save_file(random_features(10, 8, 120, seed=seed), f"{name}.safetensors")
    return tmp_path


def test_a_file_replaces_options_and_arguments_and_the_command_line_overrides_it(here, out):
    words = ("a.safetensors", "--metrics", "nc2.norm", "--min-count", "1,2", "--threads", "1", "--json")
    printed = out("measure", *words, "--save-config", "run.yaml")
    held = "threads: 1\nmodels:\n- a.safetensors\nmetrics: nc2.norm\nmin-count: 1,2\nformat: json\n"
    assert (here / "run.yaml").read_text() == f"# collapse measure --config run.yaml\n{held}"
    assert out("measure", "--config", "run.yaml") == printed
    shown = out("--config", "run.yaml", "measure", "b.safetensors", "--min-count", 1, "--format", "csv")
    assert shown.splitlines()[1].startswith("b,")
    (here / "zoo.yaml").write_text("grid: 1x64\ndry-run: true\nseeds: 0,1\n")
    assert len(out("zoo", "sweep", "--config", "zoo.yaml").splitlines()) == 2


def test_the_analysis_of_a_plugin_in_the_file_is_found(here, run):
    declared = "from collapse import Table, analysis\n\n@analysis('mine')\ndef mine(results, *, k: int = 1):\n"
    (here / "mine.py").write_text(f"{declared}    return Table(f'k is {{k}}', [], [])\n")
    (here / "run.yaml").write_text("plugin: mine.py\nresults: paper\nk: 3\n")
    assert "k is 3" in run("analyze", "mine", "--config", "run.yaml").stdout


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ("max-chunk: 3", "run.yaml: collapse measure has no parameter 'max-chunk'; did you mean max-chunks"),
        ("null: 3", "run.yaml: null must be true or false, got '3'"),
        ("max-chunks: [1, 2]", "run.yaml: max-chunks must be a text"),
        ("text: {a: b}", "run.yaml: text must be one or several texts"),
        ("max-chunks: many", "run.yaml: max-chunks: 'many' is not a valid integer"),
        ("min-count: [1, 2]", "run.yaml: min-count must be a text, got ['1', '2']: write 1,2"),
        ("a: {", "run.yaml cannot be read as YAML"),
        ("- a", "must hold an option or argument per line"),
    ],
)
def test_a_wrong_file_is_refused(here, told, held, said):
    (here / "run.yaml").write_text(f"{held}\n")
    assert said in told(1 if "YAML" in said else 2, "measure", "a.safetensors", "--config", "run.yaml")


def test_paths_and_options_are_checked_before_a_file_is_saved(here, told):
    words = ("measure", "a.safetensors", "--metrics", "nc2.norm")
    assert "choose another folder" in told(1, *words, "--save-config", ".").lower()
    assert "'abc' is not a valid integer" in told(2, *words, "--max-chunks", "abc", "--save-config", "run.yaml")
    assert not (here / "run.yaml").exists()
    assert "--config missing.yaml: there is no such file" in told(2, *words, "--config", "missing.yaml")


def test_bash_completes_without_torch(here):
    program = here / "collapse"
    loads = "assert not sys.modules.get('torch')"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nfrom collapse.cli import main\ntry: main()\nfinally: {loads}\n"
    )
    program.chmod(0o755)
    script = """
        eval "$(_COLLAPSE_COMPLETE=bash_source ./collapse)"
        compopt() { COMPREPLY=(FILES); }  # bash has it only while it completes
        words() {
            COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
            _collapse_completion ./collapse; echo "${COMPREPLY[*]}"
        }
        words collapse mea; words collapse measure --max-c; words collapse analyze perm; words collapse zoo tr
        words collapse measure a.
    """
    shown = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert shown.stderr == ""
    assert shown.stdout.splitlines() == ["measure", "--max-chunks", "permutation", "train", "FILES"]
