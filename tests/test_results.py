"""Rows and tables: written, read back, refused."""

import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from collapse import CollapseError, Note, Results, Row, Table
from collapse.errors import UsageError
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
def test_what_is_written_is_read_back_to_the_last_bit(
    suffix: str, tables: list[dict[str, float | None]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("results") / f"table{suffix}"
    written = Results([row(f"{i:03}", **table) for i, table in enumerate(tables)])
    written.write(path)
    read = Results.read(path).frame()
    assert list(read.columns) == list(written.frame().columns)
    assert read["model"].tolist() == [f"{i:03}" for i in range(len(tables))]  # text, though it looks like a number
    for name in ("nc1.cdnv", "val_loss"):
        found = [None if value is None or value != value else float(value) for value in read[name]]
        assert found == [table[name] for table in tables]


def test_a_table_is_of_what_json_holds():
    values = [np.int64(3), np.float32(0.5), float("nan"), np.array([1.0, np.inf]), torch.tensor(2), ("a", True), None]
    table = Table("t", [f"c{k}" for k in range(8)], [[*values, Path("x")]])
    assert table.records() == [
        dict(zip(table.columns, [3, 0.5, None, [1.0, None], 2, ["a", True], None, "x"], strict=True))
    ]
    json.dumps(table.records(), allow_nan=False)


def test_json_keeps_the_whole_row_and_iterates(tmp_path: Path) -> None:
    rows = [row("a", val_loss=1.5), row("b", val_loss=None)]
    Results(rows).write(tmp_path / "table.json")
    assert list(Results.read(tmp_path / "table.json")) == rows
    assert len(Results.read(tmp_path / "table.json")) == 2


def test_an_infinite_number_is_null_in_json_and_itself_in_csv(tmp_path: Path) -> None:
    table = Results([row(**{"nc1.log_cdnv": -math.inf, "val_loss": 1.0})])
    table.write(tmp_path / "table.json")
    table.write(tmp_path / "table.csv")
    made = json.loads((tmp_path / "table.json").read_text(encoding="utf-8"))
    assert made[0]["measurements"] == {"nc1.log_cdnv": None, "val_loss": 1.0}
    assert Results.read(tmp_path / "table.csv").frame()["nc1.log_cdnv"].tolist() == [-math.inf]


def test_rows_with_other_measurements_share_a_table() -> None:
    frame = Results([row("a", x=1.0), row("b", y=2.0)]).frame()
    assert frame["x"].isna().tolist() == [False, True]
    assert frame["y"].isna().tolist() == [True, False]
    assert json.loads(frame["versions"][1]) == {"y": 1}


def test_an_empty_table_has_its_columns() -> None:
    frame = Results([]).frame()
    assert len(frame) == 0
    assert "model" in frame
    assert "versions" in frame


def test_a_foreign_csv_is_a_table_without_rows_of_ours(tmp_path: Path) -> None:
    (tmp_path / "theirs.csv").write_text("model,val_loss\nx,1.25\n", encoding="utf-8")
    theirs = Results.read(tmp_path / "theirs.csv")
    assert theirs.frame()["val_loss"].tolist() == [1.25]
    assert len(theirs) == 1
    for name in ("ours.json", "ours.parquet"):
        theirs.write(tmp_path / name)
        assert Results.read(tmp_path / name).frame().equals(theirs.frame())
    assert Results.read(tmp_path / "ours.json").rows == []


@pytest.mark.parametrize("name", ["table.xlsx", "table", "table.csv.gz"])
def test_other_suffixes_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"must end in \.csv, \.json or \.parquet"):
        Results.read(tmp_path / name)
    with pytest.raises(UsageError, match=r"must end in"):
        Results([row()]).write(tmp_path / name)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_no_such_file_says_what_makes_one(suffix: str, tmp_path: Path) -> None:
    with pytest.raises(CollapseError, match="collapse measure … --output"):
        Results.read(tmp_path / f"absent{suffix}")


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00bad\x00", b'{"model": "x"}'])
def test_a_file_that_is_something_else_is_named(suffix: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"odd{suffix}"
    path.write_bytes(content)
    if suffix == ".csv" and content.startswith(b"{"):
        assert len(Results.read(path)) == 0  # one strange heading and no rows: the analysis says so
        return
    with pytest.raises(CollapseError, match=rf"odd\{suffix} cannot be read as a \{suffix} results table: \S"):
        Results.read(path)


@pytest.mark.parametrize("measurements", [None, [1.0], "text"])
def test_json_rows_without_measurements_are_refused(measurements: object, tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_text(json.dumps([row().to_dict() | {"measurements": measurements}]), encoding="utf-8")
    with pytest.raises(CollapseError, match="cannot be read"):
        Results.read(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "\ud800"}, "surrogates not allowed"),
        ({"measurements": {"x": [1]}}, r"'x' is \[1\], not a number"),
        ({"measurements": {"x": "1"}}, "'x' is '1', not a number"),
        ({"notes": [["a"]]}, r"\['a'\] is not a note"),
    ],
)
def test_a_json_row_of_another_shape_is_named(change: dict[str, object], message: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_text(json.dumps([row().to_dict(), row().to_dict() | change]), encoding="utf-8")
    with pytest.raises(CollapseError, match=message):
        Results.read(path)


@pytest.mark.parametrize("text", ["5", "null", "[[1, 2]]", "[{}]", "[" + "9" * 5000 + "]", "[" * 10**5])
def test_json_that_is_no_list_of_rows(text: str, tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text(text, encoding="utf-8")
    with pytest.raises(CollapseError, match=r"cannot be read as a \.json results table: "):
        Results.read(tmp_path / "odd.json")


def test_columns_of_lists_and_counts_that_are_none(tmp_path: Path) -> None:
    import pandas as pd

    pd.DataFrame({"model": ["a"], "val_loss": [[1.0]]}).to_parquet(tmp_path / "odd.parquet")
    with pytest.raises(CollapseError, match="column 'val_loss' holds ndarrays"):
        Results.read(tmp_path / "odd.parquet")
    for value in ("many", "1.5", "9" * 30):
        (tmp_path / "odd.csv").write_text(
            f"model,store,versions,max_chunks\na,b,c,{value}\nd,e,f,2\n", encoding="utf-8"
        )
        with pytest.raises(CollapseError, match=r"cannot be read as a \.csv results table"):
            Results.read(tmp_path / "odd.csv")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_place_that_cannot_be_written(suffix: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    (tmp_path / f"folder{suffix}").mkdir()
    for path in (tmp_path / "file" / f"table{suffix}", tmp_path / f"folder{suffix}"):
        with pytest.raises(CollapseError, match="cannot write"):
            Results([row(val_loss=1.0)]).write(path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", f"folder{suffix}"]  # nothing half-written


def test_a_file_that_several_write_at_once_is_always_whole(tmp_path: Path) -> None:
    contents = [bytes([65 + i]) * (1000 * i + 1) for i in range(4)]
    with ThreadPoolExecutor(4) as several:
        list(several.map(lambda i: write_atomic(tmp_path / "file", contents[i % 4], shared=True), range(80)))
    assert (tmp_path / "file").read_bytes() in contents
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_a_link_points_to_is_written_with_its_permissions(suffix: str, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    table, link = tmp_path / "there" / f"table{suffix}", tmp_path / f"link{suffix}"
    link.symlink_to(table)
    Results([row("a", val_loss=1.0)]).write(link)  # as yet it points to nothing
    table.chmod(0o640)
    Results([row("b", val_loss=1.0)]).write(link)
    assert link.is_symlink()
    assert list(Results.read(table).frame()["model"]) == ["b"]
    assert table.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in table.parent.iterdir()] == [table.name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_several_write_one_table_at_once(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"table{suffix}"
    tables = [Results([row(name, val_loss=1.0)] * 20) for name in "abcd"]
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(table.write, path) for _ in range(10) for table in tables]:
            done.result()
    assert len(set(Results.read(path).frame()["model"])) == 1
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_table_records() -> None:
    table = Table("title", ["column", "r"], [["a", 0.5], ["b", None]])
    assert table.records() == [{"column": "a", "r": 0.5}, {"column": "b", "r": None}]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_only_a_results_table_is_written_over(suffix, tmp_path):
    path = tmp_path / f"table{suffix}"
    path.touch()  # as mktemp leaves it
    for each in ("one", "two"):
        Results([row(each, val_loss=1.0)]).write(path)
    assert [row["model"] for row in Results.read(path).frame().to_dict("records")] == ["two"]
    pd.DataFrame({"text": ["a story"]}).to_parquet(tmp_path / "text.parquet")
    foreign = {".csv": b"name,score\nx,1\n", ".json": b'{"n_layer": 2}', ".parquet": None}[suffix]
    path.write_bytes(foreign or (tmp_path / "text.parquet").read_bytes())
    before = path.read_bytes()
    with pytest.raises(UsageError, match="exists and is not a results table of collapse: choose another --output"):
        Results([row(val_loss=1.0)]).write(path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.glob(".*")] == []


def test_rows_longer_than_the_heading_do_not_move_into_other_columns(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("model,b\nx,2,7\ny,4,7\n", encoding="utf-8")
    with pytest.raises(CollapseError, match="its rows have more values than the heading has names"):
        Results.read(path)
    path.write_text("model;b\nx;2\n", encoding="utf-8")
    with pytest.raises(CollapseError, match="separated by semicolons: save it with commas"):
        Results.read(path)
    path.write_text("model,b\n\nx,2\n\n", encoding="utf-8")  # blank lines are no rows
    assert Results.read(path).frame().to_dict("list") == {"model": ["x"], "b": [2]}
