"""Publishing a run on the Hub: what is sent, what is not sent twice, and what can be downloaded."""

import json
import shutil
from dataclasses import replace

import pytest

from collapse_zoo.recipes import Recipe
from collapse_zoo.runs import Run
from collapse_zoo.sources import find_source
from collapse_zoo.training import train


@pytest.fixture(scope="module")
def published(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    source = find_source(text=str(tiny.text), validation_text=str(tiny.validation), tokenizer=str(tiny.model))
    recipe = Recipe(2, 16, vocabulary=500, chunk_length=64, batch_size=32, epochs=2, precision="float32")
    return train(recipe, replace(source, label="TinyStories"), folder, device="cpu", measure=True)


LOAD = """
import torch, transformers
for revision in (None, "0", "1"):
    model = transformers.AutoModelForCausalLM.from_pretrained("owner/TinyStories-02x0016_02d", revision=revision)
    transformers.AutoTokenizer.from_pretrained("owner/TinyStories-02x0016_02d", revision=revision)
    print(type(model).__name__, float(model.lm_head.weight.double().sum()))
"""


def test_published_loaded_and_measured(hub, as_user, tiny, published: Run):
    shown = as_user("zoo", "publish", published.path, "--dry-run")
    assert "2 revisions" in shown.stdout
    assert not hub.repos
    said = as_user("zoo", "publish", published.path)
    repo = "owner/TinyStories-02x0016_02d"
    assert f"sent @0, @1 to {repo}" in said.stdout
    first, last, main = (hub.files(repo, revision) for revision in ("0", "1", "main"))
    assert main == last
    assert first["model.safetensors"] != last["model.safetensors"]
    for k, files in enumerate((first, last)):
        assert files["model.safetensors"] == (published.checkpoint(k).path / "model.safetensors").read_bytes()
        assert any(path.startswith("collapse/") and path.endswith("collapse.json") for path in files)
    assert {"config.json", "tokenizer.json", "training.json", "trainer_state.json", "results.csv"} <= set(main)
    assert not [path for path in main if path.endswith((".pt", ".pth", ".bin", ".pkl"))]
    for folder in (published.path.parent, tiny.text.parent):
        assert str(folder).encode() not in b"".join(main.values())

    loaded = [line.split() for line in as_user(python=LOAD, token=None, home="reader").stdout.splitlines()]
    assert {name for name, _ in loaded} == {"GPTNeoForCausalLM"}
    assert loaded[0] == loaded[2] != loaded[1]
    rows = {row.model.rsplit("@")[1]: row.measurements for row in published.results()}
    for k, name in ((0, f"{repo}@0"), (1, repo)):
        row = json.loads(as_user("measure", name, "--json", token=None, home="reader").stdout)[0]
        assert row["measurements"] == pytest.approx(rows[str(k)])
    listed = json.loads(as_user("zoo", "list", "--hub", "--json", token=None, home="reader").stdout)
    assert [entry["where"] for entry in listed] == [f"Hub: {repo}"]
    assert listed[0]["checkpoint"] == 1
    assert listed[0]["nc1.cdnv"] == pytest.approx(rows["1"]["nc1.cdnv"])

    assert b'"here"' not in main["training.json"]
    hub.uploaded.clear()
    again = as_user("zoo", "publish", published.path)
    assert "everything is already in" in again.stdout
    assert not hub.uploaded


def test_an_interrupted_publication_goes_on(hub, as_user, published):
    def fault(ask, method, path):
        if method == "POST" and path.endswith("/tag/main") and len(hub.repos["models", "owner/x"].tags) == 1:
            ask.fail(403, "Forbidden", "not now")
            return True
        return False

    hub.fault = fault
    stopped = as_user("zoo", "publish", published.path, "owner/x", code=1)
    assert "the tag 1 cannot be set" in stopped.stderr
    hub.fault = None
    hub.uploaded.clear()
    as_user("zoo", "publish", published.path, "owner/x")
    assert not [each for each in hub.uploaded if len(each) == 64]  # no large file twice
    assert set(hub.repos["models", "owner/x"].tags) == {"0", "1"}


def test_what_cannot_be_published(hub, as_user, published, tmp_path):
    begun = Run(shutil.copytree(published.path, tmp_path / "begun"))
    begun.update(state="running")
    for folder, more in ((tmp_path, []), (tmp_path, ["--dry-run"]), (begun.path, [])):
        refused = as_user("zoo", "publish", folder, *more, token=None, code=2)  # looked at before the login
        assert "holds no finished run" in refused.stderr
    hub.add("owner/y", {"model.safetensors": b"other weights"})
    hub.repos["models", "owner/y"].tags["0"] = hub.repos["models", "owner/y"].branches["main"]
    refused = as_user("zoo", "publish", published.path, "owner/y", code=None)
    assert "holds the weights of another run" in refused.stderr
