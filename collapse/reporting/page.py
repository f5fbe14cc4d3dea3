"""The page: sections of text, tables and figures in one HTML file that loads nothing."""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from string import Template
from typing import Any

from collapse.measurement.table import Table
from collapse.reporting.drawn import Drawn
from collapse.reporting.embedding import json_of, plain, text_of
from collapse.version import VERSION

MARK = "<!-- a report of collapse -->"
"""Second line of every report: only a file with it is replaced."""


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading.

    Attributes:
        name: The part of its address after ``#``.
        title: Its heading.
        content: HTML.
    """

    name: str
    title: str
    content: str


def page_of(title: str, sections: Sequence[Section], *, vega: str, themes: dict[str, Any]) -> str:
    """Return the whole page.

    Args:
        title: Its title.
        sections: Its parts, in order.
        vega: Vega, Vega-Lite and Vega-Embed as one script.
        themes: The configuration of every figure, by "light" and "dark".
    """
    # Only these two scripts run: the browser compares their hashes, so that markup which slipped in as data cannot.
    vega = vega.replace("\r", "").replace("</script", "<\\/script")
    script = "\n".join(_file(name) for name in ("tables.js", "figures.js"))
    made = [f'<section id="{each.name}"><h2>{text_of(each.title)}</h2>\n{each.content}</section>' for each in sections]
    return Template(_file("page.html")).substitute(
        mark=MARK,
        version=VERSION,
        title=text_of(title),
        css=_file("page.css"),
        contents=" ".join(f'<a href="#{each.name}">{text_of(each.title)}</a>' for each in sections),
        sections="\n".join([*made, _data("themes", themes)]),
        hashes=" ".join(_hash(each) for each in (vega, script)),
        vega=vega,
        script=script,
    )


def paragraphs(texts: Iterable[str], kind: str = "") -> str:
    """Return texts as paragraphs of a class of the style sheet."""
    attribute = f' class="{kind}"' if kind else ""
    return "".join(f"<p{attribute}>{text_of(each)}</p>\n" for each in texts)


def bullets(texts: Iterable[str]) -> str:
    """Return texts as a list."""
    return f'<ul class="findings">{"".join(f"<li>{text_of(each)}</li>" for each in texts)}</ul>\n'


def table(name: str, made: Table, *, folded: bool = False, heading: bool = True) -> str:
    """Return a table with its heading and notes; its rows are data, which the script shows.

    Args:
        name: Part of identifiers and of the names of files.
        made: The table.
        folded: Show only the heading until it is clicked.
        heading: Whether it needs one; not if it is all that a section has.
    """
    rows = [[plain(value) for value in row] for row in made.rows]
    data = {"name": name, "columns": [plain(heading) for heading in made.columns], "rows": rows}
    holder = f'<div class="table" data-from="data-{name}" data-filter="filter rows"></div>'
    content = holder + paragraphs(made.notes, "note") + _data(f"data-{name}", data)
    if folded:
        return f"<details><summary>{text_of(made.title)}</summary>{content}</details>\n"
    return f"<h3>{text_of(made.title)}</h3>{content}\n" if heading else content


def figure(drawn: Drawn) -> str:
    """Return a figure with its caption and notes, or a line that says why it is not drawn."""
    drawing, declared = drawn.drawing, drawn.figure
    if drawing is None:
        return f'<p class="note">{text_of(declared.title)}: not drawn: {text_of(drawn.why_not)}</p>\n'
    source = f" After {declared.source}." if declared.source else ""
    name = f"figure-{declared.name}"
    return (
        f'<figure id="{name}" data-from="data-{name}" data-name="{declared.name}"><h3>{text_of(drawing.title)}</h3>'
        f'<div class="view"></div><div class="tools"></div>'
        f"<figcaption>{text_of(drawing.caption + source)}</figcaption>{paragraphs(drawing.notes, 'note')}"
        f"</figure>{_data(f'data-{name}', drawing.spec)}\n"
    )


def _data(name: str, value: Any) -> str:
    return f'<script type="application/json" id="{name}">{json_of(value)}</script>'


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _file(name: str) -> str:
    return resources.files("collapse.reporting").joinpath(name).read_text(encoding="utf-8")
