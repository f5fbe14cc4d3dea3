"""Training: into what everybody loads, on from where a kill left it, the same on one process and on two."""

import functools
import json
import math
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import collapse
from collapse.errors import CollapseError, UsageError
from collapse.stores.lock import locked
from collapse_zoo.measuring import measure_run
from collapse_zoo.recipes import Recipe
from collapse_zoo.runs import Run
from collapse_zoo.sources import find_source
from collapse_zoo.stories import stories, train_tokenizer, write_stories
from collapse_zoo.trainer import Order, Watcher
from collapse_zoo.training import train

SMALL = {"heads": 4, "chunk_length": 64, "batch_size": 8, "learning_rate": 1e-3, "precision": "float32"}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """About 190 chunks of 64 tokens, which batches of 8 do not divide, in a vocabulary of 500."""
    folder = tmp_path_factory.mktemp("texts")
    write_stories(folder / "train.jsonl", 65, seed=1)
    write_stories(folder / "validation.jsonl", 20, seed=2)
    train_tokenizer(stories(200, seed=1), folder / "tokenizer", vocabulary=500)
    return folder


@pytest.fixture
def source(texts):
    return find_source(
        text=str(texts / "train.jsonl"),
        validation_text=str(texts / "validation.jsonl"),
        tokenizer=str(texts / "tokenizer"),
    )


def words(texts, *more):
    given = ["--text", texts / "train.jsonl", "--validation-text", texts / "validation.jsonl"]
    sizes = ["--tokenizer", texts / "tokenizer", "--heads", 4, "--chunk-length", 64, "--batch-size", 8]
    return [str(word) for word in (*given, *sizes, "--learning-rate", "1e-3", *more)]


def losses(run):
    """Every logged number by step and kind."""
    return {(line["step"], key): value for line in Run(run).curve() for key, value in line.items() if "loss" in key}


def weights(trained):
    """The bytes of a run's or a checkpoint's model."""
    return (trained.path / "model.safetensors").read_bytes()


def small(**changes):
    return Recipe(2, 16, vocabulary=500, **(SMALL | changes))


def test_a_killed_run_goes_on_to_the_same_losses(texts, tmp_path, run, warm_here):
    command = ["zoo", "train", "2x16_03d", *words(texts), "--device", "cpu"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run(*command, "--output", whole)
    steps = max(step for step, _ in losses(whole))
    each = steps // 3

    def kill_when(ready):
        pid = warm_here.start([*command, "--output", killed], tmp_path / "log", environment=dict(os.environ))
        deadline = time.monotonic() + 300
        while not Run(killed).finished and not ready():
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.002)
        warm_here.kill(pid)

    kill_when(lambda: len(losses(killed)) > each // 2)  # inside the first epoch
    kill_when(lambda: len(Run(killed).checkpoints) >= 1)  # as the first has ended
    kill_when(lambda: len(Run(killed).checkpoints) >= 1 and len(losses(killed)) > 1.5 * each)  # inside the second
    done = run(*command, "--output", killed)
    assert "resuming after step" in done.stderr or Run(killed).finished
    mine, theirs = losses(killed), losses(whole)
    assert mine.keys() == theirs.keys()
    assert len(mine) == steps + 3
    assert mine == theirs
    assert weights(Run(killed)) == weights(Run(whole))
    assert [each.validation for each in Run(killed).epochs] == [each.validation for each in Run(whole).epochs]


def test_plain_transformers_loads_what_was_trained(texts, tmp_path, run):
    done = run("zoo", "train", "2x16_02L", *words(texts), "--measure", "--output", tmp_path / "run")
    assert "validation loss" in done.stdout
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "run")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    assert type(model).__module__.startswith("transformers.")
    assert model.config.architectures == ["GPTNeoForCausalLM"]
    assert model.config.eos_token_id == tokenizer.eos_token_id
    assert model.lm_head.weight.data_ptr() == model.transformer.wte.weight.data_ptr()
    made = Run(tmp_path / "run")
    assert made.finished
    assert [each.k for each in made.checkpoints] == [0, 1]
    assert made.recipe.weight_decay == 0.1
    assert weights(made.checkpoint(1)) == weights(made)
    # the curve's validation loss is the measured one, of the same text in the same chunks
    rows = {row.model.rsplit("@")[1]: row.measurements for row in made.results()}
    assert set(rows) == {"0", "1"}
    for epoch in made.epochs:
        kept = epoch.validation
        assert kept["validation_loss"] == pytest.approx(rows[str(epoch.k)]["val_loss"], rel=1e-4)
        assert kept["accuracy"] == pytest.approx(rows[str(epoch.k)]["val_accuracy"], abs=2e-3)
        assert kept["perplexity"] == pytest.approx(math.exp(kept["validation_loss"]))
    assert not list(tmp_path.rglob("training_args.bin"))  # no pickle of arguments
    assert not list(tmp_path.rglob("optimizer.pt"))  # nothing is left to resume
    measured = run("measure", tmp_path / "run", "--json")
    assert json.loads(measured.stdout)[0]["measurements"] == pytest.approx(rows["1"], rel=1e-6)
    before = (tmp_path / "run" / "model.safetensors").stat().st_mtime_ns
    again = run("zoo", "train", "2x16_02L", *words(texts), "--measure", "--output", tmp_path / "run")
    assert again.stdout == done.stdout
    assert (tmp_path / "run" / "model.safetensors").stat().st_mtime_ns == before
    listed = run("zoo", "list", "--local", "--runs", tmp_path, "--json")
    assert [entry["checkpoint"] for entry in json.loads(listed.stdout)] == [0, 1]
    assert "nc1.cdnv" in run("zoo", "info", tmp_path / "run").stdout
    (tmp_path / "run" / "model.safetensors").unlink()
    refused = run("zoo", "train", "2x16_02L", *words(texts), "--output", tmp_path / "run", ok=False)
    assert "model.safetensors is missing: restore it" in refused.stderr
    assert "is missing" in run("zoo", "status", tmp_path).stdout


def stopped_at(step, *arguments, **options):
    """A training that is interrupted at a step."""

    logged = Watcher.on_log

    def stop(self, args, state, control, **more):
        if state.global_step == step:
            raise KeyboardInterrupt
        logged(self, args, state, control, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Watcher, "on_log", stop)
        with pytest.raises(KeyboardInterrupt):
            train(*arguments, **options)


def test_resume_points_inside_an_epoch(source, tmp_path):
    train(small(), source, tmp_path / "whole")
    steps = max(step for step, _ in losses(tmp_path / "whole"))
    stopped_at(9, small(), source, tmp_path / "stopped", save_every=4)
    stopped = Run(tmp_path / "stopped")
    assert [(each.step, each.k) for each in stopped.checkpoints] == [(8, None)]
    state = stopped.checkpoints[0].path / "optimizer.pt"
    state.rename(tmp_path / "optimizer.pt")
    with pytest.raises(CollapseError, match=r"cannot be resumed: .*checkpoint-8/optimizer.pt is missing; restore it"):
        train(small(), source, stopped.path, save_every=4)
    (tmp_path / "optimizer.pt").rename(state)
    train(small(), source, stopped.path, save_every=4)
    assert losses(stopped.path) == losses(tmp_path / "whole")
    assert weights(stopped) == weights(Run(tmp_path / "whole"))
    assert [(each.step, each.k) for each in stopped.checkpoints] == [(steps, 0)]


def test_a_run_interrupted_as_it_ends(source, tmp_path, monkeypatch):
    def interrupted(run):
        raise KeyboardInterrupt

    finish = Run.finish
    monkeypatch.setattr(Run, "finish", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(small(max_steps=5), source, tmp_path / "run")
    before = losses(tmp_path / "run")
    assert not Run(tmp_path / "run").finished
    monkeypatch.setattr(Run, "finish", finish)
    assert train(small(max_steps=5), source, tmp_path / "run").finished
    assert losses(tmp_path / "run") == before
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "run").config.hidden_size == 16


@pytest.mark.usefixtures("group_left")
def test_two_processes_give_the_losses_of_one(texts, tmp_path, run):
    words_ = ["zoo", "train", "2x16_02d", *words(texts), "--device", "cpu"]
    one, two = tmp_path / "one", tmp_path / "two"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    run(*words_, "--output", one)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run(
        [*launch, "-m", "collapse", *words_, "--output", two, "--measure"], check=True, env=environment, timeout=300
    )
    assert losses(two).keys() == losses(one).keys()
    assert losses(two) == pytest.approx(losses(one), abs=1e-4)
    record = Run(two).record
    assert (record["processes"], record["state"]) == (2, "finished")
    assert len(Run(two).results()) == 2


def test_seeds_fix_initialization_and_order_apart(source, tmp_path):
    def first_losses(**seeds):
        name = "-".join(f"{key}{value}" for key, value in seeds.items())
        run = train(small(max_steps=2, **seeds), source, tmp_path / name)
        return [line["loss"] for line in run.curve() if "loss" in line]

    base = first_losses(seed=1, data_seed=1)
    assert first_losses(seed=1, data_seed=2) != base
    assert first_losses(seed=2, data_seed=1) != base
    again = train(small(max_steps=2, seed=1, data_seed=1), source, tmp_path / "again")
    assert [line["loss"] for line in again.curve() if "loss" in line] == base


def test_an_order_is_of_its_seed_and_epoch():
    order = Order(10, seed=3, multiple=4)
    first = list(order)
    assert sorted(first) == [-1, -1, *range(10)]
    assert len(order) == 12
    order.set_epoch(1)
    assert list(order) != first
    order.set_epoch(0)
    assert list(order) == first


def test_another_recipes_directory_is_refused(texts, tmp_path, run, source):
    train(small(max_steps=2), source, tmp_path / "run")
    refused = run("zoo", "train", "2x32", *words(texts, "--max-steps", 2, "--output", tmp_path / "run"), ok=False)
    assert refused.returncode == 2
    assert "width 16 and 32" in refused.stderr
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("mine")
    refused = run("zoo", "train", "2x16", *words(texts, "--output", other), ok=False)
    assert refused.returncode == 2
    assert "is not empty and holds no run" in refused.stderr
    assert (other / "thesis.tex").read_text() == "mine"


def test_too_little_text_for_one_batch(source, tmp_path):
    with pytest.raises(
        CollapseError, match=r"too little text for one batch: \d+ chunks of 64 tokens, and a batch takes 999"
    ):
        train(small(batch_size=999), source, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_second_process_on_one_run_is_refused(texts, source, tmp_path, run):
    with locked(tmp_path / "run"):
        refused = run("zoo", "train", "2x16", *words(texts, "--output", tmp_path / "run"), ok=False)
    assert refused.returncode == 1
    assert "is in use by another process" in refused.stderr
    assert "use another --output" in refused.stderr


def test_ctrl_c_leaves_no_traceback(texts, tmp_path):
    command = [
        sys.executable,
        "-m",
        "collapse",
        "zoo",
        "train",
        "2x16_99d",
        *words(texts),
        "--output",
        tmp_path / "run",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while not Run(tmp_path / "run").checkpoints:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "Traceback" not in said


def test_memory_that_runs_out_keeps_the_last_checkpoint(source, tmp_path, monkeypatch):
    from collapse_zoo import model

    plain = model.GPTNeoForCausalLM.forward
    calls = []

    @functools.wraps(plain)
    def full(self, *arguments, **options):
        calls.append(1)
        if self.training and len(calls) > 40:
            raise torch.OutOfMemoryError("CUDA out of memory (for this test)")
        return plain(self, *arguments, **options)

    monkeypatch.setattr(model.GPTNeoForCausalLM, "forward", full)
    with pytest.raises(CollapseError, match=r"out of memory: 2x16 .* lower --batch-size or --chunk-length .* is kept"):
        train(small(epochs=3), source, tmp_path / "run")
    run = Run(tmp_path / "run")
    assert run.record["state"] == "failed"
    assert run.checkpoints
    monkeypatch.setattr(model.GPTNeoForCausalLM, "forward", plain)
    assert train(small(epochs=3), source, tmp_path / "run").finished


def test_a_loss_that_is_no_number_ends_training(source, tmp_path):
    wild = small(learning_rate=9.0, weight_decay=9.0, max_grad_norm=1e9, max_steps=60)
    with pytest.raises(CollapseError, match=r"the loss is (nan|inf) at step \d+: training has diverged. .*--learning"):
        train(wild, source, tmp_path / "run")
    record = Run(tmp_path / "run").record
    assert record["state"] == "failed"
    assert "training has diverged" in record["problem"]
    assert list(Run(tmp_path / "run").curve())[-1]["loss"] in ("nan", "inf")


def test_a_perplexity_beyond_all_numbers_is_none(source, tmp_path):
    wild = small(learning_rate=9.0, max_grad_norm=1e9, max_steps=2, weight_decay=0.0)
    run = train(wild, source, tmp_path / "run")
    kept = run.checkpoint(0).validation
    assert kept["validation_loss"] > 710
    assert kept["perplexity"] is None
    assert run.finished


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["12by1024"], "write depth x width"),
        (["2x100", "--generated"], "heads do not divide"),
        (["2x64@0"], "leave out @0"),
        (["2x64", "--generated", "--text", "x.txt"], "--generated uses its own texts: leave out --text"),
        (["2x64", "--epochs", "0"], "--epochs must be at least 1, got 0"),
        (["2x64", "--adam-beta1", "2"], "2.0 and 0.999"),
        (["2x64", "--config-arg", "hidden_size=32"], "--config-arg hidden_size"),
        (["2x64", "--config-arg", "activation_function=nope"], "no GPT-Neo can be built with"),
        (["2x64", "--trainer-arg", "gradient_accumulation_steps=2"], "--trainer-arg cannot set gradient_acc"),
        (["2x64", "--trainer-arg", "lr_sheduler=cosine"], "the Trainer does not take"),
    ],
)
def test_what_cannot_be_trained(given, said, texts, run, tmp_path):
    refused = run("zoo", "train", *given, *([] if "--generated" in given else words(texts)[:6]), ok=False, cwd=tmp_path)
    assert refused.returncode == 2
    assert said in refused.stderr
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]


def test_a_missing_corpus_says_how_to_get_it(texts, tmp_path, run):
    offline = {"HF_HUB_OFFLINE": "1"}
    refused = run("zoo", "train", "1x64", ok=False, changes=offline, cwd=tmp_path)
    assert refused.returncode != 0
    for said in ("roneneldan/TinyStories", "hf download", "--text FILES", "--generated"):
        assert said in refused.stderr
    refused = run("zoo", "train", "1x64", "--text", texts / "train.jsonl", ok=False, changes=offline, cwd=tmp_path)
    assert "--tokenizer DIR" in refused.stderr
    assert not list(tmp_path.glob("runs"))


def test_any_other_value_is_taken_and_recorded(texts, run, tmp_path):
    more = ["--config-arg", "layer_norm_epsilon=0.01", "--trainer-arg", "lr_scheduler_type=cosine", "--max-steps", 2]
    run("zoo", "train", "1x16", *words(texts, *more, "--output", tmp_path / "run", "--precision", "bf16"))
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["layer_norm_epsilon"] == 0.01
    record = Run(tmp_path / "run").record
    assert record["arguments"]["lr_scheduler_type"] == "cosine"
    assert record["recipe"]["config"] == {"layer_norm_epsilon": 0.01}
    assert record["arguments"]["bf16"]


def test_an_integration_that_is_not_there(source, tmp_path):
    with pytest.raises(CollapseError, match=r"training cannot begin: .*no_such_thing"):
        train(small(), source, tmp_path / "run", report_to=["no_such_thing"])
    assert Run(tmp_path / "run").record["state"] == "failed"


def test_a_batch_that_processes_do_not_divide(source, tmp_path, monkeypatch):
    import transformers

    monkeypatch.setattr(transformers.TrainingArguments, "world_size", 3)
    with pytest.raises(UsageError, match="a batch of 8 chunks cannot be divided among 3 processes: use another number"):
        train(small(), source, tmp_path / "run")


def test_a_vocabulary_too_small_for_the_tokenizer(source, tmp_path):
    with pytest.raises(UsageError, match=r"vocabulary of 100 is too small .* 500 tokens"):
        train(Recipe(2, 16, vocabulary=100, **SMALL), source, tmp_path / "run")


def test_a_run_is_measured_checkpoint_by_checkpoint(source, tmp_path):
    run = train(small(epochs=2), source, tmp_path / "run")
    assert [row.model for row in measure_run(run, source, checkpoints=[1])] == [f"{run.name}@1"]
    rows = measure_run(run, source)
    assert [row.model for row in rows] == [f"{run.name}@0", f"{run.name}@1"]
    assert collapse.load(run.store(1)).digest == rows[1].store


def test_generated_stories_are_there_at_once(run, tmp_path, own_home):
    words_ = ["--generated", "--stories", 300, "--chunk-length", 64, "--batch-size", 8, "--max-steps", 3]
    done = run("zoo", "train", "1x64", *words_, cwd=tmp_path)
    (made,) = (tmp_path / "runs").iterdir()
    assert made.name == "stories-01x0064_01d"
    assert "stories-01x0064_01d" in done.stdout
    assert Path(AutoTokenizer.from_pretrained(made).name_or_path) == made


def test_stories_that_another_process_writes_are_waited_for(own_home):
    with ThreadPoolExecutor(2) as pool:
        one, other = (pool.submit(find_source, generated=60) for _ in range(2))
        assert one.result().corpus.sha256 == other.result().corpus.sha256
