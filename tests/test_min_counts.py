"""``collapse measure --min-count 1,10,100``: a column for each number, and a row for each in files."""

import csv
import io
import json

import pytest
from safetensors.torch import save_file

import collapse
from collapse.testing import random_features


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("counts")
    for seed, name in enumerate(("a", "b")):
        save_file(random_features(12, 6, 300, seed=seed), folder / f"{name}.safetensors")
        collapse.collect(folder / f"{name}.safetensors", store=folder / "stores" / name)
    return folder


def test_each_number_is_a_row_of_the_same_measurement_alone(out, folder):
    words = ("measure", folder / "stores" / "a", "--metrics", "nc1,nc2")
    rows = json.loads(out(*words, "--min-count", "1,20,24,20", "--json"))
    assert [row["min_count"] for row in rows] == [1, 20, 24]
    for row in rows:
        (alone,) = json.loads(out(*words, "--min-count", row["min_count"], "--json"))
        assert alone == row
    assert rows[0]["classes"] > rows[1]["classes"] > rows[2]["classes"]
    table = csv.DictReader(io.StringIO(out(*words, "--min-count", "1,20,24", "--format", "csv")))
    for line, row in zip(table, rows, strict=True):
        assert float(line["nc1.cdnv"]) == row["measurements"]["nc1.cdnv"]


@pytest.mark.parametrize(("wrong", "code"), [("1,0", 2), ("1,x", 2), ("", 2), ("1,100000", 1)])
def test_what_is_no_number_or_leaves_no_classes_is_refused(told, folder, wrong, code):
    assert "--min-count" in told(code, "measure", folder / "stores" / "a", "--min-count", wrong)
