"""Reports: the content of the page, escaped names, and errors. test_report_page.py opens reports in a browser."""

import base64
import hashlib
import json
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
import vl_convert
from golden_store import GOLDEN
from report_samples import FIGURES, HOSTILE, hostile_results, rows_of

import collapse
from collapse import CollapseError, Results
from collapse.showing import material
from collapse.showing.report_findings import Associations, associations, findings

PUBLISHED = Path(__file__).parents[1] / "zoo" / "collapse_zoo" / "published.csv"


class Page(HTMLParser):
    """A page as a browser reads it: elements, texts, scripts, and data by identifier."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.data: dict[str, object] = {}
        self.text = ""
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        tag, attributes = self.elements[-1] if self.elements else ("", {})
        if tag == "script" and data.strip():
            if "type" in attributes:
                self.data[str(attributes["id"])] = json.loads(data)
            else:
                self.scripts.append(data)
        elif tag != "style":
            self.text += data


@pytest.fixture(autouse=True)
def no_bundle(monkeypatch):
    """Bundling Vega takes seconds."""
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda _: "window.vegaEmbed = 0; // </script>")


@pytest.fixture
def figures(load_plugin):
    """Only the figures of report_samples.py besides the built-in plugins."""
    load_plugin(FIGURES)


@pytest.fixture
def page(tmp_path):
    """Make a report and read it."""
    return lambda *sources, **options: Page(collapse.report(list(sources), tmp_path / "report.html", **options))


def test_names_stay_data_and_only_the_two_scripts_may_run(page, figures):
    made = page(hostile_results(), title=HOSTILE[1])
    assert not {tag for tag, _ in made.elements} & {"img", "b", "iframe", "object", "link"}
    rows = made.data["data-measurements"]["rows"]
    assert [row[0] for row in rows] == [name.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e") for name in HOSTILE]
    assert HOSTILE[1] in made.text
    for tag, attributes in made.elements:
        assert not {"src", "srcset", "action"} & set(attributes), tag
        assert str(attributes.get("href", "#")).startswith("#"), attributes
    policy = next(each["content"] for tag, each in made.elements if each.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy.partition("script-src")[2].partition(";")[0]
    assert len(made.scripts) == 2
    for script in made.scripts:
        assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy
    assert made.data["data-figure-panels"]["data"]["values"][0]["model"] == HOSTILE[0]
    for said in (
        "Points <b>of</b> models. After A & B 2024.",
        "a note",
        "Pairs: not drawn: it wants <more> rows",
        "Broken: not drawn: ",
        "Samples of classes: not drawn: it needs stores, and none are given",
        "The rows have 2 values of dim, with 4 rows each. These are too few groups for a p-value over all rows",
    ):
        assert said in made.text, said


def test_a_store_is_measured_once_and_its_origin_is_told(page, figures, tmp_path, monkeypatch):
    store = tmp_path / "store"
    shutil.copytree(GOLDEN, store)
    made = page(store)
    assert "data-figure-classes" in made.data
    assert made.data["data-store-0"]["rows"][0] == ["store", collapse.load(store).digest]
    assert "torch=2.13.0+cpu" in dict(made.data["data-store-0"]["rows"])["made, train, versions"]
    assert "Correlation with loss needs at least 3 models" in made.text
    assert ": the value of uniform random points, not a bound" in made.text
    monkeypatch.setattr(material, "measure_store", lambda *_, **__: pytest.fail("measured again"))
    page(store, Results([collapse.measurement.last_results.kept_row(collapse.load(store))]))


def test_the_published_rows(page):
    made = page(PUBLISHED)
    assert len(made.data["data-measurements"]["rows"]) == 230
    assert "log(nc1.cdnv) has the largest R² with validation loss, 0.916 (r = +0.957)" in made.text
    assert "lowest, 1.100 nats, in 12x1024_10L@9" in made.text
    assert "opposite to the prediction" not in made.text
    assert "The rows have 30 values of architecture, with 7 to 27 rows each." in made.text
    assert "4 of 24 correlations with validation loss, and with its logarithm too," in made.text
    assert "nc3.self_duality has the largest R² of them" in made.text
    assert "reverses" not in made.text
    assert {"data-correlation", "data-correlation-within", "data-correlation-log-within"} <= set(made.data)
    assert "data-permutation" not in made.data  # rows of one architecture are not exchangeable with another's
    assert "Wu & Papyan 2024, Eq. 4" in str(made.data["data-definitions"])


def test_checkpoints_of_one_run_are_not_permuted():
    rows = [
        replace(row, model=f"run/checkpoint-{at}", dim=8, measurements=row.measurements | {"n_params": 9})
        for at, row in enumerate(rows_of("abcdef"))
    ]
    found = associations(Results(rows))
    assert "permutation" not in found.tables
    assert "permutation: rows that differ in step are not exchangeable" in found.lacking
    assert (
        "models differ in step, which may drive both a column and val_loss; they are not exchangeable"
        in found.tables["correlation"].notes
    )


def test_rows_that_cannot_be_compared_are_warned_of(page):
    rows = [*rows_of(["a", "b", "c", "d"], corpus_id="1"), *rows_of(["a"], corpus="news", corpus_id="2", store="f")]
    made = page(Results(rows))
    assert "Rows of different training texts are mixed: stories 1 (4 rows), news 2 (1 row)." in made.text
    assert "1 row with the same model name as another row (a): they may not be independent." in made.text
    assert "on news, stories" in made.text
    assert made.data["data-measurements"]["columns"][1] == "corpus"


def test_tables_are_joined_and_a_store_appears_once(tmp_path):
    rows = rows_of(["a", "b"])
    Results(rows[:1]).write(tmp_path / "one.csv")
    stores = [shutil.copytree(GOLDEN, tmp_path / name) for name in ("store", "copy")]
    found = material.gather([Results(rows), tmp_path / "one.csv", "paper", *stores])
    assert found.results.frame()["model"].tolist()[:2] == ["a", "b"]
    assert len(found.results) == 233
    assert [each.path.name for each in found.stores] == ["store"]
    apart = [rows[0], *(replace(rows[0], **{name: "x"}) for name in ("group", "class_set", "ood", "layer"))]
    assert len(material.gather([Results(apart)]).results) == 5


def test_a_named_table_is_taken_though_a_folder_has_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("paper").mkdir()  # such as the --out of figures
    shutil.copytree(GOLDEN, "paper", dirs_exist_ok=True)
    assert len(material.gather("paper").results) == 230
    assert len(material.gather("./paper").stores) == 1


def test_bad_sources(page):
    for given, said in {(): "no row has a measurement", ("nowhere",): "there is no store in nowhere"}.items():
        with pytest.raises(CollapseError, match=said):
            page(*given)


def test_standard_errors_and_nulls_stand_beside_the_measurements(page):
    nulls = {"untrained": {"nc4.agreement": 0.25}, "shuffled": {"nc4.agreement": None}}
    rows = rows_of(list("abcde"), standard_errors={"nc4.agreement": 0.02}, nulls=nulls)
    made = page(Results(rows[:2])).data["data-measurements"]
    found = {row[1]: dict(zip(made["columns"], row, strict=True)) for row in made["rows"]}
    assert found["nc4.agreement ±"]["b"] == 0.02
    assert found["nc4.agreement"]["a, untrained"] == 0.25
    assert "untrained model" not in page(Results(rows[:2])).text
    assert "untrained model" in page(Results(rows_of(["a", "b"]))).text
    many = page(Results(rows)).data["data-measurements"]
    assert many["columns"][many["columns"].index("nc4.agreement") + 1] == "nc4.agreement ±"
    assert many["rows"][0][-1] == 0.02
    joined = page(Results(rows[:2]), "paper", figures=["loss"]).data["data-measurements"]
    at = joined["columns"].index("nc4.agreement ±")
    assert [row[at] for row in joined["rows"]] == [0.02] * 2 + [None] * 230


def test_a_run_is_described_from_its_first_to_its_last_checkpoint():
    values = {"nc1.cdnv": [0.1, 0.5], "nc3.self_duality": [0.1, 0.9], "nc4.agreement": [0.5, 0.5]}
    models = ["run/checkpoint-3000", "run/checkpoint-20"]
    said = findings(pd.DataFrame({"model": models, "classes": 9, "dim": 8, **values}), Associations({}))
    assert said[1].startswith("At full collapse, all embeddings before a token are equal to their class mean")
    assert said[2:4] == [
        "From step 20 to 3,000, these moved nearer to 0, the value at full collapse: nc1.cdnv (0.5000 → 0.1000).",
        "From step 20 to 3,000, these moved farther from 1, the value at full collapse: "
        "nc3.self_duality (0.9000 → 0.1000).",
    ]
