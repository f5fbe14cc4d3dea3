"""Reports: what the page holds, that names stay data, and what is said of bad input. test_report_page.py opens them."""

import base64
import hashlib
import json
import re
import shutil
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from golden_store import GOLDEN
from report_samples import FIGURES, HOSTILE, hostile_results, rows_of

import collapse
from collapse import CollapseError, Results
from collapse.errors import UsageError
from collapse.plugin import plugin_manager
from collapse.showing import sources
from collapse.showing.associations import associations
from collapse.showing.overview import findings

PUBLISHED = Path(__file__).parents[1] / "zoo" / "collapse_zoo" / "published.csv"


class Page(HTMLParser):
    """A page as a browser reads it: elements, texts, scripts, and data by identifier."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.data: dict[str, object] = {}
        self.text = ""
        self.comments: list[str] = []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_comment(self, data):
        self.comments.append(data)

    def handle_data(self, data):
        tag, attributes = self.elements[-1] if self.elements else ("", {})
        if tag == "script" and data.strip():
            if "type" in attributes:
                self.data[str(attributes["id"])] = json.loads(data)
            else:
                self.scripts.append(data)
        elif tag != "style":
            self.text += data


@pytest.fixture
def figures(tmp_path, monkeypatch):
    """Only the figures of report_samples.py besides the built-in plugins."""
    file = tmp_path / "figures_of_a_test.py"
    file.write_text(FIGURES)
    monkeypatch.setattr(plugin_manager, "_extra", [])
    plugin_manager.add_plugins([str(file)])
    yield
    monkeypatch.undo()
    plugin_manager.plugins.cache_clear()


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Make a report and read it; bundling Vega takes seconds, which most tests do without."""
    vl_convert = pytest.importorskip("vl_convert")
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda _: "window.vegaEmbed = 0; // </script>")

    def page(*sources, **options):
        return Page(collapse.report(list(sources), tmp_path / "report.html", **options))

    return page


def test_names_stay_data(page, figures):
    made = page(hostile_results(), title=HOSTILE[1])
    names = {tag for tag, _ in made.elements}
    assert not names & {"img", "b", "iframe", "object", "link"}
    assert len(made.scripts) == 2
    assert made.comments == [" a report of collapse "]
    rows = made.data["data-measurements"]["rows"]
    assert [row[0] for row in rows] == [name.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e") for name in HOSTILE]
    assert HOSTILE[1] in made.text


def test_nothing_is_loaded_and_only_the_two_scripts_may_run(page, figures):
    made = page(hostile_results())
    for tag, attributes in made.elements:
        assert not {"src", "srcset", "action"} & set(attributes), tag
        assert str(attributes.get("href", "#")).startswith("#"), attributes
    policy = next(each["content"] for tag, each in made.elements if each.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]
    for script in made.scripts:
        assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy


def test_figures_are_drawn_or_say_why_not(page, figures):
    made = page(hostile_results())
    assert made.data["data-figure-panels"]["data"]["values"][0]["model"] == HOSTILE[0]
    assert "Points <b>of</b> models. After A & B 2024." in made.text
    assert "a note" in made.text
    assert "Pairs: not drawn: it wants <more> rows" in made.text
    assert "Broken: not drawn: " in made.text
    assert "Samples of classes: not drawn: it is drawn from stores, and none is given" in made.text


def test_a_store_is_measured_once_and_its_origin_is_told(page, figures, tmp_path, monkeypatch):
    store = tmp_path / "store"
    shutil.copytree(GOLDEN, store)
    made = page(store)
    assert "data-figure-classes" in made.data
    assert made.data["data-store-0"]["rows"][0] == ["store", collapse.load(store).digest]
    assert ["made, versions, torch", "2.13.0+cpu"] in made.data["data-store-0"]["rows"]
    assert "there is 1" in made.text
    monkeypatch.setattr(sources, "measure_store", lambda *_, **__: pytest.fail("measured again"))
    page(store, Results([collapse.measurement.last_results.kept_row(collapse.load(store))]))


def test_the_published_rows(page):
    made = page(PUBLISHED)
    assert len(made.data["data-measurements"]["rows"]) == 230
    assert "log(nc1.cdnv) has the largest R² with validation loss, 0.916 (r = +0.957)" in made.text
    assert "lowest, 1.100 nats, in 12x1024_10L@9" in made.text
    assert "Against the sign" not in made.text
    assert "The rows have 30 values of architecture, with 7 to 27 rows each." in made.text
    assert "4 of 24 correlations with validation loss, and with its logarithm too," in made.text
    assert "nc3.self_duality has the largest R² of them" in made.text
    assert "reverses" not in made.text
    assert {"data-correlation", "data-correlation-within", "data-correlation-log-within"} <= set(made.data)
    assert "data-permutation" not in made.data  # rows of one architecture are not exchangeable with another's
    assert "Wu & Papyan 2024, Eq. 4" in str(made.data["data-definitions"])


def test_what_stands_out_with_few_rows(page):
    two = page(Results(rows_of(["a", "b"])))
    assert "Correlation with loss needs at least 3 models; there are 2." in two.text
    assert "permutation: only 2 rows to compare" in two.text
    eight = page(hostile_results())
    assert (
        "The rows have 2 values of dim, with 4 rows each. So few groups support no p-value over all rows" in eight.text
    )


def test_rows_that_cannot_be_compared_are_warned_of(page):
    rows = [*rows_of(["a", "b", "c", "d"], corpus_id="1"), *rows_of(["a"], corpus="news", corpus_id="2", store="f")]
    made = page(Results(rows))
    assert "Rows of different training texts are mixed: stories 1 (4 rows), news 2 (1 row)." in made.text
    assert "1 row with the model name of another row (a): they may not be independent." in made.text
    assert "on news and stories" in made.text
    assert made.data["data-measurements"]["columns"][1] == "corpus"


def test_tables_are_joined_and_a_store_appears_once(tmp_path):
    rows = rows_of(["a", "b"])
    Results(rows[:1]).write(tmp_path / "one.csv")
    table = sources.gather([Results(rows), tmp_path / "one.csv", "paper"]).results
    assert table.frame()["model"].tolist()[:2] == ["a", "b"]
    assert len(table) == 232


def test_a_named_table_is_taken_though_a_folder_has_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("paper").mkdir()  # such as the --out of figures
    shutil.copytree(GOLDEN, "paper", dirs_exist_ok=True)
    assert len(sources.gather("paper").results) == 230
    assert len(sources.gather("./paper").stores) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "name a results file or a store"),
        (["nowhere.csv"], "there is no results file nowhere.csv"),
        (["nowhere"], "there is no nowhere: give results files"),
        ([Results()], "no rows. Create a results file with collapse measure"),
    ],
)
def test_bad_sources(page, given, said):
    with pytest.raises(CollapseError, match=re.escape(said)):
        page(*given)


def test_where_a_report_may_be_written(page, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"the name of a report must end in \.html"):
        collapse.report(PUBLISHED, tmp_path / "report.pdf")
    (tmp_path / "mine.html").write_text("<p>mine")
    monkeypatch.setattr(sources, "_open", lambda source: pytest.fail("opened before the output was checked"))
    with pytest.raises(UsageError, match="exists and is not a report"):
        collapse.report(PUBLISHED, tmp_path / "mine.html")
    with pytest.raises(UsageError, match="cannot write"):
        collapse.report(PUBLISHED, tmp_path / "mine.html" / "report.html")
    monkeypatch.undo()
    made = collapse.report(hostile_results(), tmp_path / "again.html")
    assert collapse.report(hostile_results(), made) == made


def test_without_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(CollapseError, match=r"pip install 'linguistic-collapse\[report\]'"):
        collapse.report(PUBLISHED, tmp_path / "report.html")


def test_the_command(run, tmp_path):
    pytest.importorskip("vl_convert")
    output = tmp_path / "report.html"
    done = run("report", PUBLISHED, "-o", output, "--title", "Mine")
    assert done.stdout == ""
    assert "report.html" in done.stderr
    assert output.stat().st_size < 6e6
    assert "<title>Mine</title>" in output.read_text("utf-8")
    assert run("report", "nowhere.csv", "-o", output, ok=False).returncode == 1


NULLS = {"untrained": {"nc4.agreement": 0.25}, "shuffled": {"nc4.agreement": None}}


def test_standard_errors_and_nulls_stand_beside_the_measurements(page):
    rows = rows_of(list("abcde"), standard_errors={"nc4.agreement": 0.02}, nulls=NULLS)
    made = page(Results(rows[:2])).data["data-measurements"]
    found = {row[1]: dict(zip(made["columns"], row, strict=True)) for row in made["rows"]}
    assert found["nc4.agreement ±"]["b"] == 0.02
    assert found["nc4.agreement"]["a, untrained"] == 0.25
    assert found["nc4.agreement"]["b ÷ untrained"] == rows[1]["nc4.agreement"] / 0.25
    many = page(Results(rows)).data["data-measurements"]
    assert many["columns"][many["columns"].index("nc4.agreement") + 1] == "nc4.agreement ±"
    assert many["rows"][0][-1] == 0.02


def test_one_model_is_compared_with_its_limits_and_with_noise(page):
    made = page(collapse.measure(collapse.load(GOLDEN)))
    assert "random points is no sign of collapse" in made.text
    assert ": the value of uniform random points, which is no bound" in made.text
    assert "Correlation with loss needs at least 3 models; there is 1." in made.text


def test_chance_is_named_by_the_rows_that_were_tested():
    rows = [replace(row, dim=8) for row in rows_of([f"m{at}" for at in range(30)])]
    few = [row if at < 8 else replace(row, measurements={"nc1.cdnv": 0.5}) for at, row in enumerate(rows)]
    for given, said in ((rows, []), (few, ["With 8 rows, such an R² can come by chance: see the p-values below."])):
        results = Results(given)
        found = findings(results.frame(), associations(results, 99))
        assert [each for each in found if "by chance" in each] == said


def test_a_table_without_a_measurement_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    with pytest.raises(CollapseError, match="no row has a measurement or a validation loss"):
        collapse.report(tmp_path / "t.csv", tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()
