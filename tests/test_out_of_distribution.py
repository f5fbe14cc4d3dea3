"""``--ood-text`` and the row before: metrics that read the statistics of another store."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import classifier_files
import numpy as np
import pytest
import reference_geometry
import torch
import transformers

import collapse
from collapse.errors import UsageError

NC5, SIMILARITY = "nc5.ood_orthogonality", "transient.similarity"


def orthogonality(s, ood):
    return reference_geometry.orthogonality(s.means.numpy(), ood.means.numpy(), ood.counts.numpy())


def similarity(s, before):
    return reference_geometry.similarity(s.means.numpy(), before.means.numpy())


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


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a model of each kind and its data, and other data without labels."""
    folder = classifier_files.save_all(tmp_path_factory.mktemp("classifiers"))
    for number, file in enumerate(sorted((folder / "held").rglob("*.png"))):
        for name in (f"flat/{number}.png", f"folders/{'eel' if number % 3 else 'ant'}/{number}.png"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, folder / name)
    rows = [json.loads(line) for line in (folder / "held.jsonl").read_text().splitlines()]
    strange = [{"label": "eel", "ner_tags": ["O"] * len(row["tokens"])} for row in rows]
    for name, changed in (("flat", [{}] * len(rows)), ("folders", strange)):
        lines = ({each: row[each] for each in ("text", "tokens")} | new for row, new in zip(rows, changed, strict=True))
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.mark.parametrize("name", classifier_files.KINDS)
def test_labels_of_a_classifiers_other_data_are_not_read(made, name):
    task = classifier_files.KINDS[name][0]
    train, flat, folders, held = (
        made / (each if task == classifier_files.IMAGES else f"{each}.jsonl")
        for each in ("train", "flat", "folders", "held")
    )
    how = {"task": task, "data": train, "dtype": "float64", "metrics": "nc5"}
    h, y, _ = classifier_files.embeddings(made / name, task, train)
    other = classifier_files.embeddings(made / name, task, flat)[0].numpy()
    means = np.stack([h.numpy()[np.array(y) == each].mean(axis=0) for each in {*y}])
    expected = reference_geometry.orthogonality(means, other, np.ones(len(other)))
    for data in (flat, folders, held):
        row = collapse.measure(made / name, **how, ood_text=data)
        assert row[NC5] == pytest.approx(expected, rel=1e-9), data
        assert row.ood == data.name


def test_a_classifiers_other_data_are_found_by_what_is_read(made, own_home, tmp_path, hub, out, as_user):
    import datasets

    words = ["measure", made / "vit", "--task", "image-classification", "--data", made / "train"]
    renamed = shutil.copytree(made / "folders", tmp_path / "folders")
    (renamed / "eel").rename(renamed / "fly")
    first, second = (json.loads(out(*words, "--ood-data", each, "--json")) for each in (made / "folders", renamed))
    assert first == second
    assert len([*(own_home / "stores").iterdir()]) == 2  # of equal images
    label = datasets.ClassLabel(names=["eel", "fly"])
    features = datasets.Features({"text": datasets.Value("string"), "kind": label})
    texts = [json.loads(line)["text"] for line in (made / "held.jsonl").read_text().splitlines()]
    datasets.Dataset.from_dict({"text": texts, "kind": [0] * len(texts)}, features).to_parquet(tmp_path / "a.parquet")
    content = (tmp_path / "a.parquet").read_bytes()
    hub.add("owner/other", {"train-0.parquet": content, "validation-0.parquet": content}, kind="datasets")
    words = ["--task", "sequence-classification", "--data", made / "train.jsonl"]
    as_user("measure", made / "sequences", *words, "--ood-data", "owner/other", "--output", tmp_path / "a.json")
    (row,) = collapse.Results.read(tmp_path / "a.json").rows
    other = collapse.collect(
        made / "sequences", task=words[1], data=made / "flat.jsonl", columns="text,", store=tmp_path / "other"
    )
    assert other.statistics().n_classes == 1
    given = collapse.measure(made / "sequences", task=words[1], data=words[3], ood_text=other)
    assert row[NC5] == pytest.approx(given[NC5], rel=1e-12)
    by_name = "|".join(classifier_files.CLASSES[:2])
    words = ["measure", made / "sequences", *words, "--group-by", by_name, "--metrics", "nc2.norm,nc5", "--json"]
    (group,) = json.loads(out(*words, "--ood-data", tmp_path / "other"))
    assert group["classes"] == 2
    (tmp_path / "empty").mkdir()  # the training data are not read
    how = {"task": "sequence-classification", "data": made / "train.jsonl"}
    with pytest.raises(UsageError, match=r"no file matches .*/fla\.jsonl; did you mean .*/flat\.jsonl"):
        collapse.measure(tmp_path / "empty", **how, ood_text=made / "fla.jsonl")


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
        with pytest.raises(
            UsageError,
            match=f"--ood-text {absent} is neither a store nor a features file",
        ):
            collapse.measure(tmp_path / "a.safetensors", ood_text=absent, metrics="nc5")


def test_what_is_refused(whole, tiny, told):
    said = told(2, "measure", whole.path, "--ood-text", tiny.validation)
    assert "is a store, so its model cannot be run on" in said
    identity = {**whole.manifest["identity"], "weights": "sha256:other"}
    other = collapse.Store({**whole.manifest, "identity": identity}, whole.path)
    with pytest.raises(UsageError, match="ood_text is of another model"):
        collapse.measure(whole, ood_text=other, metrics="nc5")
    narrow = replace(whole.statistics(), means=whole.statistics().means[:, :3])
    with pytest.raises(UsageError, match="ood_text is of another model"):
        collapse.measure(whole, ood_text=narrow, metrics="nc5")
    assert Path(whole.path).exists()
