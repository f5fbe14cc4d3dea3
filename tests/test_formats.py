"""--format and --output of every command that prints a table, and words that belong to every command."""

import csv
import io
import json
import shutil

import pytest
from safetensors.torch import save_file

import collapse
from collapse.testing import random_features

FORMATS = ("table", "markdown", "latex", "csv", "json")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Four models, their stores, and a table of them."""
    folder = tmp_path_factory.mktemp("prepared")
    rows = []
    for seed in range(4):
        path = folder / f"model_{seed}.safetensors"
        save_file(random_features(10, 8, 120, seed=seed), path)
        rows.append(collapse.measure(collapse.collect(path, store=folder / f"store_{seed}")))
    collapse.Results(rows).write(folder / "results.csv")
    return folder


@pytest.fixture
def measured(prepared, tmp_path):
    """A copy of them, and the commands that print tables."""
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    stores = [str(tmp_path / f"store_{seed}") for seed in range(4)]
    return {
        "measure": ["measure", tmp_path / "model_0.safetensors", tmp_path / "model_1.safetensors"],
        "compare": ["compare", *stores[:2], "--metrics", "nc2"],
        "metrics": ["metrics", "nc2"],
        "analyze": ["analyze", "permutation", tmp_path / "results.csv", "--columns", "nc1,nc3.dot"],
        "zoo list": ["zoo", "list", "--published", "--width", 64, "--metrics", "val_loss"],
    }


def others(words):
    """The same command for other rows, and where it can be, other columns."""
    changed = {"nc2": "nc1", "nc1,nc3.dot": "nc3.dot", 64: 128, "val_loss": "val_loss,nc1"}
    return [changed.get(word, word) for word in words]


@pytest.mark.parametrize("name", ["measure", "compare", "metrics", "analyze", "zoo list"])
def test_each_format_holds_the_same(out, measured, tmp_path, name):
    words = measured[name]
    shown = {format_: out(*words, "--format", format_) for format_ in FORMATS}
    assert out(*words) == shown["table"]
    assert out(*words, "--json") == shown["json"]
    data = json.loads(shown["json"])
    records = data["rows"] if isinstance(data, dict) else data
    assert len(list(csv.DictReader(io.StringIO(shown["csv"])))) == len(records)
    assert shown["markdown"].count("\n| ") >= 2
    assert shown["latex"].count(r"\\") >= 2
    for suffix, format_ in ((".md", "markdown"), (".tex", "latex"), (".csv", "csv"), (".json", "json")):
        file = tmp_path / f"made{suffix}"
        for each in (others(words), words):  # what is there is replaced by its like, of other rows too
            out(*each, "--output", file)
        if suffix in (".md", ".tex"):
            mark, _, text = file.read_text().partition("\n")
            assert "a table of collapse" in mark
            assert text.rstrip("\n") == shown[format_].rstrip("\n")
        elif name != "measure":
            assert file.read_text().rstrip("\n") == shown[format_].rstrip("\n")


@pytest.mark.parametrize("name", ["measure", "compare", "metrics", "analyze", "zoo list"])
def test_a_file_that_was_written_is_confirmed_in_one_line(run, measured, tmp_path, name):
    said = run(*measured[name], "--output", tmp_path / "made.csv").stderr
    assert [line for line in said.splitlines() if f"written to {tmp_path}/made.csv" in line] == said.splitlines()[-1:]


def test_options_that_name_two_formats_are_refused(told, out, measured):
    words = measured["metrics"]
    assert "--format csv" in told(2, *words, "--json", "--format", "csv")
    assert "--format table" in told(2, *words, "--format", "table", "--json")
    assert out(*words, "--json", "--format", "json") == out(*words, "--json")


def test_only_its_like_is_replaced(run, measured, tmp_path):
    mine = tmp_path / "mine.md"
    mine.write_text("# my notes\n")
    for name in ("metrics", "analyze"):
        refused = run(*measured[name], "--output", mine, ok=False)
        assert refused.returncode == 2
        assert f"{mine} exists and was not written by this command" in refused.stderr
        assert "must end in" in run(*measured[name], "--output", tmp_path / "a.xlsx", ok=False).stderr
    assert mine.read_text() == "# my notes\n"


@pytest.mark.parametrize("name", ["metrics", "analyze", "measure"])
def test_an_output_that_cannot_be_is_refused_before_any_work(run, measured, tmp_path, name):
    theirs = tmp_path / "theirs.csv"
    theirs.write_text("a,b\n1,2\n")
    missing = tmp_path / "missing" / "a.csv"
    outputs = {missing: f"there is no folder {missing.parent}: make it", "/proc/a.csv": "cannot write /proc/a.csv: No"}
    if name != "analyze":  # whose first column is known after the analysis only
        outputs[theirs] = "choose another --output"
    if name != "measure":
        outputs[tmp_path / "results.csv"] = "was not written by this command"
    for output, said in outputs.items():
        refused = run(*measured[name], "--output", output, ok=False)
        assert (refused.returncode, refused.stdout) == (2, ""), output
        assert said in refused.stderr
        assert "run the same command" not in refused.stderr
    assert theirs.read_text() == "a,b\n1,2\n"


@pytest.mark.parametrize("name", ["metrics", "measure"])
def test_suffixes_may_be_upper_case(run, measured, tmp_path, name):
    for suffix in (".CSV", ".Json", ".TEX"):
        run(*measured[name], "--output", tmp_path / f"out{suffix}")
        assert (tmp_path / f"out{suffix}").read_text()
    if name == "measure":
        assert len(collapse.Results.read(tmp_path / "out.CSV")) == 2


def test_measure_prints_the_headlines_or_what_is_asked_for(out, measured):
    def names(*words):
        lines = [line for line in out(*words, "--format", "markdown").splitlines() if line.startswith("| ")]
        return {line.split("|")[2].strip() for line in lines[2:]}

    words = measured["measure"]
    few, every = names(*words), names(*words, "--all")
    assert {"nc1.cdnv", "nc2.equinormness", "unc3.uniform_duality"} <= few < every
    assert "more measurements" not in out(*words, "--all")
    assert names(*words, "--metrics", "NC3") == {name for name in every if name.startswith("nc3.")}


def test_measure_keeps_its_headings_and_notes_in_every_format_for_people(out, measured, tmp_path):
    models = [collapse.collect(each, store=tmp_path / each.stem) for each in measured["measure"][1:]]
    words = ["measure", *(each.path for each in models), "--metrics", "nc3.self_duality,nc1.cdnv"]
    table = out(*words)
    headings = [line for line in table.splitlines() if " classes, d = 8, N = 120 samples" in line]
    assert len(headings) == 2
    for suffix, format_ in ((".md", "markdown"), (".tex", "latex")):
        shown = out(*words, "--format", format_, "--output", tmp_path / f"made{suffix}")
        for heading in headings:
            assert heading.split(": ")[1] in shown
        assert (tmp_path / f"made{suffix}").read_text().endswith(shown)


def test_words_of_every_command_may_follow_it(run, tmp_path):
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        'from collapse import metric\n\n@metric(\'mine.one\')\ndef one(means):\n    """One."""\n    return 1.0\n'
    )
    for words in (["-p", plugin, "metrics", "mine"], ["metrics", "mine", "-p", plugin], ["metrics", "-p", plugin]):
        assert "mine.one" in run(*words).stdout


def test_errors_begin_alike(run):
    for words in (["measur"], ["measure", "--metrics"], ["metrics", "nc9"], ["measure", "no/such/model"]):
        refused = run(*words, ok=False)
        assert [line for line in refused.stderr.splitlines() if line.startswith("collapse: ")], refused.stderr


def test_notebooks_show_rows_results_and_tables(measured, tmp_path):
    results = collapse.Results.read(tmp_path / "results.csv")
    assert len(results) == len(list(results)) == 4
    assert results[0]["model"] == "model_0"
    row = collapse.measure(collapse.collect(tmp_path / "model_0.safetensors"), metrics="nc1,nc2.norm")
    assert row["nc2.norm"] == row.measurements["nc2.norm"]
    table = collapse.permutation(results, columns="nc1")
    assert list(table.frame()["column"]) == [each["column"] for each in table.records()]
    for each in (row, results, table):
        assert len(repr(each)) < 300
        assert "<table" in each._repr_html_()


def test_a_folder_is_measured_and_other_things_are_refused(tmp_path):
    store = collapse.collect_arrays([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [0, 1, 1], [[1.0, 0.0], [0.0, 1.0]])
    store.save(tmp_path / "s")
    assert collapse.measure(tmp_path / "s").measurements == collapse.measure(store).measurements
    ids, _ = collapse.vectors(str(tmp_path / "s"), "counts")
    assert ids.tolist() == [0, 1]


@pytest.mark.parametrize("call", ["None", "3", "'no/store'", "store, min_count='x'", "store, metrics='nc9'"])
def test_wrong_arguments_are_refused_in_a_line(run_python, call):
    program = f"""
import collapse
store = collapse.collect_arrays([[0.0, 1.0], [1.0, 0.0]], [0, 1], [[1.0, 0.0], [0.0, 1.0]])
try:
    collapse.measure({call})
except collapse.CollapseError as error:
    print(error)
"""
    done = run_python(program)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1), done.stderr


def test_a_mistyped_path_is_not_looked_for_on_the_hub(hub, as_user, tmp_path):
    (tmp_path / "runs" / "mymodel").mkdir(parents=True)
    hub.requests.clear()
    refused = as_user("measure", "runs/mymodle", ok=False, cwd=tmp_path)
    assert (refused.returncode, hub.requests) == (2, [])
    assert "there is no folder runs/mymodle; did you mean runs/mymodel?" in refused.stderr
    assert "runs/mymodle@main" in refused.stderr


def test_latex_keeps_a_dollar_that_is_written():
    from collapse.measurement.table import Table

    made = Table("", ["a", "b"], [["$μ", "x$<y"], ["-1.5 to -0.5", "‖u‖⁻¹"]]).latex()
    assert r"\$$\mu$ & x\$$<$y" in made
    assert r"$-$1.5 to $-$0.5 & $\|$u$\|^{-1}$" in made


def test_latex_takes_no_cell_for_an_argument():
    from collapse.measurement.table import Table

    made = Table("", ["[a]", "b"], [["*x|y", "[1]"], ["[0,1]", "z"]]).latex()
    assert "{[}a] & b" in made
    assert r"{*}x\textbar{}y & [1] \\" in made
    assert "\n{[}0,1] & z" in made


def test_latex_writes_the_symbols_of_equations():
    from collapse.measurement.table import Table

    equation = "mean σ̃_c² / √d · ‖μ_c′ − μ̄‖ of ñ_c, val_loss and Σ_W"
    made = Table("", ["name", "equation"], [["n_c", equation]]).latex()
    assert r"n\_c & mean $\tilde{\sigma}_{c}^{2}$ / $\surd d$ $\cdot$ $\|\mu_{c'}$ $-$ $\bar{\mu}\|$ of " in made
    assert r"of $\tilde{n}_{c}$, val\_loss and $\Sigma_{W}$ \\" in made


def test_texts_are_aligned_left_and_numbers_right():
    from collapse.measurement.table import Table

    table = Table(
        "", ["name", "property", "value", "interval"], [["a", "NC1", 1.5, "0.1 to 0.2"], ["b", "", None, "–"]]
    )
    assert "| :--- | :--- | ---: | ---: |" in table.markdown()
    assert r"\begin{tabular}{llrr}" in table.latex()
    assert '<td style="text-align: left">NC1</td>' in table.html()


def test_a_printed_table_shows_its_numbers(tmp_path):
    table = collapse.Table("title", ["name", "value"], [["a", 1.5]], notes=["a note"])
    assert "| a | 1.500 |" in str(table)
    assert repr(table).startswith("Table('title', 1 row")
    row = collapse.Row("m", None, "text", "", 1, 9, 4, 99, {"nc1.cdnv": 0.5})
    assert str(row) == "m on text: C = 9, d = 4, N = 99\n  nc1.cdnv  0.5000"
    assert "0.5" in str(collapse.Results([row]))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "No columns to parse from file"),
        ("a,b\n1,2\n".encode("utf-16"), "it is not UTF-8: save it as UTF-8"),
        (b"a;b\n1;2\n", "its values are separated by semicolons: save it with commas"),
    ],
)
def test_a_csv_of_another_kind_is_refused_with_advice(data, said, tmp_path):
    (tmp_path / "theirs.csv").write_bytes(data)
    with pytest.raises(collapse.CollapseError, match=said):
        collapse.Results.read(tmp_path / "theirs.csv")


def test_a_goal_that_the_table_lacks_is_named_by_an_option(tmp_path):
    (tmp_path / "theirs.csv").write_text("a,b\n1,2\n2,3\n3,5\n")
    with pytest.raises(collapse.CollapseError, match=r"no column is called 'val_loss'; known: a, b"):
        collapse.analyze("permutation", tmp_path / "theirs.csv")
    with pytest.raises(collapse.CollapseError, match=r"^--n must be at least 1, not 0$"):
        collapse.analyze("permutation", tmp_path / "theirs.csv", n=0)
    (tmp_path / "one.csv").write_text("val_loss,nc1.cdnv\n1,2\n")
    with pytest.raises(collapse.CollapseError, match=r"^only 1 row to compare: at least 3 are needed"):
        collapse.analyze("permutation", tmp_path / "one.csv")


def test_the_nearest_option_is_suggested_first(run, tmp_path):
    said = run("measure", tmp_path, "--metric", "nc1", ok=False).stderr
    assert "Did you mean --metrics?" in said  # not --device


def test_unknown_names_list_a_few(run):
    said = run("metrics", "foo", ok=False).stderr.splitlines()[-1]
    assert said.count(",") <= 12
    assert "(see all with: collapse metrics)" in said


def test_a_vector_of_a_prefix_names_its_measurements(tmp_path):
    save_file(random_features(10, 8, 120, seed=0), tmp_path / "f.safetensors")
    store = collapse.collect(tmp_path / "f.safetensors", store=tmp_path / "store")
    with pytest.raises(collapse.CollapseError, match=r"nc1 is a prefix of several: name one .*nc1\.cdnv"):
        collapse.vectors(store, "nc1")
