"""Names of others where they are shown: on a terminal, in Markdown, in a CSV file; they stay text."""

import io
import json
import logging
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console
from safetensors.torch import save_file

import collapse
from collapse import Results, Row
from collapse.cli import _add_commands, _run, progress_bar, rendering, terminal
from collapse.core.escaping import markdown, visible
from collapse.hub.card import card
from collapse.stores.building import build
from collapse.testing import random_features

NASTY = (
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J \x7f \u202egnp \u200b\u200d\ufeff \u2066x\u2069 "
    "[red]m[/red] [link=https://example.com]here[/link] a|b `c` <script>alert(1)</script> \r\ncollapse: forged"
)
names = st.text(min_size=1) | st.sampled_from(
    [NASTY, "NA", "null", "007", "-1.5", "=1+1", "'=1", "''-", "'", "@x", "\t=1"]
)


def row(model: str, corpus: str = "stories", **measurements: float) -> Row:
    versions = dict.fromkeys(measurements, 1)
    return Row(model, None, corpus, "abc", 1, 5, 3, 50, measurements or {"x": -1.5}, versions)


@settings(max_examples=50, deadline=None)
@given(st.text(st.characters(exclude_categories=[])))
@example(NASTY)
def test_what_is_visible_only_prints(text):
    shown = visible(text)
    assert shown.isprintable()
    assert visible(shown) == shown
    shown.encode()  # lone surrogates too
    if text.isprintable():
        assert shown == text
    assert visible("a\tb\n" + text, keep="\n\t").startswith("a\tb\n")


@settings(max_examples=50, deadline=None)
@given(st.text(st.characters(exclude_categories=[])))
@example(NASTY)
def test_json_is_visible_and_reads_back(text):
    out, sys.stdout = sys.stdout, io.StringIO()
    try:
        terminal.say_json({text: [text]})
        said = sys.stdout.getvalue()
    finally:
        sys.stdout = out
    assert said.replace("\n", "").isprintable()
    assert json.loads(said) == {text: [text]}


def test_whatever_prints_is_harmless(capsys, monkeypatch):
    monkeypatch.setattr(rendering, "console", lambda stderr=False: Console(stderr=stderr, width=400, highlight=False))
    table = collapse.Table(NASTY, [NASTY], [[NASTY]], [NASTY])
    rendering.print_table(collapse.Table(NASTY, [NASTY], [[NASTY]]))
    rendering.print_rows([row(NASTY, NASTY, val_loss=1.0), row("[bold]b[/bold]", val_loss=1.0)])
    rendering.print_table(table)
    terminal.say(NASTY)
    terminal.say_error(NASTY)
    lines = progress_bar._Lines()
    lines._next = 0
    lines(NASTY, 1, 2, NASTY)
    _add_commands()
    _run(["metrics", "nc3"])  # sets logging up
    capsys.readouterr()
    logging.getLogger("collapse").warning("model %s", NASTY)
    _run(["measur\x1b[31m"])
    _run(["measure", f"no/{NASTY}/such"])
    _run(["metrics", "--classes", NASTY])
    said = capsys.readouterr()
    for text in (said.out, said.err):
        assert text.replace("\n", "").isprintable()
    assert "[red]m[/red] [link=https://example.com]here[/link]" in said.err
    assert "\ncollapse: forged" not in said.err


@pytest.mark.parametrize("width", [80, 120])
def test_a_bar_fits_the_terminal(monkeypatch, width):
    stream = io.StringIO()
    monkeypatch.setattr(
        progress_bar,
        "console",
        lambda stderr=False: Console(file=stream, force_terminal=True, width=width, color_system=None),
    )
    what = "12 of 150: training TinyStories-12x1024_10L"
    with progress_bar._bar() as report:
        for done in (1, 10_000):
            report(what, done, 1_250_000, "12,345 tokens/s, loss 2.345")
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in re.split(r"[\r\n]", stream.getvalue())]
    assert max(map(len, lines)) <= width
    last = [line.rstrip() for line in lines if line.startswith(what) and "-:--" not in line][-1]
    assert re.search(r" 1% .*\d\d:\d\d left", last)


def test_the_time_left_is_of_this_phase(capsys, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(progress_bar.time, "monotonic", lambda: clock[0])
    lines = progress_bar._Lines()
    for second, done in ((0, 0), (600, 50), (1200, 100), (10_000, 0), (10_060, 10), (10_120, 5), (10_180, 10)):
        clock[0] = second
        lines("collecting train", done, 100)
    said = capsys.readouterr().err
    assert [line.partition("%)")[2] for line in said.splitlines()] == [
        *(", 0:10:00 left", "", "", ", 0:09:00 left", "", ", 0:18:00 left")
    ]


def test_a_bar_shows_names_as_they_are(capsys, monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(
        progress_bar,
        "console",
        lambda stderr=False: Console(file=stream, force_terminal=True, width=200, color_system=None),
    )
    with progress_bar._bar() as report:
        report("pull [red]a[/red]\x1b[31m\u202e", 1, 2, "[b]n[/b]\x9b2J")
        report("pull [red]a[/red]\x1b[31m\u202e", 1, 2, "[b]n[/b]\x9b2J")
    said = stream.getvalue()
    assert "pull [red]a[/red]\\x1b[31m\\u202e" in said
    assert "[b]n[/b]\\x9b2J" in said
    assert "\x9b" not in said


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(names, names, st.floats(allow_nan=False)), min_size=1, max_size=4))
def test_csv_gives_names_back_and_keeps_numbers(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("csv") / "r.csv"
    written = Results(row(model, corpus, x=value) for model, corpus, value in rows)
    written.write(path)
    read = Results.read(path).frame()
    assert list(read["model"]) == [model for model, _, _ in rows]
    assert list(read["corpus"]) == [corpus for _, corpus, _ in rows]
    assert list(read["x"]) == [value for _, _, value in rows]
    Results.read(path).write(path)  # read and written again, it is the same
    assert list(Results.read(path).frame()["model"]) == [model for model, _, _ in rows]


def test_negative_numbers_stay_numbers_in_csv(tmp_path):
    Results([row("=1+1", x=-1.5), row("-2", x=-0.25)]).write(tmp_path / "r.csv")
    lines = (tmp_path / "r.csv").read_text().splitlines()
    assert lines[1].startswith("=1+1,")
    assert lines[2].startswith("-2,")
    assert ",-1.5," in lines[1]


class Tags(HTMLParser):
    """The tags that a page has, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def rendered(text: str) -> Tags:
    return Tags(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(text))


@settings(deadline=None)
@given(st.text(min_size=1))
@example(NASTY)
@example("__a__ _b_ a_b")
@example("![x](y) [x](y) www.example.com https://example.com &lt;")
def test_markdown_is_shown_as_it_is_in_one_cell(text):
    page = rendered(f"| a | b |\n| --- | --- |\n| x{markdown(text)}x | last |\n\n# h {markdown(text)} h\n")
    assert page.tags == ["table", "thead", "tr", "th", "th", "tbody", "tr", "td", "td", "h1"]
    assert f"x{visible(text)}x" in page.text
    assert "last" in page.text


@pytest.mark.parametrize("name", [NASTY, "a\n---\nb: c", "x: [y"])
def test_a_card_with_a_hostile_name(tmp_path, name):
    save_file(random_features(6, 4, 60), tmp_path / "f.safetensors")
    store = collapse.collect(tmp_path / "f.safetensors")
    manifest = {**store.manifest, "model": {"name": name}, "corpus": {"name": name, "validation": None}}
    about = {key: manifest[key] for key in ("identity", "model", "corpus", "coverage", "statistics")}
    files = {file: store.tensors(Path(file).stem) for file in manifest["files"]}
    made = card(build(None, about, files, provenance={"command": name, "versions": {name: name}}), "a/b")
    begin, front, body = re.split(r"^---\n", made, maxsplit=2, flags=re.MULTILINE)
    assert begin == ""
    assert yaml.safe_load(front)["library_name"] == "linguistic-collapse"
    assert yaml.safe_load(front)["tags"][2] == visible(name.split("/")[-1])
    assert made.replace("\n", "").isprintable()
    page = rendered(body)
    assert "script" not in page.tags
    assert page.tags.count("table") == 1
    assert page.tags.count("h1") == 1
    assert f"Embedding statistics of {visible(name)}".strip() in page.text
