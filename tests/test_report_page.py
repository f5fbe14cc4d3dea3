"""Reports in headless Chromium: nothing fails or is requested, and tables and figures work."""

import json
import os
import shutil
from pathlib import Path

import pytest
from golden_store import GOLDEN
from playwright.sync_api import sync_playwright
from report_samples import FIGURES, HOSTILE, hostile_results

import collapse
from collapse.plugin import plugin_manager

PUBLISHED = Path(__file__).parents[1] / "zoo" / "collapse_zoo" / "published.csv"
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
PHONE = {"width": 390, "height": 800}


@pytest.fixture(scope="module")
def chromium():
    """The browser, started once."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """The three pages: eight rows with hostile names, the published rows, and the golden store."""
    folder = tmp_path_factory.mktemp("reports")
    shutil.copytree(GOLDEN, folder / "store")
    (folder / "figures_of_a_test.py").write_text(FIGURES)
    made = {
        "published": collapse.report(PUBLISHED, folder / "published.html"),
        "store": collapse.report(folder / "store", folder / "store.html", tokens=collapse.tokens),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugin_manager, "_extra", [])
        plugin_manager.add_plugins([str(folder / "figures_of_a_test.py")])
        made["hostile"] = collapse.report(hostile_results(), folder / "hostile.html")
    plugin_manager.plugins.cache_clear()
    return made


@pytest.fixture
def opened(chromium, reports):
    """Open a report; at the end, nothing may have failed or been requested."""
    wrong, contexts = [], []

    def opened(name, *, phone=False, dark=False):
        context = chromium.new_context(
            viewport=PHONE if phone else {"width": 1280, "height": 900},
            color_scheme="dark" if dark else "light",
            accept_downloads=True,
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request",
            lambda asked: None if asked.url.startswith(("file:", "blob:", "data:")) else wrong.append(asked.url),
        )
        page.goto(reports[name].as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


def drawn(page, name):
    """A figure, once it is drawn."""
    figure = page.locator(f"#{name}")
    figure.scroll_into_view_if_needed()
    figure.locator(".view[data-drawn] svg").wait_for()
    return figure


def column(table, at):
    return table.locator(f"tbody td:nth-child({at + 1})").all_text_contents()


@pytest.mark.parametrize(("name", "phone"), [("hostile", False), ("published", True), ("store", False)])
def test_every_figure_is_drawn_and_the_page_never_scrolls_sideways(opened, name, phone):
    page = opened(name, phone=phone, dark=phone)
    figures = page.locator("figure").evaluate_all("figures => figures.map((each) => each.id)")
    assert figures
    for each in figures:
        figure = drawn(page, each)
        assert figure.locator(".view").get_attribute("data-drawn") == ("dark" if phone else "light")
        widths = "f => [f.querySelector('svg').clientWidth, f.querySelector('.view').clientWidth]"
        shown, room = figure.evaluate(widths)
        assert shown <= room + 1
    page.set_viewport_size({"width": page.viewport_size["width"] - 15, "height": 900})  # such as by a scroll bar
    shown, room = figure.evaluate(widths)
    assert shown <= room + 1
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("window.stolen") is None
    if name == "store":
        assert page.locator("#tokens .table .count").text_content() == "269 of 269 rows"  # with the average


def test_a_heading_sorts_and_the_box_filters(opened):
    page = opened("published")
    table = page.locator("#measurements .table")
    heading = table.locator("th", has_text="val_loss")
    heading.locator("button").press("Enter")  # a click could miss while figures above are drawn
    at = heading.evaluate("each => each.cellIndex")
    assert column(table, at)[:2] == ["3.890", "3.885"]
    heading.locator("button").press("Enter")
    assert heading.get_attribute("aria-sort") == "ascending"
    assert column(table, at)[0] == "1.100"
    assert table.locator("tbody td").nth(at).get_attribute("title") == "1.09984899"
    assert len(column(table, 0)) == 200
    page.locator("#measurements").get_by_text("show all 230").press("Enter")
    assert len(column(table, 0)) == 230
    table.locator("input").fill("12x1024")
    assert table.locator(".count").text_content() == f"{len(column(table, 0))} of 230 rows"
    assert all("12x1024" in name for name in column(table, 0))


def test_names_are_shown_as_they_are(opened):
    page = opened("hostile")
    table = page.locator("#measurements .table")
    assert column(table, 0)[:3] == [*HOSTILE[:2], "red \\x1b[31m"]
    table.locator("input").fill("<IMG")
    assert column(table, 0) == [HOSTILE[1]]
    with page.expect_download() as download:
        table.locator("button.csv").press("Enter")
    assert HOSTILE[1] in Path(download.value.path()).read_text("utf-8")


def test_a_figure_names_links_changes_its_theme_and_is_downloaded(opened):
    page = opened("hostile")
    figure = drawn(page, "figure-panels")
    points = figure.locator(".mark-symbol path")
    points.first.hover(force=True)
    assert HOSTILE[0] in page.locator("#vg-tooltip-element").text_content()
    assert points.count() == 16
    box = figure.locator(".view svg").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.35, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.48, box["y"] + box["height"] * 0.8, steps=5)
    page.mouse.up()
    page.wait_for_timeout(200)
    opacities = points.evaluate_all("each => each.map((one) => one.getAttribute('opacity') ?? '1')")
    assert opacities[:8] == opacities[8:]
    assert 0 < opacities[:8].count("0.1") < 8
    page.locator("#theme").click()
    figure.locator(".view[data-drawn=dark] svg").wait_for()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 23, 28)"
    found = {}
    for button in figure.locator(".tools button").all():
        with page.expect_download() as download:
            button.click()
        found[download.value.suggested_filename] = Path(download.value.path()).read_bytes()
    assert found["collapse-panels.svg"].startswith(b"<svg")
    assert found["collapse-panels.png"].startswith(b"\x89PNG")
    assert json.loads(found["collapse-panels.vl.json"])["data"]["values"][0]["model"] == HOSTILE[0]
    numbers = found["collapse-panels.csv"].decode().splitlines()
    assert (numbers[0], len(numbers)) == ("model,val_loss,cdnv,agreement", 9)
    assert numbers[5].startswith("=HYPERLINK(1),")
