"""collapse zoo list: its rows and its files."""

import json
import shutil

import pytest

from collapse_zoo.catalogue import find

LIST = ["zoo", "list", "--published", "--width", 768, "--output"]


def test_a_hub_that_cannot_be_searched_is_told_in_a_line(hub, as_user):
    hub.fault = lambda ask, method, path: not ask.send(b"no", 403, {})  # not retried, unlike a refused connection
    (line,) = as_user("zoo", "list", "--hub", code=1).stderr.splitlines()
    assert "the Hub cannot be searched" in line


@pytest.mark.parametrize("option", ["--sort", "--metrics"])
def test_a_measurement_that_is_not_there(run, tmp_path, option):
    refused = run("zoo", "list", "--published", option, "val_los", code=2)
    assert "no listed model has a measurement 'val_los'; did you mean val_loss" in refused.stderr
    nothing = ["zoo", "list", "--local", "--runs", tmp_path, option, "val_loss"]
    assert "no model matches; remove a filter" in run(*nothing).stdout
    assert json.loads(run(*nothing, "--json").stdout) == []


def test_a_corpus_that_is_named_is_looked_for(run, tmp_path):
    small = ["--generated", "--stories", 200, "--chunk-length", 64, "--max-steps", 2]
    run("zoo", "train", "1x64", *small, "--output", tmp_path / "runs" / "a")
    shutil.copytree(tmp_path / "runs" / "a", tmp_path / "runs" / "b")
    record = tmp_path / "runs" / "b" / "training.json"
    record.write_text(record.read_text().replace('"stories-01x0064_01d"', '"wiki_text-2-01x0064_01d"'))

    def found(model):
        return {entry["model"] for entry in find(model, tmp_path / "runs")}

    assert found("stories-01x0064_01d") == {"stories-01x0064_01d@0"}
    assert found("owner/wiki_text-2-1x64@0") == {"wiki_text-2-01x0064_01d@0"}
    assert found("TinyStories-1x64") == {"TinyStories-01x0064_01d@0"}
    assert found("other-1x64") == set()
    assert found("1x64") == found("stories-1x64") | found("wiki_text-2-1x64") | found("TinyStories-1x64")
