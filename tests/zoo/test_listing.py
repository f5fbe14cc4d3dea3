"""collapse zoo list: where it writes."""

import json
import os

import collapse

LIST = ["zoo", "list", "--published", "--width", 768, "--output"]


def test_a_listing_is_written_again_but_never_over_another_file(run, tmp_path):
    listing, mine = tmp_path / "models.csv", tmp_path / "mine.csv"
    run(*LIST, listing)
    first = listing.read_text()
    assert len(collapse.Results.read(listing)) == first.count("\n") - 1
    run(*LIST, listing, "--depth", 2)
    assert 0 < listing.read_text().count("\n") < first.count("\n")
    fifo = tmp_path / "fifo.csv"
    os.mkfifo(fifo)
    mine.write_text("a,b\n1,2\n")
    for there in (mine, fifo):
        refused = run(*LIST, there, ok=False)
        assert refused.returncode == 2
        assert f"{there} exists and is not such a table" in refused.stderr
    assert mine.read_text() == "a,b\n1,2\n"
    assert {each.name for each in tmp_path.iterdir() if each.is_file()} == {"models.csv", "mine.csv"}


def test_no_entries_are_not_written(run, tmp_path):
    said = run(*LIST, tmp_path / "none.csv", "--depth", 77)
    assert "none.csv was not written" in said.stderr
    assert not (tmp_path / "none.csv").exists()


def test_runs_of_one_name_are_shown_beside_each_other(run, tmp_path):
    small = ["--generated", "--stories", 200, "--chunk-length", 64, "--max-steps", 2]
    for name, rate in (("a", "5e-05"), ("b", "0.001")):
        run("zoo", "train", "1x16", *small, "--learning-rate", rate, "--output", tmp_path / "runs" / name)
    said = run("zoo", "info", "1x16", "--runs", tmp_path / "runs")
    assert "2 models" in said.stderr
    rates = next(line for line in said.stdout.splitlines() if line.startswith("learning rate"))
    assert rates.split()[2:] == ["5e-05", "0.001"]
    one = json.loads(run("zoo", "info", tmp_path / "runs" / "b", "--json").stdout)
    assert one["recipe"]["learning_rate"] == 0.001
