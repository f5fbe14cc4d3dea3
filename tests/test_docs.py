"""The docs match the code: generated pages are current, nothing is missing, examples run."""

import json
import re
import subprocess
import sys
from pathlib import Path

import collapse
from collapse.plugin.plugin_manager import plugins

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = "".join((DOCS / page).read_text("utf-8") for page in ("guides/plugins.md", "reference/plugin-reference.md"))
EXAMPLES = dict(re.findall(r'```\w+ title="(\S+)"\n(.*?)```', PAGES, re.DOTALL))


def test_generated_pages_are_current():
    command = [sys.executable, DOCS / "generate.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_on_the_page():
    own = {name: getattr(getattr(collapse, name), "__name__", name) for name in collapse.__all__}
    listed = re.findall(r"^::: collapse\.(\w+)$", (DOCS / "reference/python.md").read_text("utf-8"), re.M)
    assert sorted(listed) == sorted(name for name in own if own[name] == name)  # no aliases


def test_pages_name_the_measurements_that_are_there():
    known = {*plugins().measurements(), "nc4.grouped_kappa"}  # of collapse_metrics.kappa_groups, which -p loads
    said = {page: set(re.findall(r"`([a-z0-9_.]+)`", page.read_text("utf-8"))) for page in DOCS.rglob("*.md")}
    for page, names in said.items():
        assert sorted(each for each in names - known if re.match(r"(nc[1-4]|gnc2|unc3|geometry)\.", each)) == [], page
    defined = said[DOCS / "concepts" / "definitions.md"] | said[DOCS / "concepts" / "geometry.md"]
    for names in (defined, said[DOCS / "reference" / "metrics.md"]):
        assert sorted(set(plugins().measurements()) - names) == []


def test_the_ten_line_plugin_has_ten_lines_and_runs(tmp_path, run):
    code = EXAMPLES["mean_count.py"]
    assert len([line for line in code.splitlines() if line]) <= 10
    (tmp_path / "mean_count.py").write_text(code, "utf-8")
    listed = json.loads(run("-p", tmp_path / "mean_count.py", "metrics", "mine", "--json").stdout)
    assert [(each["name"], each["of"]) for each in listed] == [("mine.mean_count", "Mean number of samples per class.")]


def test_the_analysis_remarks_on_rows_that_differ(run, tmp_path):
    (tmp_path / "spread.py").write_text(EXAMPLES["spread.py"], "utf-8")
    (tmp_path / "r.csv").write_text("model,val_loss,dtype\na,1.5,float32\nb,2.5,bfloat16\n", "utf-8")
    table = json.loads(run("-p", tmp_path / "spread.py", "analyze", "spread", tmp_path / "r.csv", "--json").stdout)
    assert table["rows"] == [{"smallest": 1.5, "largest": 2.5}]
    assert table["notes"] == ["rows of different dtypes are mixed: float32 (1 row), bfloat16 (1 row)"]


def test_the_figure_is_drawn(run, tmp_path):
    (tmp_path / "sizes.py").write_text(EXAMPLES["sizes.py"], "utf-8")
    (tmp_path / "r.csv").write_text("model,dim,classes\na,8,50\nb,16,50\n", "utf-8")
    run("-p", tmp_path / "sizes.py", "figures", tmp_path / "r.csv", "--out", tmp_path, "--format", "csv")
    assert (tmp_path / "sizes.csv").is_file()


def test_the_tests_of_the_example_plugin_pass(tmp_path):
    names = ("mine.py", "pyproject.toml", "test_mine.py")
    for name in names:
        (tmp_path / name).write_text(EXAMPLES[name], "utf-8")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, names[2]]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
