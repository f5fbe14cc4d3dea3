"""``--ood-text`` and the row before: metrics that read the statistics of another store."""

import json
from dataclasses import replace
from pathlib import Path

import classifier_files
import numpy as np
import pytest
import torch

import collapse
from collapse.errors import UsageError

NC5, SIMILARITY = "nc5.ood_orthogonality", "transient.similarity"


def orthogonality(s, ood):
    """NC5 in NumPy."""
    means, other = s.means.numpy(), np.average(ood.means.numpy(), axis=0, weights=ood.counts.numpy())
    cosines = means @ other / np.linalg.norm(means, axis=1) / np.linalg.norm(other)
    return float(np.abs(cosines).mean())


def similarity(s, before):
    """Linear CKA in NumPy, from C×C matrices."""
    a, b = (each.means.numpy() - each.means.numpy().mean(axis=0) for each in (s, before))
    a, b = a @ a.T, b @ b.T
    return float((a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b))


def test_the_other_text_is_collected_once_and_named(tiny, out, own_home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["measure", *tiny.words("--max-chunks", 8, "--ood-text", tiny.validation)]
    first = json.loads(out(*words, "--json"))[0]
    stores = sorted((own_home / "stores").iterdir())
    found = {each.corpus: each for each in map(collapse.load, map(str, stores))}
    ood = found["validation.jsonl"]
    assert len(stores) == 2
    assert ood.state == "trained"
    assert ood.identity["chunk_length"] == 32
    value = orthogonality(found["text.jsonl"].statistics(), ood.statistics())
    assert first["measurements"][NC5] == pytest.approx(value, rel=1e-9)
    assert first["ood"] == "validation.jsonl"
    shown = " ".join(out(*words).split())
    assert "out of distribution: validation.jsonl" in shown
    assert f"NC5 {NC5}" in shown
    out(*words, "--output", "results.csv")
    assert "orthogonality" in out("results", "results.csv")
    assert sorted((own_home / "stores").iterdir()) == stores
    again = collapse.measure(tiny.model, **tiny.options(), max_chunks=8, ood_text=tiny.validation)
    assert again[NC5] == first["measurements"][NC5]
    given = collapse.measure(found["text.jsonl"], ood_text=ood)
    assert given.measurements == again.measurements


def test_without_another_text_it_is_not_measured(whole, out):
    assert NC5 not in collapse.measure(whole)
    assert NC5 not in out("measure", whole.path, "--all")
    row = collapse.measure(whole, metrics="nc5")
    assert row[NC5] is None
    assert row.notes[0].text == "no out-of-distribution text was given: add one with --ood-text"
    assert "ood" not in row.frame()


def test_layers_and_groups_read_their_own_layer(tiny, tmp_path, out):
    options = {**tiny.options(), "layers": "all"}
    store = collapse.collect(tiny.model, store=tmp_path / "store", **options)
    other = collapse.collect(tiny.model, store=tmp_path / "ood", text=tiny.validation, chunk_length=32, layers="all")
    rows = collapse.measure_layers(store, metrics=["nc5", SIMILARITY], ood_text=other).rows
    assert len(rows) == 3
    before = None
    for row in rows:
        s = store.statistics(row.layer)
        assert row[NC5] == pytest.approx(orthogonality(s, other.statistics(row.layer)), rel=1e-9)
        assert row[SIMILARITY] == (None if before is None else pytest.approx(similarity(s, before), rel=1e-9))
        before = s
    words = ("measure", store.path, "--layers", "all", "--ood-text", other.path, "--json")
    found = json.loads(out(*words, "--metrics", f"nc5,{SIMILARITY}"))
    assert [each["measurements"] for each in found] == [row.measurements for row in rows]
    groups = json.loads(out("measure", store.path, "--group-by", "count", "--ood-text", other.path, "--json"))
    s, ids = store.statistics(), other.statistics()
    weighted = sum(row["measurements"][NC5] * row["classes"] for row in groups) / s.n_classes
    assert weighted == pytest.approx(orthogonality(s, ids), rel=1e-9)


def test_checkpoints_are_compared_with_the_one_before(tiny, tmp_path, out):
    transformers = pytest.importorskip("transformers")
    for step in (1, 2, 3):
        torch.manual_seed(step)
        model = transformers.AutoModelForCausalLM.from_pretrained(tiny.model)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.02 * torch.randn_like(parameter)
        folder = tmp_path / "run" / f"checkpoint-{step}"
        model.save_pretrained(folder)
        for file in tiny.model.glob("token*"):
            (folder / file.name).write_bytes(file.read_bytes())
    how = {**tiny.options(), "max_chunks": 8, "layers": "0", "metrics": [SIMILARITY, NC5], "ood_text": tiny.validation}
    rows = collapse.trajectory(tmp_path / "run", revisions="*", store=tmp_path / "stores", **how).rows
    assert [(row.step, row.layer) for row in rows] == [(1, "0"), (1, "top"), (2, "0"), (2, "top"), (3, "0"), (3, "top")]
    stores = [collapse.load(str(tmp_path / "stores" / f"checkpoint-{step}")) for step in (1, 2, 3)]
    for at, row in enumerate(rows):
        step = at // 2
        s = stores[step].statistics(row.layer)
        expected = None if not step else similarity(s, stores[step - 1].statistics(row.layer))
        assert row[SIMILARITY] == (None if expected is None else pytest.approx(expected, rel=1e-9))
    words = ["measure", tmp_path / "run", "--revisions", "*", "--store", tmp_path / "stores", *tiny.words()[1:]]
    words += ["--max-chunks", 8, "--layers", 0, "--metrics", SIMILARITY, "--json"]
    found = json.loads(out(*words))
    assert [each["measurements"][SIMILARITY] for each in found] == [row[SIMILARITY] for row in rows]
    found = json.loads(out("measure", *(each.path for each in stores), "--metrics", SIMILARITY, "--json"))
    assert [each["measurements"][SIMILARITY] for each in found] == [row[SIMILARITY] for row in rows[1::2]]


def test_a_classifier_is_measured_on_other_data(tmp_path):
    classifier_files.save_bert(tmp_path / "bert", "BertForSequenceClassification")
    for name, rows, seed in (("train", 90, 0), ("other", 40, 1)):
        classifier_files.write_rows(tmp_path / f"{name}.jsonl", rows, seed)
    how = {"task": "sequence-classification", "data": tmp_path / "train.jsonl"}
    row = collapse.measure(tmp_path / "bert", **how, ood_text=tmp_path / "other.jsonl", metrics="nc5")
    s = collapse.collect(tmp_path / "bert", **how)
    other = collapse.collect(tmp_path / "bert", **how | {"data": tmp_path / "other.jsonl"})
    assert row[NC5] == pytest.approx(orthogonality(s.statistics(), other.statistics()), rel=1e-9)
    assert row.ood == "other.jsonl"
    by_name = collapse.measure_groups(s, ["|".join(classifier_files.CLASSES[:2])], metrics="nc2.norm").rows
    assert [each.classes for each in by_name] == [2]
    (tmp_path / "empty").mkdir()  # the training data are not read
    with pytest.raises(UsageError, match=r"no file matches .*/others\.jsonl; did you mean .*/other\.jsonl"):
        collapse.measure(tmp_path / "empty", **how, ood_text=tmp_path / "others.jsonl")


def test_features_and_statistics_have_one_too(tmp_path):
    from safetensors.torch import save_file

    from collapse.testing import random_features, statistics_of

    made = random_features(6, 4, 90)
    save_file(made, tmp_path / "a.safetensors")
    save_file({**made, "train_features": made["train_features"].square()}, tmp_path / "b.safetensors")
    row = collapse.measure(tmp_path / "a.safetensors", ood_text=tmp_path / "b.safetensors", metrics="nc5")
    mean = made["train_features"].double().square().mean(dim=0, keepdim=True)
    s = collapse.collect(tmp_path / "a.safetensors").statistics()
    assert row[NC5] == pytest.approx(orthogonality(s, statistics_of(mean)), rel=1e-6)
    live = collapse.measure(s, ood_text=statistics_of(mean), metrics="nc5")
    assert live[NC5] == pytest.approx(row[NC5], rel=1e-6)
    assert live.ood == "statistics"
    for absent in ("nope.jsonl", "nope.safetensors"):
        with pytest.raises(UsageError, match=f"--ood-text {absent}: .*a.safetensors is not run on texts: give a store"):
            collapse.measure(tmp_path / "a.safetensors", ood_text=absent, metrics="nc5")


def test_what_is_refused(whole, tiny, told, tmp_path):
    said = told(2, "measure", whole.path, "--ood-text", tiny.validation)
    assert "is a store, whose model is not run: give its model, or collect" in said
    missing = told(2, "measure", whole.path, "--ood-text", "nope.jsonl")
    assert "--ood-text: there is no store nope.jsonl, and" in missing
    identity = {**whole.manifest["identity"], "weights": "sha256:other"}
    other = collapse.Store({**whole.manifest, "identity": identity}, whole.path)
    with pytest.raises(UsageError, match="ood_text is a store of another model"):
        collapse.measure(whole, ood_text=other, metrics="nc5")
    narrow = replace(whole.statistics(), means=whole.statistics().means[:, :3])
    with pytest.raises(UsageError, match="ood_text is a store of another model"):
        collapse.measure(whole, ood_text=narrow, metrics="nc5")
    assert Path(whole.path).exists()
