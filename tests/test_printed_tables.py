"""Tables in terminals of any width: every name and every number is whole, and no line is longer than the terminal."""

import io
import re
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collapse.cli.rendering import print_table
from collapse.cli.terminal import say_error, wrapped
from collapse.measurement.table import Table
from collapse_zoo.catalogue import SHOWN, catalogue

WIDTHS = (80, 100, 120)
NAMES = st.text("abxyz019", min_size=1, max_size=6).flatmap(
    lambda part: st.lists(st.just(part), min_size=1, max_size=12).map("_".join)
)


def printed(table, width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    print_table(table)
    return capsys.readouterr().out


def words(text):
    return re.split(r"\s+", text)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_published_models_are_shown_whole(width, monkeypatch, capsys):
    entries = catalogue("no runs")
    rows = [[each.name, each.where, *(each.measurements.get(name) for name in SHOWN)] for each in entries]
    shown = printed(Table("", ["model", "where", *SHOWN], rows), width, monkeypatch, capsys)
    assert max(map(len, shown.splitlines())) <= width
    assert "…" not in shown
    tables = shown.count("model ")
    for entry in entries:
        lines = [line for line in shown.splitlines() if line.split()[:1] == [entry.name]]
        assert len(lines) == tables
        values = [float(value) for line in lines for value in line.split()[1:] if value != "published"]
        expected = [entry.measurements[name] for name in SHOWN]
        assert values == pytest.approx(expected, rel=5e-3)
    for piece in ("hyperspherical_", "uniformity", "interference_", "self_", "duality", "agreement"):
        assert piece in shown


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    names=st.lists(NAMES, min_size=1, max_size=5),
    headings=st.lists(NAMES, min_size=1, max_size=8),
    numbers=st.floats(-1e12, 1e12),
    width=st.sampled_from(WIDTHS),
)
def test_any_table_keeps_its_names_and_numbers(names, headings, numbers, width, monkeypatch, capsys):
    rows = [[name, *(numbers * (i + 1) for i in range(len(headings)))] for name in names]
    shown = printed(Table("", ["model", *headings], rows), width, monkeypatch, capsys)
    assert set(names) <= set(words(shown))
    assert "…" not in shown
    if max(map(len, names)) < width - 30:
        assert max(map(len, shown.splitlines())) <= width
    joined = shown.replace("\n", "")
    for heading in headings:
        for piece in heading.split("_"):
            assert piece in joined


def test_a_long_message_wraps_between_words(monkeypatch, capsys):
    message = "failed: " + " ".join(f"word{i}" for i in range(40))
    shown = printed(Table("", ["member", "state"], [["a" * 30, message], ["b", "ok"]]), 80, monkeypatch, capsys)
    assert [word for word in words(shown) if word.startswith("word")] == message.split()[1:]


def test_a_column_of_one_text_is_said_once_where_space_is_short(monkeypatch, capsys):
    rows = [[f"model{i}", "published", *(1.5 for _ in range(9))] for i in range(3)]
    columns = ["model", "where", *(f"measurement_{i}" for i in range(9))]
    assert printed(Table("", columns, rows), 80, monkeypatch, capsys).count("published") == 1
    assert printed(Table("", columns[:3], [row[:3] for row in rows]), 80, monkeypatch, capsys).count("published") == 3


@pytest.mark.parametrize("width", WIDTHS)
def test_records_beside_a_hash_are_wrapped_between_words(width, monkeypatch, capsys):
    records = [
        ["corpus", f"train.jsonl (column=text, sha256={'5' * 64})"],
        ["digest", "a" * 64],
        ["versions", "numpy=2.4.6, python=3.11.7, safetensors=0.8.0, tokenizers=0.23.3, transformers=5.23.0"],
        ["model with a long name", "b"],
    ]
    shown = printed(Table("", ["holds", ""], records), width, monkeypatch, capsys)
    assert max(map(len, shown.splitlines())) <= width
    said = [word for word in shown.split() if "─" not in word]
    assert said == ["holds", *(word for record in records for text in record for word in text.split())]


def test_a_message_on_a_terminal_is_wrapped_between_words_and_its_command_is_whole(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stderr", Terminal())
    command = "collapse measure runs/01x0064 --text a.jsonl --all"
    say_error(f"rows of different training texts are mixed here: measure them again with: {command}; then join them")
    first, *lines = sys.stderr.getvalue().splitlines()
    assert first == "collapse: rows of different training"
    assert f"  {command}" in lines
    assert lines[-1] == "  then join them"
    assert all(len(line) <= 40 for line in lines if command not in line)
    text = " ".join(["word"] * 30)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    say_error(text)
    assert sys.stderr.getvalue() == f"collapse: {text}\n"


def test_a_quoted_token_stays_on_a_line():
    note = 'no class; similar classes: " Anna", " Tim", "\\n  x"'
    for width in range(26, 60):
        shown = wrapped(note, width, indent="  ")
        assert shown.replace("\n  ", " ") == note
        assert all(line.count('"') % 2 == 0 for line in shown.splitlines())


def test_titles_and_notes_are_wrapped_between_words(monkeypatch, capsys):
    text = "a title of many words that is longer than a line of a narrow terminal"
    shown = printed(Table(text, ["a"], [[1]], above=[text], notes=[text]), 40, monkeypatch, capsys)
    assert max(map(len, shown.splitlines())) <= 40
    assert words(shown).count("narrow") == 3


def test_headings_are_broken_only_where_space_is_short(monkeypatch, capsys):
    names = ["val_loss", "nc2.interference_std", "gnc2.hyperspherical_uniformity"]
    table = Table("", ["model", *names], [["model-of-a-name", 1.5, 2.5, 3.5]])
    shown = printed(table, 80, monkeypatch, capsys)
    assert " val_loss " in shown
    assert "nc2.interference_std " in shown  # the shorter headings first
    assert re.search(r"hyperspherical_uniformity$|gnc2\.\s", shown, re.MULTILINE)
    assert " val_loss " in printed(table, 60, monkeypatch, capsys)
