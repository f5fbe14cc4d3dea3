"""A row's identity and names, and remarks on mixed rows."""

import shutil
from dataclasses import replace

import pytest
from safetensors.torch import load_file, save_file

import collapse
from collapse import Results
from collapse.measurement.rows import ABOUT
from collapse.plugin.parameter_names import COLUMNS
from collapse.plugin.plugin_manager import plugins


def test_a_row_is_printed_as_its_headlines_in_a_few_lines(stored):
    row = collapse.measure(stored)
    title, _, _, _, *lines, _, more = str(row).splitlines()
    assert repr(row).startswith(f"Row({title.strip('*')}; ")
    assert [line.split()[1] for line in lines] == [n for n in plugins().headlines() if n in row.measurements]
    assert more.endswith("more measurements: row.measurements")
    assert any(line.split()[1] == "val_loss" and line.split()[5] != "|" for line in lines)
    assert {*ABOUT, *row.to_dict()} == COLUMNS  # no measurement may be called so
    with pytest.raises(KeyError, match=r"nc3\.self_dualty was not measured; did you mean nc3\.self_duality"):
        row["nc3.self_dualty"]
    assert dict(row) == row.measurements
    assert list(row) == list(row.keys())
    assert "nc3.self_duality" in row
    assert row.get("nc3.self_dualty") is None
    assert collapse.Results(row).rows == [row]


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
    again = collapse.collect(other, max_chunks=9, **{**tiny.options(), "text": str(text)})
    assert again.path == first.path
    row = collapse.measure(again, metrics=["nc3"])
    assert (row.model, row.corpus, row.validation) == ("another", "other.jsonl", "validation.jsonl")
    assert row.store == first.digest


def test_a_table_says_what_it_mixes(out, stored, tiny, tmp_path):
    other = tmp_path / "other"
    collapse.collect(tiny.model, store=other, text=str(tiny.validation), chunk_length=16, max_chunks=30)
    text = out("measure", stored.path, other, "--metrics", "nc2")
    assert "rows of different training texts are mixed: text.jsonl " in text
    assert "rows of different chunk lengths are mixed: 32 (1 row), 16 (1 row)" in text
    assert "mixed" not in out("measure", stored.path, stored.path, "--metrics", "nc2")


@pytest.mark.parametrize("suffix", [".csv", ".json", ".parquet"])
def test_identity_is_read_back(stored, suffix, tmp_path):
    measured = collapse.measure(stored, metrics=["nc3.self_duality"])
    rows = [measured, replace(measured, max_chunks=None, validation=None, validation_id=None, model="NA", step=1000)]
    Results(rows).write(tmp_path / f"r{suffix}")
    read, written = Results.read(tmp_path / f"r{suffix}").frame(), Results(rows).frame()
    assert list(read.columns) == list(written.columns)
    assert read["max_chunks"].tolist()[0] == 24
    assert read["max_chunks"].isna().tolist() == read["validation"].isna().tolist() == [False, True]
    for name in ("chunk_length", "dtype", "weights", "corpus_id", "model"):
        assert read[name].tolist() == written[name].tolist(), name
    if suffix == ".json":
        assert Results.read(tmp_path / "r.json").rows == rows
