"""Regularizers, fixed heads and small vocabularies: numbers, gradients, records, resuming and refusals."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import collapse
from collapse.testing import statistics_of
from collapse_zoo.catalogue import find
from collapse_zoo.model import build, random_frame, simplex_etf
from collapse_zoo.publishing import revisions
from collapse_zoo.recipes import HEADS, Recipe, parse
from collapse_zoo.regularizers import cdnv, nc3, uniformity
from collapse_zoo.runs import Run
from collapse_zoo.sources import find_source
from collapse_zoo.training import train

LOSSES = {"nc3": nc3, "uniformity": uniformity, "cdnv": cdnv}
SMALL = {"heads": 4, "chunk_length": 64, "batch_size": 8, "learning_rate": 1e-3, "precision": "float32"}


def batch(seed, n=40, d=6, v=9, dtype=torch.float64):
    """Embeddings, labels with some classes of one sample and some absent ones, and classifier rows."""
    generator = torch.Generator().manual_seed(seed)
    h, weight = (torch.randn(k, d, generator=generator, dtype=torch.float64) + 1 for k in (n, v))
    labels = torch.randint(v - 2, (n,), generator=generator)
    labels[0] = v - 2
    return h.to(dtype).requires_grad_(), labels, weight.to(dtype).requires_grad_()


def expected(h, labels, weight):
    """The three losses from their definitions, class by class and pair by pair, in NumPy's float64."""
    h, labels, weight = (each.detach().double().numpy() for each in (h, labels, weight))
    ids = np.unique(labels).astype(int)
    means = np.array([h[labels == c].mean(0) for c in ids])
    variances = [np.mean([np.sum((x - m) ** 2) for x in h[labels == c]]) for c, m in zip(ids, means, strict=True)]
    units = np.array([m / np.linalg.norm(m) for m in means - means.mean(0)])
    pairs = [(i, j) for i in range(len(ids)) for j in range(i)]
    return {
        "nc3": 1 - np.mean([w @ u / np.linalg.norm(w) for w, u in zip(weight[ids], units, strict=True)]),
        "uniformity": np.mean([-math.log(np.linalg.norm(units[i] - units[j])) for i, j in pairs]),
        "cdnv": np.mean(variances) / np.mean([np.sum((means[i] - means[j]) ** 2) for i, j in pairs]),
    }


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_its_definition_and_so_is_its_gradient(name, seed):
    of = batch(seed)
    assert LOSSES[name](*of).item() == pytest.approx(expected(*of)[name], rel=1e-9)
    h, labels, weight = batch(seed, n=12)
    assert torch.autograd.gradcheck(lambda h, weight: LOSSES[name](h, labels, weight, None), (h, weight))
    half = LOSSES[name](*batch(seed, dtype=torch.bfloat16))
    assert half.dtype == torch.float32
    assert half.item() == pytest.approx(expected(*batch(seed, dtype=torch.bfloat16))[name], rel=1e-5)


def test_the_losses_of_a_collapsed_batch_and_of_equal_means():
    rows = simplex_etf(7, 6, seed=0).double()
    labels = torch.arange(7).repeat(3)
    of = 5 * rows[labels] + 2, labels, rows
    at = {name: loss(*of).item() for name, loss in LOSSES.items()}
    assert at == pytest.approx({"nc3": 0, "uniformity": math.log(6 / 14) / 2, "cdnv": 0}, abs=1e-7)
    same = torch.cat([of[0], of[0][:3]]), torch.cat([labels, torch.full((3,), 8)]), rows  # class 8 has the mean of 0–2
    assert math.isfinite(uniformity(*same).item())


def test_fixed_rows():
    for V, d in ((2, 16), (17, 16), (12, 16)):
        rows = simplex_etf(V, d, seed=1).double()
        gram = (torch.eye(V) - 1 / V) * V / (V - 1)
        torch.testing.assert_close(rows @ rows.T, gram.double(), rtol=0, atol=1e-7)
        found = collapse.measure(statistics_of(rows), metrics="nc2.etf_error")
        assert V == 2 or found["nc2.etf_error"] == pytest.approx(0, abs=1e-6)
    rows = random_frame(200, 16, seed=1)
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(200))
    assert not torch.equal(rows, random_frame(200, 16, seed=2))


@pytest.mark.parametrize("head", HEADS)
def test_a_head_is_counted_frozen_and_leaves_other_initial_weights(head):
    recipe = Recipe(2, 32, vocabulary=33, heads=4, chunk_length=16, head=head)
    model, tied = build(recipe), build(Recipe(2, 32, vocabulary=33, heads=4, chunk_length=16))
    assert sum(parameter.numel() for parameter in model.parameters()) == recipe.n_params
    assert model.lm_head.weight.requires_grad == (not head.startswith("fixed"))
    assert (model.lm_head.weight is model.transformer.wte.weight) == (head == "tied")
    for name, parameter in tied.transformer.named_parameters():
        assert torch.equal(parameter, model.transformer.get_parameter(name)), name


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_what_training_adds_and_evaluation_does_not(precision):
    plain = Recipe(1, 32, vocabulary=40, chunk_length=24)
    model, ours = build(plain), build(Recipe(1, 32, vocabulary=40, chunk_length=24, regularize={"nc3": 0.5, "cdnv": 2}))
    tokens = torch.randint(40, (4, 24), generator=torch.Generator().manual_seed(0))
    labels = tokens.clone()
    labels[3] = -100  # padding of a batch that is shared among processes
    with torch.autocast("cpu", precision, enabled=precision != torch.float32):

        def loss(of, part=slice(None), **more):
            return of(tokens[part], labels=labels[part], **more).loss.item()

        added = loss(ours) - loss(model)
        h = model.transformer(tokens).last_hidden_state[:3, :-1].flatten(0, 1).to(precision)
        at = expected(h, tokens[:3, 1:].flatten(), model.lm_head.weight.to(precision))
        assert added == pytest.approx(0.5 * at["nc3"] + 2 * at["cdnv"], rel=1e-3)
        # micro-batches, one of which is only padding, add up to the mean of their regularizers
        parts = [loss(ours, slice(k, k + 1), num_items_in_batch=3 * 23) for k in range(4)]
        assert parts[3] == 0
        single = [loss(ours, slice(k, k + 1)) for k in range(3)]
        assert sum(parts) == pytest.approx(np.mean(single), rel=1e-5)
        assert loss(ours.eval()) == loss(model.eval())


def test_a_run_is_resumed_with_its_losses_only_and_is_measured_and_published(words, tmp_path, run):
    name = "texts-02x0016_01d_nc3-0.1_uniformity-0.01_fixed-frame"
    chosen = "--head fixed-frame --regularize uniformity:0.01 --regularize nc3:0.1".split()
    command = ["zoo", "train", "2x16", *words(*chosen, "--micro-batch", 4)]
    run(*command, "--measure", cwd=tmp_path)
    made = Run(tmp_path / "runs" / name)
    for other in ("nc3:0.2", "uniformity:0.01"):
        refused = run(*command[:3], *words("--regularize", other, "--output", made.path), code=None)
        assert "holds a run with other settings: " in refused.stderr
        assert "regularize {" in refused.stderr
    recipe = made.record["recipe"]
    assert (recipe["head"], recipe["regularize"]) == ("fixed-frame", {"nc3": 0.1, "uniformity": 0.01})
    model = AutoModelForCausalLM.from_pretrained(made.path)
    assert type(model).__module__.startswith("transformers.")
    torch.testing.assert_close(model.lm_head.weight.data, random_frame(400, 16, seed=42), rtol=0, atol=0)
    (row,) = made.results()
    assert row.model == f"{name}@0"
    assert row["val_loss"] == pytest.approx(made.epochs[0].validation["validation_loss"], rel=1e-6)
    assert row["n_params"] == made.recipe.n_params
    assert [each["model"] for each in find(name, tmp_path / "runs")] == [row.model]
    card = revisions(made, f"owner/{name}")[0]["README.md"].decode()
    assert "nc3" in card
    assert f"collapse zoo train {name}" in card
    assert parse(name).recipe.regularize == recipe["regularize"]
    made.update(state="running")  # as if it had been interrupted: a loss depends on its batch
    refused = run(*command[:-1], 8, "--output", made.path, code=None)
    assert "per_device_train_batch_size 4 and 8 (stored and requested)" in refused.stderr


WRONG = """
import collapse

def wrong(h, y, weight, bias):
    return h[:, 99]

@collapse.hookimpl
def collapse_losses():
    return {"wrong": wrong, "nc3": wrong}
"""


def test_a_plugins_loss(words, tmp_path, run):
    page = (Path(__file__).parents[2] / "docs" / "guides" / "interventions.md").read_text("utf-8")
    for name, code in ("spread", page.split('title="spread.py"\n')[1].split("```")[0]), ("wrong", WRONG):
        (tmp_path / f"{name}.py").write_text(code, "utf-8")
    command = ["-p", tmp_path / "spread.py", "-p", tmp_path / "wrong.py", "zoo", "train", "1x16"]
    command += words("--max-steps", 2, "--regularize", "spread:1")
    run(*command, "--regularize", "nc3:1", cwd=tmp_path)  # the built-in nc3
    (made,) = (tmp_path / "runs").iterdir()
    assert made.name == "texts-01x0016_01d_nc3-1_spread-1"
    refused = run(*command, "--regularize", "wrong:1", code=None, cwd=tmp_path)
    assert "wrong.wrong failed: IndexError" in refused.stderr


@pytest.mark.parametrize("changes", [{"regularize": {"nc3": -0.1, "cdnv": 1e-7}}, {"head": "fixed-frame"}])
def test_a_name_is_a_name_of_the_hub_and_has_the_whole_recipe(changes, as_user, tiny, tmp_path):
    source = find_source(text=str(tiny.text), validation_text=str(tiny.validation), tokenizer=str(tiny.model))
    recipe = Recipe(1, 16, vocabulary=500, **SMALL, max_steps=2, **changes)
    made = train(recipe, source, tmp_path / "run", device="cpu", measure=True)
    assert parse(made.name).changed(heads=4).recipe == Recipe(1, 16, heads=4, **changes)
    as_user("zoo", "publish", made.path)
    (row,) = json.loads(as_user("measure", f"owner/{made.name}", "--json", token=None, home="reader").stdout)
    assert row["measurements"] == pytest.approx(made.results()[0].measurements)
