"""Results tables: writing, reading, and errors."""

import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collapse import CollapseError, Note, Results, Row
from collapse.stores.writing import write_atomic

SUFFIXES = [".csv", ".json", ".parquet"]
numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False)


def row(model: str = "m", **measurements: float | None) -> Row:
    return Row(
        model=model,
        revision=None,
        corpus="stories",
        store="abc",
        min_count=1,
        classes=5,
        dim=3,
        samples=50,
        measurements=measurements,
        versions=dict.fromkeys(measurements, 1),
        excluded={"nc1.cdnv": 2},
        notes=(Note("*", "note", "σ is read from the text"),),
    )


@settings(max_examples=20, deadline=None)
@given(tables=st.lists(st.fixed_dictionaries({"nc1.cdnv": numbers, "val_loss": numbers}), min_size=1, max_size=4))
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_written_is_read_back_to_the_last_bit(suffix, tables, tmp_path_factory):
    path = tmp_path_factory.mktemp("results") / f"table{suffix}"
    written = Results([row(f"{i:03}", **table) for i, table in enumerate(tables)])
    written.write(path)
    read = Results.read(path).frame()
    assert list(read.columns) == list(written.frame().columns)
    assert read["model"].tolist() == [f"{i:03}" for i in range(len(tables))]  # text, though it looks like a number
    for name in ("nc1.cdnv", "val_loss"):
        found = [None if value is None or value != value else float(value) for value in read[name]]
        assert found == [table[name] for table in tables]


def test_json_keeps_the_whole_row(tmp_path):
    rows = [row("a", val_loss=1.5), row("b", **{"nc1.log_cdnv": -math.inf})]
    Results(rows).write(tmp_path / "table.json")
    first, second = Results.read(tmp_path / "table.json").rows
    assert first == rows[0]
    assert second.measurements == {"nc1.log_cdnv": None}  # JSON has no infinity
    Results(rows).write(tmp_path / "table.csv")
    frame = Results.read(tmp_path / "table.csv").frame()
    assert frame["nc1.log_cdnv"].tolist()[1] == -math.inf
    assert frame["val_loss"].isna().tolist() == [False, True]
    assert json.loads(frame["versions"][0]) == {"val_loss": 1}


def test_whole_numbers_stay_whole_where_a_row_has_none(tmp_path):
    Results([replace(row("a"), chunk_length=32), row("b")]).write(tmp_path / "table.csv")
    assert ",32," in (tmp_path / "table.csv").read_text()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.xlsx", None, r"give a \.csv, \.json or \.parquet file"),
        ("absent.csv", None, "collapse measure … --output"),
        ("t.csv", b"", "No columns to parse from file"),
        ("t.csv", "a,b\n1,2\n".encode("utf-16"), "codec can't decode"),
        ("t.csv", b"model,val_loss\na,b,1.5\n", "a row has more values than the heading has columns"),
        ("t.parquet", b"\xff\xfe\x00bad\x00", "cannot be read as a"),
        ("t.json", b"", r"cannot be read as a \.json results table: "),
        *(("t.json", each, "it must be a list of rows") for each in (b"5", b"[[1, 2]]", b'{"model": "x"}')),
    ],
)
def test_a_file_that_is_something_else_is_refused(name, content, said, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(CollapseError, match=said):
        Results.read(tmp_path / name)


def test_rows_of_other_versions_are_read_and_those_of_a_later_schema_refused(tmp_path):
    made = row(val_loss=1.0)
    old = ("model", "revision", "corpus", "store", "min_count", "classes", "dim", "samples", "measurements")
    before = {name: value for name, value in made.to_dict().items() if name in old}
    notes = [{"measurement": "*", "kind": "k", "text": "t", "url": 1}]
    after = {**made.to_dict(), "notes": notes, "of_a_later_version": 1}
    (tmp_path / "r.json").write_text(json.dumps([before, after]))
    first, second = Results.read(tmp_path / "r.json").rows
    assert (first.corpus_id, first.measurements) == (None, made.measurements)
    assert second == replace(made, notes=(Note("*", "k", "t"),))
    for change, said in (
        ({"notes": [["a"]]}, "cannot be read"),
        ({"schema": 2}, "this version of collapse reads 1: run"),
    ):
        (tmp_path / "r.json").write_text(json.dumps([made.to_dict() | change]))
        with pytest.raises(CollapseError, match=said):
            Results.read(tmp_path / "r.json")


def test_a_file_that_several_write_at_once_is_always_whole(tmp_path):
    contents = [bytes([65 + i]) * (1000 * i + 1) for i in range(4)]
    tables = [Results([row(name, val_loss=1.0)] * 20) for name in "abcd"]
    with ThreadPoolExecutor(4) as several:
        list(several.map(lambda i: write_atomic(tmp_path / "file", contents[i % 4], shared=True), range(80)))
        list(several.map(lambda i: tables[i % 4].write(tmp_path / "table.csv"), range(40)))
    assert (tmp_path / "file").read_bytes() in contents
    assert len(set(Results.read(tmp_path / "table.csv").frame()["model"])) == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "table.csv"]
