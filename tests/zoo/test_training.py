"""Training: standard model folders, resuming after a kill, and equal results on one and two processes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from equal_stores import eventually
from transformers import AutoModelForCausalLM, AutoTokenizer

import collapse
from collapse.errors import CollapseError, UsageError
from collapse_zoo.recipes import Recipe
from collapse_zoo.runs import Run
from collapse_zoo.trainer import Order
from collapse_zoo.training import train

SMALL = {"heads": 4, "chunk_length": 64, "batch_size": 8, "learning_rate": 1e-3, "precision": "float32"}


def small(**changes):
    return Recipe(2, 16, vocabulary=400, **(SMALL | changes))


def losses(run):
    """Every logged loss by step and kind."""
    lines = run.state()["log_history"]
    return {(line["step"], key): line[key] for line in lines for key in ("loss", "eval_validation_loss") if key in line}


def weights(folder):
    """The bytes of a run's or a checkpoint's model."""
    return (folder / "model.safetensors").read_bytes()


def test_a_killed_run_goes_on_to_the_same_losses_and_bytes(words, tmp_path, run, warm_here):
    command = ["zoo", "train", "2x16_03d", *words("--save-every", 10)]
    whole, killed = Run(tmp_path / "whole"), Run(tmp_path / "killed")
    run(*command, "--output", whole.path)
    for reached in (1, 3, 5):  # checkpoints that a process waits for before it is killed
        pid = warm_here.start([*command, "--output", killed.path], tmp_path / "log", environment=dict(os.environ))
        eventually(lambda step=10 * reached: killed.finished or killed.state().get("global_step", 0) >= step)
        warm_here.kill(pid)
    if not killed.finished:  # a newer checkpoint that is not whole is not resumed from
        shutil.copytree(killed.newest(), killed.newest().with_name("checkpoint-999"))
        (killed.path / "checkpoints" / "checkpoint-999" / "trainer_state.json").write_text("{")
    done = run(*command, "--output", killed.path)
    assert "resuming after step" in done.stderr or killed.finished
    mine = losses(killed)
    assert {step for step, _ in mine} == set(range(1, max(step for step, _ in mine) + 1))
    assert mine == losses(whole)
    assert weights(killed.path) == weights(whole.path)
    names = {file.name for file in (killed.path / "checkpoints").iterdir()}
    assert names == {each.path.name for each in whole.epochs}


def test_plain_transformers_loads_what_was_trained(words, tmp_path, run):
    command = ["zoo", "train", "2x16_02L", *words("--output", tmp_path / "run")]
    assert f"collapse measure {tmp_path / 'run'} --all" in run(*command).stdout
    made = Run(tmp_path / "run")
    assert not made.results()
    done = run(*command, "--measure")
    assert "validation loss" in done.stdout
    model = AutoModelForCausalLM.from_pretrained(made.path)
    tokenizer = AutoTokenizer.from_pretrained(made.path)
    assert type(model).__module__.startswith("transformers.")
    assert model.config.architectures == ["GPTNeoForCausalLM"]
    assert model.config.eos_token_id == tokenizer.eos_token_id
    assert model.lm_head.weight.data_ptr() == model.transformer.wte.weight.data_ptr()
    assert made.recipe.weight_decay == 0.1
    assert weights(made.checkpoint(1).path) == weights(made.path)
    # the validation loss of training is the measured one, of the same text in the same chunks
    rows = {row.model.rsplit("@")[1]: row.measurements for row in made.results()}
    assert set(rows) == {"0", "1"}
    for epoch in made.epochs:
        kept = epoch.validation
        assert kept["validation_loss"] == pytest.approx(rows[str(epoch.k)]["val_loss"], rel=1e-6)
        assert kept["accuracy"] == pytest.approx(rows[str(epoch.k)]["val_accuracy"], abs=2e-3)
    for pickled in ("training_args.bin", "optimizer.pt", "rng_state*"):  # nothing is left to resume
        assert not list(tmp_path.rglob(pickled))
    measured = run("measure", made.path, "--json")
    assert json.loads(measured.stdout)[0]["measurements"] == pytest.approx(rows["1"], rel=1e-6)
    before = (made.path / "model.safetensors").stat().st_mtime_ns
    assert run(*command, "--measure").stdout == done.stdout
    assert (made.path / "model.safetensors").stat().st_mtime_ns == before
    listed = run("zoo", "list", "--local", "--runs", tmp_path, "--json")
    assert [entry["checkpoint"] for entry in json.loads(listed.stdout)] == [0, 1]
    assert "nc1.cdnv" in run("zoo", "info", made.path).stdout
    assert "the width must be divisible" in run("zoo", "info", "3x7", code=2).stderr
    (state,) = json.loads(run("zoo", "status", tmp_path, "--json").stdout)
    assert (state["epochs"], state["measured"], state["measured_planned"], state["state"]) == (2, 2, 2, "done")


def test_checkpoints_are_measured_as_asked_and_a_model_that_is_gone_is_restored(source, tmp_path):
    run = train(small(epochs=2), source, tmp_path / "run", measure=[1])
    assert [row.model for row in run.results()] == [f"{run.name}@1"]
    before = weights(run.path)
    (run.path / "model.safetensors").unlink()
    assert not run.finished
    train(small(epochs=2), source, run.path, measure=True)
    assert weights(run.path) == before
    assert [row.model for row in run.results()] == [f"{run.name}@0", f"{run.name}@1"]
    assert collapse.load(run.store(1)).digest == run.results()[1].store
    last = train(small(epochs=2), source, tmp_path / "last", checkpoints=[], measure=True)
    assert weights(last.path) == before
    assert [row.model for row in last.results()] == [f"{run.name}@1"]


@pytest.mark.usefixtures("group_left")
def test_two_processes_give_the_losses_of_one(words, tmp_path, run):
    command = ["zoo", "train", "2x16_02d", *words()]
    one, two = Run(tmp_path / "one"), Run(tmp_path / "two")
    run(*command, "--output", one.path)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "collapse"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    more = ["--output", two.path, "--measure", "--micro-batch", "2"]
    subprocess.run([*launch, *command, *more], check=True, env=environment, timeout=300)
    assert losses(two).keys() == losses(one).keys()
    assert losses(two) == pytest.approx(losses(one), abs=1e-4)
    assert (two.record["processes"], two.finished, len(two.results())) == (2, True, 2)
    sampled = collapse.Results.read(two.path / "checkpoints" / "results.parquet").frame()
    assert [*sampled["step"]] == [0, two.state()["max_steps"]]
    assert sampled["val_loss"][1] < sampled["val_loss"][0]


def test_micro_batches_give_the_losses_of_whole_batches(source, tmp_path):
    def stopped(what, done, *_):
        if done == 15:
            raise KeyboardInterrupt

    recipe = small()
    whole = train(recipe, source, tmp_path / "whole")
    pieces = train(recipe, source, tmp_path / "pieces", micro_batch=2, save_every=10)
    for before, expected, tolerance in ((2, pieces, 0), (None, whole, 1e-5)):
        resumed = Run(tmp_path / f"resumed-{before}")
        with pytest.raises(KeyboardInterrupt):
            train(recipe, source, resumed.path, micro_batch=before, save_every=10, progress=stopped)
        train(recipe, source, resumed.path, micro_batch=2, save_every=10)
        assert losses(resumed) == pytest.approx(losses(expected), rel=0, abs=tolerance)
    assert weights(tmp_path / "resumed-2") == weights(pieces.path)
    assert losses(pieces) == pytest.approx(losses(whole), abs=1e-5)
    assert pieces.record["arguments"]["gradient_accumulation_steps"] == 4


def test_seeds_fix_initialization_and_order_apart(source, tmp_path):
    def first_losses(seed, data_seed, folder):
        return losses(train(small(max_steps=2, seed=seed, data_seed=data_seed), source, tmp_path / folder))

    base = first_losses(1, 1, "a")
    assert first_losses(1, 2, "b") != base
    assert first_losses(2, 1, "c") != base
    assert first_losses(1, 1, "d") == base
    order = Order(10, seed=3, multiple=4)
    first = list(order)
    assert sorted(first) == [-1, -1, *range(10)]
    assert len(order) == 12
    order.set_epoch(1)
    assert list(order) != first
    order.set_epoch(0)
    assert list(order) == first


def test_ctrl_c_leaves_no_traceback(words, tmp_path):
    command = [sys.executable, "-m", "collapse", "zoo", "train", "2x16_99d", *words("--output", tmp_path / "run")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while not Run(tmp_path / "run").newest():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("2x64@0", "remove @0"),
        ("2x64 --generated", "--text cannot be used with --generated or --stories: remove one of them"),
        ("2x64 --epochs 0", "epochs must be at least 1, got 0"),
        ("2x64 --config-arg hidden_size=32", "--config-arg hidden_size"),
        ("2x64 --trainer-arg save_total_limit=2", "--trainer-arg cannot set save_total_limit"),
        ("2x64 --trainer-arg gradient_accumulation_steps=2", "--trainer-arg cannot set gradient_accumulation_steps"),
        ("2x64 --micro-batch 3", "--micro-batch 3 does not divide the 8 chunks that each process has"),
        ("2x64 --trainer-arg lr_sheduler=cosine", "the Trainer rejects"),
        ("2x64 --vocabulary 100", "vocabulary of 100 is too small"),
        ("2x64 --regularize nc5:0.1", "--regularize: no loss is called 'nc5'; did you mean nc3"),
        ("2x64 --regularize nc3", "--regularize must be NAME:WEIGHT, such as nc3:0.1, got nc3"),
        ("2x64 --regularize nc3:1 --regularize nc3:2", "--regularize has the same loss twice"),
        ("2x64 --head fixed_etf", "got 'fixed_etf'; did you mean fixed-etf?"),
        ("2x64 --head fixed-etf", "a simplex of 400 rows needs a width of at least 399, got 64"),
        ("2x64 --head untied --config-arg tie_word_embeddings=true", "--config-arg tie_word_embeddings is not"),
    ],
)
def test_what_cannot_be_trained(given, said, words, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said in told(2, "zoo", "train", *given.split(), *words())
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]


def test_what_does_not_fit_or_diverges_is_told(source, tmp_path, monkeypatch):
    with pytest.raises(CollapseError, match=r"too little text for one batch: \d+ chunks .* but a batch needs 999"):
        train(small(batch_size=999), source, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    wild = small(learning_rate=9.0, weight_decay=9.0, max_grad_norm=1e9, max_steps=60)
    with pytest.raises(CollapseError, match=r"the loss is (nan|inf) at step \d+: training has diverged. .*--learning"):
        train(wild, source, tmp_path / "run")
    assert "training has diverged" in Run(tmp_path / "run").record["problem"]
    with pytest.raises(CollapseError, match=r"training cannot begin: .*no_such_thing"):
        train(small(trainer={"report_to": "no_such_thing"}), source, tmp_path / "b")
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(UsageError, match="a batch of 8 chunks cannot be divided among 3 processes: use another number"):
        train(small(), source, tmp_path / "c")


def test_a_missing_corpus_says_how_to_get_it(tmp_path, run):
    refused = run("zoo", "train", "1x64", code=None, changes={"HF_HUB_OFFLINE": "1"}, cwd=tmp_path)
    assert refused.returncode != 0
    for said in ("roneneldan/TinyStories", "hf download", "--text FILES", "--tokenizer DIR", "--generated"):
        assert said in refused.stderr
    assert not list(tmp_path.glob("runs"))


def test_any_other_value_is_taken_and_recorded(words, run, tmp_path):
    more = ["--config-arg", "layer_norm_epsilon=0.01", "--trainer-arg", "lr_scheduler_type=cosine", "--max-steps", 2]
    run("zoo", "train", "1x16", *words(*more, "--output", tmp_path / "run", "--precision", "bf16"))
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["layer_norm_epsilon"] == 0.01
    record = Run(tmp_path / "run").record
    assert record["arguments"]["lr_scheduler_type"] == "cosine"
    assert record["recipe"]["config"] == {"layer_norm_epsilon": 0.01}
    assert record["arguments"]["bf16"]
