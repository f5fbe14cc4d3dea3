"""Two stores side by side: paired differences, parts, the standard deviation over seeds, and errors."""

import json
import math
import shutil
from dataclasses import replace

import made_validations as made
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

import collapse
from collapse import CollapseError, Results, Row
from collapse.errors import UsageError
from collapse.measurement.seeds import spread_of_seeds
from collapse.stores.folding_shards import statistics_of_shards

NAMES = ["nc4", "val_loss", "val_accuracy", "perplexity", "nc2.norm"]
ERRORS = ["nc4.agreement", "perplexity", "val_accuracy", "val_loss"]


def records(table):
    return {record["measurement"]: record for record in table.records()}


def test_differences_are_paired_by_block():
    v = [made.samples(60, seed, skill=0.5 + seed / 4) for seed in (0, 1)]
    rows = records(collapse.compare(*map(made.store, v), metrics=NAMES))
    n = np.bincount(v[0]["chunk"])
    residuals = [np.bincount(each["chunk"], each["loss"]) - each["loss"].mean() * n for each in v]
    changes = (residuals[1] - residuals[0]) / (n.sum() - n)
    expected = math.sqrt(59 / 60 * (changes**2).sum())
    loss = rows["val_loss"]
    assert loss["difference"] == pytest.approx(v[1]["loss"].mean() - v[0]["loss"].mean(), rel=1e-12)
    assert loss["standard_error"] == pytest.approx(expected, rel=1e-12)
    assert loss["t"] == loss["difference"] / loss["standard_error"]
    draw, drawn = np.random.default_rng(0), []
    for _ in range(600):
        weights = np.bincount(draw.integers(0, 60, 60), minlength=60)[v[0]["chunk"]]
        means = [np.average(each["linear"] == each["ncc"], weights=weights) for each in v]
        drawn.append(means[1] - means[0])
    assert rows["nc4.agreement"]["standard_error"] == pytest.approx(np.std(drawn), rel=0.15)
    alone = [collapse.measure(made.store(each), metrics="val_loss").standard_errors["val_loss"] for each in v]
    assert loss["standard_error"] < 0.5 * math.hypot(*alone)  # chunks are hard for both models


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 12), st.integers(0, 99), st.integers(0, 99))
def test_the_other_order_has_the_other_sign_and_equal_stores_do_not_differ(chunks, a, b):
    stores = [made.store(made.samples(chunks, seed)) for seed in (a, b)]
    there, back = (records(collapse.compare(*each, metrics=NAMES)) for each in (stores, stores[::-1]))
    for name, row in there.items():
        assert row["difference"] == -back[name]["difference"]
        assert (row["A"], row["B"]) == (back[name]["B"], back[name]["A"])
        assert (row["standard_error"] is not None) == (name in ERRORS)
        assert row["standard_error"] in (None, pytest.approx(back[name]["standard_error"] or 0, rel=1e-12))
    same = collapse.compare(stores[0], stores[0], metrics=NAMES)
    assert "A and B are the same store" in same.notes
    for name, row in records(same).items():
        assert row["difference"] == 0
        assert row["standard_error"] == (0 if name in ERRORS else None)
        assert (row["t"], row["meaning"]) == (None, "equal")


def test_other_texts_are_refused_or_not_paired():
    a, b = made.samples(30), made.samples(30, 1)
    first = made.store(a)
    for change, said in (
        ({"chunk_length": 64}, "chunk lengths: 32 and 64"),
        ({"max_chunks": None}, "limits of --max-chunks: 40 and none"),
        ({"max_validation_chunks": 20}, "limits of --max-validation-chunks: 40 and 20"),
        ({"shards": 7}, "--shards: 2 and 7"),
        ({"ignore_tokens": "special"}, "--ignore-tokens: none and special"),
        ({"tokenizer": "other"}, "tokenizers, so their tokens cannot be compared: sha256"),
        ({"validation": {"name": "v"}}, "validation texts: validation.jsonl "),
        ({"corpus": {"name": "c"}}, "training texts: text.jsonl "),
    ):
        other = made.store(b, **change)
        with pytest.raises(CollapseError, match=said):
            collapse.compare(first, other)
        table = collapse.compare(first, other, metrics="val_loss", anyway=True)
        alone = [collapse.measure(each, metrics="val_loss").standard_errors["val_loss"] for each in (first, other)]
        assert records(table)["val_loss"]["standard_error"] == pytest.approx(math.hypot(*alone))
        row, notes = records(table)["val_loss"], table.notes
        assert f"A and B differ in {said}" in row["caveats"]
        assert (row["meaning"] is None) == ("tokenizer" in change)
        how = "± error of the validation text: 30 blocks, not paired; noise: |t| ≤ 2.0"
        assert (how in notes) == (row["meaning"] is not None)
    other = made.store(b, chunk_length=64, tokenizer="other")
    with pytest.raises(CollapseError, match=r"in tokenizers, .*: .* and other; chunk lengths: 32 and 64: comp"):
        collapse.compare(first, other)
    table = collapse.compare(first, made.store(b, dtype="bfloat16"), metrics="val_loss")
    assert records(table)["val_loss"]["standard_error"] < math.hypot(*alone)
    rounds, differ = "B: bfloat16 rounds each entry", "A and B differ in dtypes: float32 and bfloat16"
    caveats = records(table)["val_loss"]["caveats"]
    assert caveats.startswith(rounds)
    assert caveats.endswith(differ)
    assert f"[2] {differ}" in table.notes


def test_each_row_says_what_its_difference_means():
    v = made.samples(30)
    table = collapse.compare(made.store(v), made.store(made.samples(30, 1, skill=2)), metrics=[*NAMES, "n_params"])
    rows = records(table)
    meanings = [rows[name]["meaning"] for name in ("val_loss", "val_accuracy", "nc4.kappa", "nc2.norm", "n_params")]
    assert meanings == ["better", "better", "unknown", "equal", "equal"]
    assert table.notes == [
        "± error of the validation text: 30 blocks, paired; noise: |t| ≤ 2.0",
        "4 intervals at 95 %, uncorrected: about 0.2 would exclude 0 by chance",
        "better, worse: beyond noise; better is nearer to full collapse, or less loss",
        "unknown: no standard error; use --parts or --seeds",
    ]
    noise = made.samples(30, 5)["loss"]
    for loss, meaning in (
        (v["loss"] * (1 - 1e-7), "rounding"),
        (v["loss"] * (1 - 1e-4), "better"),
        (v["loss"] * (1 + 1e-4), "worse"),
        (noise - noise.mean() + v["loss"].mean() + 1e-4, "noise"),
    ):
        table = collapse.compare(made.store(v), made.store(v | {"loss": loss}), metrics="val_loss")
        assert records(table)["val_loss"]["meaning"] == meaning


def test_a_row_without_a_number_says_why():
    a = made.store(made.samples(30))
    table = collapse.compare(a, made.store(None), metrics=NAMES)  # not validated
    assert records(table)["val_loss"] == {
        "measurement": "val_loss",
        "A": records(table)["val_loss"]["A"],
        **dict.fromkeys(("B", "difference", "standard_error", "t", "meaning")),
        "caveats": "B: not validated yet: run collapse collect MODEL --store STORE --validation-text FILES",
    }
    assert f"[1] {records(table)['val_loss']['caveats']}" in table.notes
    assert table.for_people().rows[-1][-1] == "– [1]"
    one = [made.store(made.samples(1, seed)) for seed in (0, 1)]
    assert records(collapse.compare(*one, metrics="val_loss"))["val_loss"]["meaning"] == "unknown"


def test_the_published_seeds_are_a_yardstick_of_their_own_models():
    published = Results.read("paper").frame().query(r"model.str.fullmatch(r'02x0768_01d\d*@0')")
    assert len(published) == 21
    size = {"dim": 768, "n_params": 54_342_912}
    models = [{"model": name, **size} for name in ("TinyStories-02x0768_01d", "x/2x768_01d3@0")]
    spread, notes = spread_of_seeds("paper", models)
    for name in ("nc2.norm", "nc4.agreement", "nc3.self_duality"):
        sd, degrees, how = spread[name]
        assert sd == pytest.approx(np.std(published[name], ddof=1), rel=1e-12)
        assert (degrees, how) == (20, "seeds' sd: over 21 seeds (paper)")
    assert "nc4.kappa" not in spread
    assert notes == []
    for other in ({"n_params": 54_342_913}, {"model": "2x768_10L"}, {"model": "gpt2"}):
        with pytest.raises(CollapseError, match=r"paper has [01] models? of dim 768, n_params 543"):
            spread_of_seeds("paper", [models[0], models[0] | other])


def test_seeds_are_compared_at_one_step():
    names = ("run1", "run2", "run3/step-9", "run4/step-9")
    rows = [Row(name, None, "", "", 1, 9, 48, 99, {"nc2.norm": at / 2}) for at, name in enumerate(names)]
    model = {"model": "run/checkpoint-9", "dim": 48}
    for seeds, name in ((rows, "run"), (rows[2:], "run/checkpoint-9")):
        spread, notes = spread_of_seeds(Results(seeds), [{**model, "model": name}])
        assert (spread["nc2.norm"][0], notes) == (pytest.approx(0.125**0.5), [])
    with pytest.raises(CollapseError, match="has 0 models of dim 48, step 9"):
        spread_of_seeds(Results(rows[:2]), [model])


def test_the_seeds_of_own_models_are_a_yardstick(tmp_path):
    store = made.store(made.samples(5))
    size = {"n_params": store.manifest["model"]["n_params"]}
    own = [Row(f"m{at}", None, "", "", 1, 9, 48, 99, {"nc2.norm": at / 2, **size}) for at in range(3)]
    Results(own).write(tmp_path / "own.csv")
    for seeds in (Results(own), tmp_path / "own.csv", str(tmp_path / "own.csv")):
        table = collapse.compare(store, store, metrics="nc2.norm,nc4.kappa", seeds=seeds)
        assert [records(table)[name]["seeds_sd"] for name in ("nc2.norm", "nc4.kappa")] == [0.5, None]
        assert [note for note in table.notes if note.endswith("; seed noise: |B−A| ≤ 6.1 seeds' sd")]
    assert "seeds_sd" not in collapse.compare(store, store, metrics="nc2.norm").columns
    others = [replace(own[at % 3], model=f"2x{64 * (1 + at // 3)}_01d0{at}@0") for at in range(6)]
    for seeds, said in (
        ("papre", "papre"),
        ("paper", "paper has 0 models of dim 48, n_params 65376"),
        (Results(own[:1]), "the table has 1 model of dim 48"),
        (Results(others), "the table has 0 models of dim 48, n_params 65376, but a standard deviation needs two"),
        (Results([replace(each, dim=64) for each in own]), "the table has 0 models of dim 48"),
    ):
        with pytest.raises(UsageError if said == "papre" else CollapseError, match=said):
            collapse.compare(store, store, metrics="nc2.norm", seeds=seeds)


@pytest.fixture(scope="module")
def collected(tiny, tmp_path_factory):
    """A model and one with larger weights, each collected as a whole and in parts."""
    folder = tmp_path_factory.mktemp("compared")
    other = shutil.copytree(tiny.model, folder / "other")
    weights = load_file(other / "model.safetensors")
    save_file({key: each * 1.5 for key, each in weights.items()}, other / "model.safetensors")
    options = {**tiny.options(), "max_chunks": 48}
    for name, model in (("a", tiny.model), ("b", other)):
        collapse.collect(model, store=folder / name, **options)
        for part in (1, 2):
            collapse.collect(model, store=folder / "parts" / name / str(part), part=(part, 2), **options)
    return folder


def test_training_measurements_have_errors_from_parts(collected):
    parts = [[collected / "parts" / name / part for part in "21"] for name in "ab"]
    table = collapse.compare(collected / "a", collected / "b", metrics="nc1,nc2,nc4,val_loss", parts=parts)
    rows = records(table)
    halves = [[statistics_of_shards(collapse.Part.load(each).shards) for each in side[::-1]] for side in parts]
    measured = [[collapse.measure(each, metrics="nc1,nc2") for each in side] for side in halves]
    for name in measured[0][0].measurements:
        if any(each[name] is None for side in measured for each in side):
            assert rows[name]["standard_error"] is None
            continue
        d = [measured[1][k][name] - measured[0][k][name] for k in (0, 1)]
        assert rows[name]["standard_error"] == pytest.approx(abs(d[0] - d[1]) / 2, rel=1e-9), name
    assert rows["nc4.agreement"]["standard_error"] is not None
    assert rows["nc4.kappa"]["standard_error"] is None
    assert "± error of the training text: jackknife of 2 parts, paired; noise: |t| ≤ 12.7" in table.notes
    for row in filter(lambda row: row["t"] is not None and "validation" not in row["measurement"], rows.values()):
        assert (row["meaning"] == "noise") == (
            abs(row["t"]) <= (2.1 if row["measurement"][:3] in ("nc4", "val") else 12.7)
        )


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([["a/1"], ["b/1", "b/2"]], "at least two parts are needed, got 1"),
        ([["a/1", "a/1"], ["b/1", "b/2"]], "overlap: both hold"),
        ([["b/1", "b/2"], ["a/1", "a/2"]], "is not a part of"),
        ([["a/1", "../a"], ["b/1", "b/2"]], "holds no part of a collection"),
    ],
)
def test_wrong_parts_are_refused(collected, parts, said):
    folder = collected / "parts"
    given = [[folder / part for part in side] for side in parts]
    with pytest.raises(CollapseError, match=said):
        collapse.compare(collected / "a", collected / "b", metrics="nc2.norm", parts=given)


def test_the_command_compares(collected, out, told, tmp_path):
    words = ["compare", collected / "a", collected / "b"]
    parts = ("--parts", collected / "parts/a", collected / "parts/b", "--json")
    shown = json.loads(out(*words, *parts))
    rows = {record["measurement"]: record for record in shown["rows"]}
    assert None not in (rows["nc1.cdnv"]["t"], rows["val_loss"]["t"])
    assert "seeds_sd" not in rows["nc1.cdnv"]
    assert "paper has 0 models of dim 48" in told(1, *words, "--seeds", "paper")
    row = collapse.measure(collected / "a")
    Results([replace(row, model=f"m{at}") for at in (1, 2)]).write(tmp_path / "seeds.csv")
    with_seeds = json.loads(out(*words, *parts, "--seeds", tmp_path / "seeds.csv"))["rows"]
    assert {each["measurement"]: each for each in with_seeds}["nc1.cdnv"]["seeds_sd"] == 0
    sides = [str(collected / "parts" / side) for side in "ab"]
    table = collapse.compare(collected / "a", collected / "b", metrics="nc1.cdnv", parts=sides)
    assert records(table)["nc1.cdnv"]["t"] == rows["nc1.cdnv"]["t"]
    assert len(collapse.convergence(sides[0], metrics="nc1.cdnv").rows) == 2
    named = ",".join(str(collected / "parts/a" / part) for part in "12")
    assert json.loads(out(*words, "--parts", named, collected / "parts/b", "--json")) == shown
    written = out(*words, "--metrics", "nc4", "--output", tmp_path / "c.csv")
    assert "B−A" in written
    csv = (tmp_path / "c.csv").read_text()
    assert csv.startswith("measurement,A,B,difference,standard_error,t,meaning,caveats\n")
    assert "nc2.norm" in out(*words, "--all")
    assert "merge the parts: collapse merge" in told(1, "compare", collected / "parts/a/1", collected / "b")
    assert "holds no part of a collection" in told(1, *words, "--parts", tmp_path, collected / "parts/b")
