"""What a row says it is of: identity, names that differ, remarks on mixtures, and names that were asked for."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

import collapse
from collapse import Results, Row
from collapse.measurement.comparing import mixed
from collapse.measurement.rows import ABOUT
from collapse.plugin.names import COLUMNS
from collapse.plugin.plugin_manager import plugins
from collapse.testing import random_features


@pytest.fixture(scope="module")
def stored(tiny, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("rows") / "store"
    collapse.collect(tiny.model, store=folder, max_chunks=24, **tiny.options())
    return folder


@pytest.fixture(scope="module")
def measured(stored) -> Row:
    return collapse.measure(collapse.load(stored), metrics=["nc3.self_duality"])


def test_a_row_is_printed_as_its_headlines_in_a_few_lines(stored):
    row = collapse.measure(collapse.load(stored))
    first, *lines = str(row).splitlines()
    assert repr(row).startswith(f"Row({first}; ")
    assert [line.split()[0] for line in lines[:-1]] == [n for n in plugins().headlines() if n in row.measurements]
    assert lines[-1].endswith("more measurements: row.measurements")
    assert any(line.split()[0] == "val_loss" and " ± " in line for line in lines)
    assert str(collapse.measure(collapse.load(stored), metrics="nc2.norm")).splitlines()[1].startswith("  nc2.norm  ")


def test_what_was_not_measured_is_a_key_error_in_words(measured):
    with pytest.raises(KeyError, match=r"nc3\.self_dualty was not measured; did you mean nc3\.self_duality"):
        measured["nc3.self_dualty"]
    with pytest.raises(KeyError, match=r"nc2\.norm was not measured; known: nc3\.self_duality"):
        measured["nc2.norm"]


def test_a_row_says_what_it_is_of(stored, measured):
    identity = collapse.load(stored).identity
    assert measured.corpus == "text.jsonl"
    assert measured.validation == "validation.jsonl"
    assert (measured.chunk_length, measured.max_chunks, measured.dtype) == (32, 24, "float32")
    assert (measured.weights, measured.tokenizer) == (identity["weights"], identity["tokenizer"])
    assert measured.origin is None
    assert len(measured.corpus_id) == len(measured.validation_id) == 64
    assert measured.corpus_id != measured.validation_id


def test_rows_of_models_of_one_name_differ(tiny, tmp_path):
    folders = [tmp_path / run / "checkpoints" / "checkpoint-25" for run in "ab"]
    for scale, folder in enumerate(folders, 1):
        shutil.copytree(tiny.model, folder)
        weights = load_file(folder / "model.safetensors")
        save_file(
            {name: scale * value for name, value in weights.items()}, folder / "model.safetensors", {"format": "pt"}
        )
    rows = [
        collapse.measure(collapse.collect(each, max_chunks=9, **tiny.options()), metrics=["nc3"]) for each in folders
    ]
    assert [row.model for row in rows] == ["a/checkpoint-25", "b/checkpoint-25"]
    assert rows[0].weights != rows[1].weights
    assert (rows[0].corpus_id, rows[0].tokenizer) == (rows[1].corpus_id, rows[1].tokenizer)


def test_a_store_in_the_cache_is_shown_under_the_names_asked_for(tiny, tmp_path):
    first = collapse.collect(tiny.model, max_chunks=9, **tiny.options())
    other = shutil.copytree(tiny.model, tmp_path / "another")
    text = shutil.copy(tiny.text, tmp_path / "other.jsonl")
    before = (first.path / "collapse.json").read_bytes()
    again = collapse.collect(other, max_chunks=9, **{**tiny.options(), "text": str(text)})
    assert again.path == first.path
    row = collapse.measure(again, metrics=["nc3"])
    assert (row.model, row.corpus, row.validation) == ("another", "other.jsonl", "validation.jsonl")
    assert row.store == first.digest
    assert (first.path / "collapse.json").read_bytes() == before


def test_equal_names_of_different_stores_are_told_apart(out, tmp_path):
    for seed, folder in enumerate("ab"):
        (tmp_path / folder).mkdir()
        save_file(random_features(10, 8, 120, seed=seed), tmp_path / folder / "f.safetensors")
    paths = [tmp_path / folder / "f.safetensors" for folder in "ab"]
    text = out("measure", *paths, "--metrics", "nc2")
    for path in paths:
        assert f"f ({collapse.collect(path).digest[:12]})" in text
    once = out("measure", paths[0], "--metrics", "nc2")
    assert "f on f.safetensors:" in once


def test_a_table_says_what_it_mixes(out, run, stored, tiny, tmp_path):
    other = tmp_path / "other"
    collapse.collect(tiny.model, store=other, text=str(tiny.validation), chunk_length=16, max_chunks=30)
    text = out("measure", stored, other, "--metrics", "nc2")
    assert "rows of different training texts are mixed: text.jsonl " in text
    assert "rows of different chunk lengths are mixed: 32 (1 row), 16 (1 row)" in text
    assert "rows of different limits of --max-chunks are mixed: 24 (1 row), 30 (1 row)" in text
    assert "mixed" not in out("measure", stored, stored, "--metrics", "nc2")
    done = run("measure", stored, other, "--metrics", "nc2", "--json")
    assert len(json.loads(done.stdout)) == 2
    assert "rows of different chunk lengths are mixed" in done.stderr


@pytest.mark.parametrize("suffix", [".csv", ".json", ".parquet"])
def test_an_analysis_says_what_it_mixes(measured, suffix, tmp_path):
    def rows(**changed: object) -> list[Row]:
        made = [replace(measured, measurements={"val_loss": x, "nc1.cdnv": x**2}) for x in (1.0, 2.0, 3.5)]
        return [made[0], replace(made[1], **changed), made[2]]

    def notes(**changed: object) -> list[str]:
        Results(rows(**changed)).write(tmp_path / f"r{suffix}")
        table = plugins().analysis("permutation")(Results.read(tmp_path / f"r{suffix}"))
        return [note for note in table.notes if "mixed" in note]

    assert notes() == []
    assert notes(model="b", store="c", weights="d") == []
    assert notes(min_count=10) == ["rows of different limits of --min-count are mixed: 1 (2 rows), 10 (1 row)"]
    assert notes(max_chunks=None) == ["rows of different limits of --max-chunks are mixed: 24 (2 rows), none (1 row)"]
    assert notes(dtype="bfloat16") == ["rows of different dtypes are mixed: float32 (2 rows), bfloat16 (1 row)"]
    (said,) = notes(validation_id="0" * 64, validation="new.jsonl")
    assert said.startswith("rows of different validation texts are mixed: validation.jsonl ")
    assert "new.jsonl 000000000000 (1 row)" in said


def test_only_the_rows_that_are_tested_are_compared(measured):
    rows = [replace(measured, model=f"m{x}", measurements={"val_loss": x, "nc1.cdnv": x**2}) for x in (1.0, 2.0, 3.5)]
    results = Results([*rows, replace(rows[0], model="other", dtype="float16")])
    assert mixed(results) == ["rows of different dtypes are mixed: float32 (3 rows), float16 (1 row)"]
    table = plugins().analysis("permutation")(results, where=["model=m*"])
    assert not [note for note in table.notes if "mixed" in note]


@pytest.mark.parametrize("suffix", [".csv", ".json", ".parquet"])
def test_identity_is_read_back(measured, suffix, tmp_path):
    rows = [measured, replace(measured, max_chunks=None, validation=None, validation_id=None, model="NA")]
    Results(rows).write(tmp_path / f"r{suffix}")
    read, written = Results.read(tmp_path / f"r{suffix}").frame(), Results(rows).frame()
    assert list(read.columns) == list(written.columns)
    assert read["max_chunks"].tolist()[0] == 24
    assert read["max_chunks"].isna().tolist() == read["validation"].isna().tolist() == [False, True]
    for name in ("chunk_length", "dtype", "weights", "corpus_id", "model"):
        assert read[name].tolist() == written[name].tolist(), name


def test_rows_of_other_versions_are_read(measured, tmp_path):
    old = ("model", "revision", "corpus", "store", "min_count", "classes", "dim", "samples")
    old += ("measurements", "versions", "excluded", "notes")
    before = {name: value for name, value in measured.to_dict().items() if name in old}
    after = {**measured.to_dict(), "layer": "top", "notes": [{"measurement": "*", "kind": "k", "text": "t", "url": 1}]}
    (tmp_path / "r.json").write_text(json.dumps([before, after]))
    first, second = Results.read(tmp_path / "r.json")
    assert first.corpus_id is None
    assert first.measurements == measured.measurements
    assert second.corpus_id == measured.corpus_id
    assert second.notes == (collapse.Note("*", "k", "t"),)


def test_numbers_of_others_stay_numbers_whatever_their_columns_are_called(tmp_path):
    (tmp_path / "theirs.csv").write_text("model,validation,weights\na,1.5,10\nb,2.5,20\n")
    frame = Results.read(tmp_path / "theirs.csv").frame()
    assert frame["validation"].tolist() == [1.5, 2.5]
    assert frame["weights"].tolist() == [10, 20]


def test_no_measurement_may_be_called_as_a_column_or_a_key_of_a_row(measured):
    assert {*ABOUT, *measured.to_dict()} == COLUMNS


def test_a_row_has_a_layer_a_step_and_a_schema(measured, tmp_path):
    row = replace(measured, layer="block-3", step=1000)
    Results([row]).write(tmp_path / "r.json")
    (read,) = Results.read(tmp_path / "r.json").rows
    assert (read.layer, read.step, read.schema) == ("block-3", 1000, measured.schema)
    assert read == row


def test_a_reader_ignores_new_keys_and_refuses_a_newer_schema(measured, tmp_path):
    file = tmp_path / "r.json"
    Results([measured]).write(file)
    (content,) = json.loads(file.read_text())
    file.write_text(json.dumps([content | {"of_a_later_version": 1}]))
    assert Results.read(file).rows == [measured]
    for key, value, said in (
        ("schema", measured.schema + 1, f"it has schema {measured.schema + 1}"),
        ("schema", 0, "it has schema 0"),
    ):
        file.write_text(json.dumps([content | {key: value}]))
        with pytest.raises(collapse.CollapseError, match=said):
            Results.read(file)
