"""Untrusted names on a terminal, in Markdown, in CSV files and on a card: they are shown as text."""

import html
import json
import logging
import re

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from safetensors.torch import save_file

import collapse
from collapse.cli import _add_commands, _run
from collapse.core.escaping import markdown, visible
from collapse.hub.card import card
from collapse.testing import random_features

NASTY = (
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J \x7f \u202egnp \u200b\u200d\ufeff \u2066x\u2069 "
    "[red]m[red] [link=https:]here[link] a|b `c` <script>alert(1) \r\ncollapse: forged"
)


@settings(max_examples=50, deadline=None)
@given(st.text(st.characters(exclude_categories=[])))
@example(NASTY)
def test_visible_text_only_prints(text):
    shown = visible(text)
    assert shown.isprintable()
    assert visible(shown) == shown
    shown.encode()  # lone surrogates too
    assert shown == text or not text.isprintable()
    assert visible("a\tb\n" + text, keep="\n\t").startswith("a\tb\n")


@pytest.fixture
def nasty(tmp_path):
    """A features file whose name is a terminal's commands and our console's markup."""
    save_file(random_features(6, 4, 60), tmp_path / f"{NASTY}.safetensors")
    return tmp_path / f"{NASTY}.safetensors"


def test_whatever_prints_is_harmless(nasty, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    _add_commands()
    for words in (
        ["measure", nasty, "--metrics", "nc3"],
        ["measure", nasty, "--metrics", "nc3", "--format", "markdown"],
        ["measure", nasty, "--metrics", "nc3", "--json"],
        ["measure", f"no/{NASTY}/such"],
        ["metrics", "--classes", NASTY],
        ["measur\x1b[31m"],
    ):
        _run([str(word) for word in words])  # sets logging up
        logging.getLogger("collapse").warning("model %s", NASTY)
        said = capsys.readouterr()
        for text in (said.out, said.err):
            assert text.replace("\n", "").isprintable()
        assert "[red]m[red] [link=https:]here[link]" in said.err
        assert "\ncollapse: forged" not in said.err


def test_json_and_csv_give_the_name_back(nasty, tmp_path, out):
    rows = json.loads(out("measure", nasty, "--metrics", "nc3", "--json", "--output", tmp_path / "r.csv"))
    assert rows[0]["model"] == NASTY
    assert list(collapse.Results.read(tmp_path / "r.csv").frame()["model"]) == [NASTY]


def rendered(text: str) -> tuple[list[str], str]:
    """The tags of a page of Markdown, and its text."""
    page = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(text)
    return re.findall(r"<(\w+)", page), html.unescape(re.sub(r"<[^>]*>", "", page))


@settings(deadline=None)
@given(st.text(min_size=1))
@example(NASTY)
@example("__a__ _b_ a_b")
@example("![x](y) [x](y) www.example.com https://example.com &lt;")
def test_markdown_is_shown_as_it_is_in_one_cell(text):
    tags, shown = rendered(f"| a | b |\n| --- | --- |\n| x{markdown(text)}x | last |\n\n# h {markdown(text)} h\n")
    assert tags == ["table", "thead", "tr", "th", "th", "tbody", "tr", "td", "td", "h1"]
    assert f"x{visible(text)}x" in shown
    assert "last" in shown


def test_a_card_with_a_hostile_name(nasty):
    made = card(collapse.collect(nasty), "a/b")
    begin, front, body = re.split(r"^---\n", made, maxsplit=2, flags=re.MULTILINE)
    assert begin == ""
    assert yaml.safe_load(front)["model_name"] == visible(NASTY)
    assert made.replace("\n", "").isprintable()
    tags, shown = rendered(body)
    assert "script" not in tags
    assert tags.count("table") == tags.count("h1") == 1
    assert f"Embedding statistics of {visible(NASTY)}" in shown
