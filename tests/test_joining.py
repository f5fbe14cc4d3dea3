"""collapse results: joined tables, added columns, formats, names of tables and of models."""

import json
from dataclasses import replace

import pandas as pd
import pytest

import collapse
from collapse import Results, Row, join
from collapse.errors import UsageError
from collapse.measurement.model_names import with_parts
from collapse.measurement.results import file_of


def row(name, loss):
    return Row(name, None, "text", f"{name}{loss}", 1, 9, 4, 99, {"val_loss": loss, "nc4.agreement": loss / 9})


@pytest.fixture
def files(tmp_path):
    Results([row("2x8_01", 1.5), row("2x8_01L", 1.25)]).write(tmp_path / "a.csv")
    Results([row("4x8_01", 1.0)]).write(tmp_path / "b.json")
    return tmp_path


def test_rows_of_several_files_are_one_table(out, files):
    added = ("--set", "seed=3", "--set", "text=a b")
    out("results", files / "a.csv", files / "b.json", *added, "--output", files / "c.csv")
    frame = Results.read(files / "c.csv").frame()
    assert frame["model"].tolist() == ["2x8_01", "2x8_01L", "4x8_01"]
    assert frame["val_loss"].tolist() == [1.5, 1.25, 1.0]
    assert (frame["seed"].tolist(), frame["text"].unique().tolist()) == ([3, 3, 3], ["a b"])


def test_rows_with_notes_keep_them(files):
    noted = Row("m", None, "", "s", 1, 9, 4, 99, {"x": 1.0}, notes=(collapse.Note("x", "remark", "why"),))
    assert join([Results([noted]), files / "b.json"], where="model=m").rows == [noted]


def test_what_is_shown(out, files, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = out("results", files / "a.csv", "--where", "decay=0.1", "--parts", "--columns", "val_loss,width,recipe")
    assert shown.splitlines()[0] == "1 row"
    assert shown.splitlines()[-1].split() == ["2x8_01L", "1.250", "8", "1L@0"]
    words = ("results", files / "a.csv", "--columns", "val_loss")
    assert out(*words, "--format", "csv").splitlines() == ["model,val_loss", "2x8_01,1.5", "2x8_01L,1.25"]
    assert json.loads(out(*words, "--json"))[0] == {"model": "2x8_01", "val_loss": 1.5}
    assert "corpus" in out("results", files / "a.csv", "--format", "csv").splitlines()[0]
    paper = out("results", "paper", "--where", "width=64")
    assert paper.startswith("35 rows")
    assert max(len(line.rstrip()) for line in paper.splitlines()) <= 80


def test_rows_of_one_store_are_told_apart_by_their_limit(out, tmp_path):
    Results([replace(row("a", 1.5), min_count=least) for least in (1, 10)]).write(tmp_path / "a.json")
    heading, _, *rows = out("results", tmp_path / "a.json", "--format", "markdown").splitlines()[2:]
    assert heading.startswith("| model | min_count | val_loss |")
    assert [each[:9].split() for each in rows] == [["|", "a", "|", "1", "|"], ["|", "a", "|", "10"]]
    assert "min_count" not in out("results", tmp_path / "a.json", "--where", "min_count=1")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["papr"], 2, "papr is not a results file: give a .csv, .json or .parquet file, or one of the names paper"),
        (["absent.csv"], 1, "there is no results file absent.csv"),
        (["a.csv", "--set", "seed"], 2, "--set must be NAME=VALUE, got 'seed'"),
        (["a.csv", "--set", "dim=3"], 2, "--set dim=3: the table already has this column"),
        (["a.csv", "--where", "wdith=8"], 2, "no column is called 'wdith' (--where); did you mean width"),
        (["a.csv", "--columns", "val_los"], 2, "no column is called 'val_los' (--columns); did you mean val_loss"),
    ],
)
def test_bad_input(told, files, monkeypatch, words, code, said):
    monkeypatch.chdir(files)
    assert said in told(code, "results", *words)
    if len(words) == 1:
        assert said in told(code, "analyze", "correlation", *words)


def test_a_file_does_not_hide_a_named_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "paper").write_text("mine")
    assert len(Results.read("paper")) == 230
    assert file_of(tmp_path / "paper") == tmp_path / "paper"
    with pytest.raises(UsageError, match="paper is not a results file"):
        Results.read(tmp_path / "paper")


def test_names_of_models_are_columns_and_those_of_the_table_stay():
    made = with_parts(pd.DataFrame({"model": ["TinyStories-12x1024_10L@5", "2x8_01d07i03@0", "gpt2", "12x1024_10q"]}))
    assert made["epochs"].tolist()[:2] == [10, 1]
    assert made["seed"].isna().tolist() == [True, False, True, True]
    assert made["init_seed"].tolist()[1] == 3
    assert made["architecture"].isna().tolist() == [False, False, True, True]
    assert with_parts(pd.DataFrame({"model": ["2x8_01"], "width": [7]}))["width"].tolist() == [7]
    # without a recipe, rows of different steps must not be mixed: no width
    assert with_parts(pd.DataFrame({"model": ["2x8_10L/checkpoint-25"]})).columns.tolist() == ["model", "step"]


def test_a_hook_of_a_plugin_file_gives_a_table_and_names(run, tmp_path):
    (tmp_path / "t.csv").write_text("model,val_loss,x\n" + "".join(f"m-{i},{i}.5,{i * i}\n" for i in range(5)))
    (tmp_path / "mine.py").write_text(
        "from pathlib import Path\nfrom collapse import hookimpl\n\n@hookimpl\ndef collapse_results():\n"
        "    return {'mine': Path(__file__).with_name('t.csv')}\n\n@hookimpl\ndef collapse_model_parts(model):\n"
        "    return {'number': int(model[2:])} if model.startswith('m-') else None\n"
    )
    words = ["-p", "mine.py", "analyze", "correlation", "mine", "--columns", "x,number", "--json"]
    found = json.loads(run(*words, cwd=tmp_path).stdout)["rows"]
    assert {record["column"]: round(record["r"], 6) for record in found}["number"] == 1


def test_plain_numbers_are_numbers_and_anything_else_is_text(out, files):
    texts = ["007", "1_000", "nan", "true", "+1", ".5"]
    numbers = {"0": 0, "-12": -12, "123456789012345678": 123456789012345678, "-0.5e3": -500.0}
    added = [word for at, text in enumerate([*texts, *numbers]) for word in ("--set", f"x{at}={text}")]
    out("results", files / "a.csv", *added, "--output", files / "made.json")
    frame = Results.read(files / "made.json").frame()
    assert [frame[f"x{at}"][0] for at in range(len(texts) + len(numbers))] == [*texts, *numbers.values()]


def test_whole_numbers_stay_whole_beside_missing_ones(out, files):
    (files / "a.csv").write_text("model,seed,count\na,3,2\n")
    (files / "b.csv").write_text("model,val_loss\nb,1.5\n")
    out("results", files / "a.csv", files / "b.csv", "--output", files / "made.csv")
    assert (files / "made.csv").read_text() == "model,seed,count,val_loss\na,3,2,\nb,,,1.5\n"


def test_rows_keep_their_nulls_beside_tables_without_rows(files):
    nulled = replace(row("m", 2.0), nulls={"shuffled": {"nc4.agreement": 0.1}})
    Results([nulled]).write(files / "null.json")
    for paths in (["null.json", "a.csv"], ["a.csv", "null.json", "a.csv"]):
        made = join([files / each for each in paths])
        assert made.rows == [nulled]
        assert len(made) == 2 * len(paths) - 1
        (saved,) = collapse.save_figures([files / each for each in paths], files / "out", names="nulls", formats="csv")
        assert saved.notes == ("not drawn: 2 rows without null baselines",)
