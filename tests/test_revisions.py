"""Checkpoints of a training run: revisions on the Hub and folders, measured and collected in order of step."""

import json
import logging
import shutil
from pathlib import Path

import pytest
import torch
import transformers

import collapse
from collapse.errors import UsageError
from collapse.measurement.results import Results
from collapse.plugin.figures import numbers_of
from collapse.plugin.plugin_manager import plugins
from collapse.showing.material import gather

SHORT = ("--max-chunks", 16, "--without", "covariance")


@pytest.fixture(scope="module")
def checkpoints(tiny, tmp_path_factory) -> Path:
    """The checkpoints of a run: 100 and 900 have equal weights."""
    run = tmp_path_factory.mktemp("runs") / "run"
    for step in (100, 1000, 900):
        shutil.copytree(tiny.model, run / f"checkpoint-{step}")
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny.model)
    with torch.no_grad():
        model.lm_head.weight.mul_(1.5)
    model.save_pretrained(run / "checkpoint-1000")
    return run


@pytest.fixture
def published(hub, checkpoints) -> list[str]:
    """The same run on the Hub, each checkpoint a branch or a tag, and another repository's words for it."""
    for step, name in ((100, "step100-tokens2M"), (1000, "step1000-tokens20M"), (900, "step900-tokens18M")):
        folder = checkpoints / f"checkpoint-{step}"
        hub.add("owner/run", {each.name: each.read_bytes() for each in folder.iterdir()}, branch=name)
    repo = hub.repos["models", "owner/run"]
    repo.branches["main"] = repo.branches["step1000-tokens20M"]
    repo.tags["step900-tokens18M"] = repo.branches.pop("step900-tokens18M")
    return ["owner/run", "--revisions", "step*"]


def downloads(hub) -> int:
    """How often weights were sent."""
    return sum(method == "GET" and path.endswith("/model.safetensors") for method, path in hub.requests)


def test_revisions_are_rows_in_order_of_step_and_equal_weights_are_sent_once(published, hub, as_user, tiny, tmp_path):
    table = tmp_path / "results.csv"
    words = ["measure", *published, *tiny.words(*SHORT, "--metrics", "nc1.cdnv,nc4.agreement", "--output", table)[1:]]
    done = as_user(*words)
    assert downloads(hub) == 2
    assert "2 of 3: owner/run@step900-tokens18M" in done.stderr
    heading = next(line for line in done.stdout.splitlines() if "nc1.cdnv" in line)
    assert heading.split() == ["step", "tokens", "nc1.cdnv", "nc4.agreement"]
    rows = Results.read(table).frame()
    assert rows["step"].tolist() == [100, 900, 1000]
    assert rows["tokens"].tolist() == [2_000_000, 18_000_000, 20_000_000]
    repo = hub.repos["models", "owner/run"]
    shas = {**repo.branches, **repo.tags}
    assert rows["revision"].tolist() == [shas[f"step{k}-tokens{m}M"] for k, m in ((100, 2), (900, 18), (1000, 20))]
    assert rows["store"].nunique() == 2
    (drawing,) = [drawing for _, drawing, _ in gather(table).drawn([plugins().figure("training")])]
    assert [each["step"] for each in numbers_of(drawing.spec)][:3] == [100, 900, 1000]
    hub.requests.clear()
    assert as_user(*words, "--no-download").stdout == done.stdout
    assert not hub.requests


def test_a_revision_that_fails_leaves_the_others(published, hub, as_user, tiny):
    hub.add("owner/run", {"config.json": b"{}", "README.md": b""}, branch="step500")
    words = tiny.words(*SHORT, "--json", "--metrics", "nc4.agreement")[1:]
    done = as_user("measure", *published, *words, code=1)
    assert [row["step"] for row in json.loads(done.stdout)] == [100, 900, 1000]
    assert "owner/run@step500 is not measured: " in done.stderr
    assert "1 of 4 models are not measured" in done.stderr
    (row,) = json.loads(as_user("measure", "owner/run", "--revisions", "main", *words, home="new").stdout)
    assert (row["model"], row["step"]) == ("owner/run@main", None)


def test_a_pattern_that_matches_nothing_names_those_that_are_there(published, as_user, checkpoints, told):
    refused = as_user("measure", "owner/run", "--revisions", "main,step100-token2M", code=2)
    assert refused.stderr == (
        "collapse: no revision or checkpoint of owner/run matches step100-token2M; did you mean step100-tokens2M or "
        "step1000-tokens20M or step900-tokens18M?\n"
    )
    said = told(2, "collect", checkpoints, "--revisions", "final", "--store", "unused")
    assert said.endswith("run matches final; known: checkpoint-100, checkpoint-1000, checkpoint-900\n")
    assert (
        "(--revision or --revisions): give only one"
        in as_user("measure", "owner/run@main", *["--revisions", "*"], code=None).stderr
    )


def test_folders_are_collected_by_the_command_and_measured_from_python(checkpoints, tiny, out, tmp_path, caplog):
    shutil.copytree(checkpoints, tmp_path / "run")
    (tmp_path / "run" / "checkpoint-500").mkdir()
    (tmp_path / "run" / "checkpoint-500" / "config.json").write_text("{}")
    copied = Path(shutil.copytree(checkpoints / "checkpoint-100", tmp_path / "run" / "checkpoint-600"))
    (copied / "config.json").unlink()
    words = ["--revisions", "checkpoint-100,checkpoint-9*", *tiny.words(*SHORT)[1:]]
    shown = out("collect", tmp_path / "run", *words, "--store", tmp_path / "stores")
    assert shown.count("is complete") == 2
    caplog.set_level(logging.INFO, "collapse")
    logging.getLogger("collapse").propagate = True  # which the command line ends
    said = []
    results = collapse.trajectory(
        tmp_path / "run",
        revisions=["checkpoint-*"],
        store=tmp_path / "stores",
        **tiny.options(),
        max_chunks=16,
        without="covariance",
        metrics="nc4.agreement",
        progress=lambda what, *_: said.append(what),
    )
    assert [row.model for row in results.rows] == [f"run/checkpoint-{k}" for k in (100, 900, 1000)]
    assert results.frame()["step"].tolist() == [100, 900, 1000]
    for lacking in ("run/checkpoint-500 is not measured: ", "run/checkpoint-600 is not measured: "):
        assert lacking in caplog.text
    assert any(each.startswith("5 of 5, collecting train") for each in said)
    assert not any(each.startswith("1 of 5, collecting") for each in said)
    with pytest.raises(UsageError, match=r"did you mean nc4\.agreement"):
        collapse.trajectory(tmp_path / "run", revisions="*", metrics="nc4.agrement")
