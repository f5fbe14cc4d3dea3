"""What is resumed, measured, listed and published is what training wrote; anything else is named in one line."""

import json
import os
import re
import shutil
from dataclasses import replace

import pytest

import collapse
from collapse.errors import CollapseError, UsageError
from collapse.measurement.results import Results
from collapse.plugin.figures import numbers_of
from collapse.testing import check_figure
from collapse_zoo.figures import run_loss
from collapse_zoo.grids import grid
from collapse_zoo.measuring import measure_run
from collapse_zoo.members import Member
from collapse_zoo.publishing import revisions
from collapse_zoo.recipes import Recipe
from collapse_zoo.runs import Run
from collapse_zoo.sources import find_source
from collapse_zoo.states import status
from collapse_zoo.sweeping import plan, sweep
from collapse_zoo.training import train

NAME = "texts-02x0016_02d"


def source_of(texts):
    return {
        "text": str(texts / "train.jsonl"),
        "validation_text": str(texts / "validation.jsonl"),
        "tokenizer": str(texts / "tokenizer"),
    }


def small(**changes):
    sizes = {"heads": 4, "chunk_length": 64, "batch_size": 8, "precision": "float32", "vocabulary": 400}
    return Recipe(2, 16, **(sizes | changes))


@pytest.fixture(scope="module")
def source(texts):
    return find_source(**source_of(texts))


@pytest.fixture(scope="module")
def trained(source, tmp_path_factory):
    """A finished and measured run of two epochs."""
    run = train(small(epochs=2), source, tmp_path_factory.mktemp("runs") / NAME, name=NAME, device="cpu")
    measure_run(run, source)
    return run


@pytest.fixture
def copied(trained, tmp_path):
    """A copy of it, to damage."""
    return Run(shutil.copytree(trained.path, tmp_path / "runs" / NAME))


def flip(file):
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)


def test_an_altered_checkpoint_is_neither_measured_nor_published(copied, source):
    (copied.path / "results.json").unlink()
    file = copied.checkpoint(0).path / "model.safetensors"
    flip(file)
    with pytest.raises(CollapseError, match=r"checkpoint-\d+/model.safetensors is not as it was written"):
        measure_run(copied, source)
    with pytest.raises(CollapseError, match=r"model.safetensors is not as it was written"):
        revisions(copied, "owner/x")
    flip(file)
    (file.parent / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(CollapseError, match=r"index.json was added to a checkpoint"):
        measure_run(copied, source)


@pytest.mark.parametrize("where", ["the run", "a checkpoint"])
def test_what_is_altered_after_it_was_measured_is_named_by_every_command(copied, source, texts, run, where):
    file = (copied.path if where == "the run" else copied.checkpoint(0).path) / "model.safetensors"
    flip(file)
    said = r"model\.safetensors is not as it was written; restore it"
    with pytest.raises(CollapseError, match=said):
        measure_run(copied, source)
    with pytest.raises(CollapseError, match=said):
        train(small(epochs=2), source, copied.path, name=NAME, device="cpu", measure=True)
    values = {"chunk_length": 64, "batch_size": 8, "precision": "float32", "heads": 4}
    folder = copied.path.parent
    members = plan(grid("2x16_02d"), source, folder, values=values, training={"device": "cpu"})
    assert [member.run.path for member in members] == [copied.path]
    made = sweep([replace(members[0], checkpoints=(0, 1))], source, folder)
    assert re.search(said, made.problems[NAME])
    if where == "the run":  # nothing else of it is read
        told = run("measure", copied.path, ok=False)
        assert told.returncode == 1
        assert re.search(said, told.stderr)


def test_a_measured_checkpoint_may_be_deleted(copied, source):
    shutil.rmtree(copied.checkpoint(0).path)
    assert [row.model for row in measure_run(copied, source)] == [f"{NAME}@0", f"{NAME}@1"]


def test_a_checkpoint_that_is_gone_is_missed(copied, source):
    (copied.path / "results.json").unlink()
    shutil.rmtree(copied.checkpoint(1).path)
    with pytest.raises(UsageError, match=r"has no checkpoint @1; there are: @0"):
        measure_run(copied, source)
    with pytest.raises(UsageError, match=r"has no checkpoint @1"):
        revisions(copied, "owner/x")


@pytest.mark.parametrize("damage", ["deleted", "truncated", "altered"])
def test_a_finished_run_without_its_model_is_not_called_trained(copied, source, caplog, damage):
    file = copied.path / "model.safetensors"
    said = rf"{NAME}/model.safetensors is {'missing' if damage == 'deleted' else 'not as it was written'}"
    if damage == "deleted":
        file.unlink()
    elif damage == "truncated":
        os.truncate(file, 1000)
    else:
        flip(file)
    for act in (
        lambda: train(small(epochs=2), source, copied.path, name=NAME, device="cpu"),
        lambda: measure_run(copied, source),
        lambda: revisions(copied, "owner/x"),
    ):
        with pytest.raises(CollapseError, match=said):
            act()
    if damage != "altered":  # listings compare sizes
        (listed,) = status(copied.path.parent)
        assert "damaged" in listed["state"]
        assert "model.safetensors" in listed["state"]


def test_the_commands_name_a_damaged_run_and_show_the_others(trained, copied, run):
    shutil.copytree(trained.path, copied.path.parent / "whole")
    (copied.path / "model.safetensors").unlink()
    assert f"{NAME}/model.safetensors is missing" in run("zoo", "info", copied.path).stderr
    (copied.path / "training.json").write_text("[]")
    listed = json.loads(run("zoo", "list", "--local", "--runs", copied.path.parent, "--json").stdout)
    assert [each["where"].endswith("whole") for each in listed] == [True, True]
    shown = json.loads(run("zoo", "status", copied.path.parent, "--json").stdout)
    assert [each["state"].split(":")[0] for each in shown] == ["damaged", "done"]


SHAPES = ["", "[1, 2]", "17", "[" * 5000, '"text"', "{}", "\0\0"]


def broken_records(run):
    """training.json with one value of another shape each."""
    record = json.loads((run.path / "training.json").read_text())
    yield from SHAPES
    for key, value in {
        "recipe": {"depth": "two", "width": 16},
        "epochs": [{"k": "x", "step": 1}],
        "state": 3,
        "name": None,
        "corpus": "train.jsonl",
        "text": [],
        "versions": 7,
        "model": {"../../model.safetensors": {"size": 1, "sha256": "0" * 64}},
        "format": 99,
    }.items():
        yield json.dumps(record | {key: value})
    yield json.dumps(record | {"recipe": record["recipe"] | {"width": True}})
    yield json.dumps(record | {"recipe": {"width": 16}})


def test_a_training_record_of_another_shape(copied, source, caplog):
    file = copied.path / "training.json"
    for text in list(broken_records(copied)):
        file.write_text(text)
        for act in (
            lambda: copied.recipe,
            lambda: train(small(epochs=2), source, copied.path, device="cpu"),
            lambda: measure_run(copied, source),
            lambda: revisions(copied, "owner/x"),
        ):
            with pytest.raises(CollapseError, match=r"training.json is (damaged|of a newer version)") as refused:
                act()
            assert "\n" not in str(refused.value)
            assert len(str(refused.value)) < 600
        (listed,) = status(copied.path.parent)
        assert listed["state"].startswith("damaged: ")
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(CollapseError, match="not a regular file"):
        measure_run(copied, source)


@pytest.mark.parametrize("text", SHAPES)
def test_a_checkpoints_record_of_another_shape(copied, source, text):
    (copied.path / "results.json").unlink()
    (copied.checkpoint(1).path / "complete.json").write_text(text)
    with pytest.raises(CollapseError, match=r"complete.json is damaged"):
        measure_run(copied, source)
    with pytest.raises(CollapseError, match=r"complete.json is damaged"):
        copied.check_resumable()


@pytest.mark.parametrize("text", ["[" * 200 + "]" * 200, '{"recipe": ' + "9" * 1000 + "}"], ids=["deep", "long"])
def test_a_member_that_no_parser_should_see(tmp_path, text):
    (tmp_path / "member.json").write_text(text)
    with pytest.raises(ValueError, match=r"nested more than 100 levels|an integer of 1,000 digits"):
        Member.read(tmp_path / "member.json")


LONG = '{"step": 1, "epoch": 0, "loss": ' + "9" * 1000 + "}"


@pytest.mark.parametrize("text", [*SHAPES[1:], '{"step": 1}', '{"step": "1", "epoch": 0}', LONG])
def test_a_curve_of_another_shape(copied, text):
    curve = copied.path / "curve.jsonl"
    lines = curve.read_text()
    curve.write_text(f"{lines}{text}\n{lines}")
    with pytest.raises(CollapseError, match=r"curve.jsonl is damaged in line \d+"):
        revisions(copied, "owner/x")
    curve.write_text(lines + '{"step": 1, "ep')  # cut off by a kill
    assert len(copied.curve()) == lines.count("\n")


@pytest.mark.parametrize("text", [*SHAPES, '[{"model": 1}]'])
def test_results_of_another_shape(copied, source, text, caplog):
    (copied.path / "results.json").write_text(text)
    with pytest.raises(CollapseError, match=r"results.json"):
        measure_run(copied, source)
    assert "results.json" in status(copied.path.parent)[0]["state"]


def test_results_of_another_run(copied, source):
    rows = copied.results()
    Results([rows[0], *(type(row)(**(vars(row) | {"model": "other"})) for row in rows[1:])]).write(
        copied.path / "results.json"
    )
    with pytest.raises(CollapseError, match=r"results.json is damaged: 'other' is not a checkpoint"):
        measure_run(copied, source)


def test_results_of_other_stores(copied, source, caplog):
    rows = copied.results()
    Results([replace(rows[0], store="0" * 64), *rows[1:]]).write(copied.path / "results.json")
    assert copied.results() == rows[1:]
    (said,) = caplog.messages
    assert f"its row {rows[0].model} is of another store than" in said
    assert copied.results() == rows[1:]
    assert caplog.messages == [said]
    with pytest.raises(CollapseError, match=f"its row {rows[0].model} is of another store"):
        revisions(copied, "owner/x")
    assert measure_run(copied, source) == rows
    assert revisions(copied, "owner/x")


@pytest.mark.parametrize("text", [*SHAPES[:-2], '{"m": {"checkpoints": 1, "epochs": 1}}', '{"m": 4}', "\0"])
def test_a_list_of_members_of_another_shape(texts, tmp_path, run, text):
    (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(CollapseError, match=r"sweep.json is damaged"):
        status(tmp_path)
    source = find_source(**source_of(texts))
    members = plan(grid("1x16"), source, tmp_path)
    with pytest.raises(CollapseError, match=r"sweep.json is damaged"):
        sweep(members, source, tmp_path)
    assert (tmp_path / "sweep.json").read_text() == text


def test_the_last_model_of_so_many_steps_is_the_one_measured(texts, source, tmp_path):
    steps = -(-len(source.chunks(64)) // 8)
    values = {"chunk_length": 64, "batch_size": 8, "max_steps": steps + 3, "precision": "float32"}
    for name in ("1x16", "1x16_10d"):
        folder = tmp_path / name
        members = plan(grid(name), source, folder, values=values, training={"device": "cpu"})
        made = sweep(members, source, folder)
        assert not made.problems
        (row,) = made.rows
        run = members[0].run
        assert row.model == f"{run.name}@1"
        assert run.checkpoint(1).step == steps + 3
        assert not run.checkpoint(1).ends_epoch
        assert row.measurements["val_loss"] == pytest.approx(run.checkpoint(1).validation["validation_loss"], rel=1e-4)
        assert status(folder)[0]["state"] == "done"
        again = sweep(members, source, folder)
        assert [row.model for row in again.rows] == [row.model]


def test_another_recipe_or_text_under_the_same_name_is_not_taken_for_done(texts, tmp_path):
    other = tmp_path / "other" / "texts"
    shutil.copytree(texts, other)
    lines = (other / "train.jsonl").read_text().splitlines(keepends=True)
    (other / "train.jsonl").write_text("".join(lines[1:]))
    values = {"chunk_length": 64, "batch_size": 8, "max_steps": 2, "precision": "float32"}

    def swept(folder, **changes):
        source = find_source(**source_of(folder))
        members = plan(grid("1x16"), source, tmp_path / "runs", values=values | changes, training={"device": "cpu"})
        return sweep(members, source, tmp_path / "runs")

    made = swept(texts)
    assert not made.problems
    for made, said in (
        (swept(texts, learning_rate=0.01), "learning_rate 5e-05 and 0.01"),
        (swept(other), r"corpus train.jsonl \(sha256 \w+…\) and train.jsonl \(sha256"),
    ):
        assert not made.rows
        (problem,) = made.problems.values()
        assert re.search(said, problem), problem


def test_a_text_that_is_replaced_after_it_was_hashed(texts, tmp_path):
    """The hash in the record is that of the text that was trained on, or nothing is trained."""
    text = tmp_path / "train.jsonl"
    shutil.copyfile(texts / "train.jsonl", text)
    found = find_source(**(source_of(texts) | {"text": str(text)}))
    before = text.stat()
    content = text.read_text()
    text.write_text(content.replace("the", "eth"))
    os.utime(text, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(CollapseError, match=r"train\.jsonl"):
        train(small(max_steps=2), found, tmp_path / "run", device="cpu")
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_other_tokens_than_were_trained_on_are_not_resumed(source, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Run, "finish", lambda run: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            train(small(max_steps=2), source, tmp_path / "run", device="cpu")
    run = Run(tmp_path / "run")
    run.update(tokens=run.record["tokens"] | {"train": "0" * 64})
    with pytest.raises(CollapseError, match="was begun on other tokens of the train text"):
        train(small(max_steps=2), source, tmp_path / "run", device="cpu")


def test_two_sweeps_in_one_folder(texts, tmp_path, warm_here):
    output = tmp_path / "runs"
    words = ["zoo", "sweep", "1,2x16", "--text", texts / "train.jsonl", "--validation-text", texts / "validation.jsonl"]
    words += ["--tokenizer", texts / "tokenizer", "--chunk-length", 64, "--batch-size", 8, "--max-steps", 20]
    words += ["--device", "cpu", "--output", output]
    told = [(tmp_path / f"out-{k}", tmp_path / f"err-{k}") for k in range(2)]
    both = [warm_here.start(words, err, out=out, environment=dict(os.environ)) for out, err in told]
    codes = [warm_here.wait(process) for process in both]
    ended = [(out.read_text(), err.read_text()) for out, err in told]
    for code, (out, said) in zip(codes, ended, strict=True):
        assert code == 0, said
        assert "Traceback" not in said
        assert "failed" not in said
        assert "of 2 members" in out
    assert {each["state"] for each in status(output)} == {"done"}
    assert any("2 measurements of 2 members" in out for out, _ in ended)
    assert any("in progress elsewhere" in said for _, said in ended)


def test_a_table_that_could_not_be_written_is_written_when_the_command_is_repeated(copied, source):
    table = copied.path / "results.csv"
    Results(copied.results()[:1]).write(copied.path / "results.json")
    expected = table.read_text()
    table.unlink()
    table.mkdir()
    with pytest.raises(CollapseError, match=r"results\.csv"):
        measure_run(copied, source)
    table.rmdir()
    measure_run(copied, source)
    assert table.read_text() == expected
    assert (copied.path / "results.json").is_file()


def test_the_loss_of_a_run_is_drawn_through_its_stores(trained):
    stores = [collapse.load(trained.store(k)) for k in (0, 1)]
    check_figure(run_loss, stores=stores)
    rows = numbers_of(collapse.draw("run-loss", stores).spec)
    curve = trained.curve()
    assert [row["loss"] for row in rows if "loss" in row] == [line["loss"] for line in curve if "loss" in line]
    assert len([row for row in rows if "validation" in row]) == 2
