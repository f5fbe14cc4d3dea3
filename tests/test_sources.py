"""Sources of one's own: collapse.collect, and plugins that give a source for a MODEL name."""

import numpy as np
import pytest
import reference
import torch
from golden_store import seal
from safetensors.torch import load_file, save_file

import collapse
from collapse.errors import CollapseError, StoreError, UsageError
from collapse.stores.tensor_files import manifest_entry
from collapse.testing import random_features

DATA = random_features(6, 4, 900)


def made(weights="one", labels=None, embed=None, **changes):
    """A source of random features."""

    def samples(phase):
        h, y = DATA[f"{phase}_features"], DATA[f"{phase}_labels"]
        return collapse.Samples(phase, y if labels is None else labels, embed or (lambda start, stop: h[start:stop]))

    given = {"weight": DATA["classifier"], "bias": DATA.get("classifier_bias")}
    given |= {"train": samples("train"), "validation": samples("validation") if "validation_features" in DATA else None}
    about = {"identity": {"weights": weights}, "model": {"name": "mine"}, "corpus": {"name": "points"}}
    return collapse.Source(**{**about, **given, **changes})


def test_a_source_has_the_numbers_of_its_arrays_and_resumes(tmp_path):
    store = collapse.collect(made(), store=tmp_path / "store")
    row = collapse.measure(store)
    arrays = {name.replace("train_", ""): each for name, each in DATA.items() if name != "classifier_bias"}
    of_arrays = collapse.measure(**arrays, bias=DATA.get("classifier_bias"))
    assert reference.present(row.measurements) == pytest.approx(
        {name: of_arrays[name] for name in reference.present(row.measurements)}, rel=1e-9, abs=1e-12
    )
    assert (row.model, row.corpus, row.samples) == ("mine", "points", 900)

    def never(start, stop):
        raise AssertionError("it is collected again")

    assert collapse.collect(made(embed=never), store=tmp_path / "store").digest == store.digest
    with pytest.raises(StoreError, match="weights: one"):
        collapse.collect(made("two"), store=tmp_path / "store")
    calls = []

    def stops(start, stop):
        calls.append((start, stop))
        if len(calls) > 3:
            raise CollapseError("stopped")
        return DATA["train_features"][start:stop]

    with pytest.raises(CollapseError, match="stopped"):
        collapse.collect(made(embed=stops), store=tmp_path / "killed", batch_size=8)
    resumed = collapse.collect(made(), store=tmp_path / "killed", batch_size=8)
    assert resumed.digest == collapse.collect(made(), batch_size=8).digest
    part = collapse.collect(made(), store=tmp_path / "part", part=(1, 2))
    assert isinstance(part, collapse.Part)


def test_wrong_counts_are_found_as_in_a_store_of_a_text(tmp_path):
    store = collapse.collect(made(), store=tmp_path / "store")
    file = tmp_path / "store" / "top" / "train.safetensors"
    tensors = load_file(file)
    save_file(tensors | {"counts": 2 * tensors["counts"]}, file)
    entry = {"top/train.safetensors": manifest_entry(file.read_bytes())}
    seal(store.path, lambda manifest: manifest["files"].update(entry))
    assert "counts 1,800 samples, but 900 were collected" in collapse.load(store.path).verify()[0]


def test_units_of_several_samples_leave_positions_out():
    h, y = DATA["train_features"].reshape(90, 10, 4), DATA["train_labels"].reshape(90, 10).clone()
    y[:, 7:] = -100
    source = made(labels=y, embed=lambda start, stop: h[start:stop, :7], validation=None)
    expected = collapse.measure(
        features=h[:, :7].reshape(-1, 4), labels=y[:, :7].reshape(-1), classifier=DATA["classifier"], metrics="nc1,nc3"
    )
    row = collapse.measure(collapse.collect(source), metrics="nc1,nc3")
    assert row.samples == 630
    first = DATA["train_labels"].where(torch.arange(900) < 500, -100)
    assert collapse.measure(collapse.collect(made(labels=first, validation=None)), metrics="nc2").samples == 500
    known = {name: each for name, each in row.measurements.items() if each is not None}
    assert known == pytest.approx({name: expected[name] for name in known}, rel=1e-9)


def test_what_is_wrong_with_a_source_is_said():
    bytes_ = np.asarray(DATA["train_labels"], np.uint8)
    assert collapse.collect(made(labels=bytes_, validation=None)).statistics().n_classes == 6
    for labels, said in (
        (np.ones(3), "integers"),
        (np.full(900, 2**32), "rows 0 to 5"),
        (np.full(900, -100), "no train samples"),
    ):
        with pytest.raises(CollapseError, match=said):
            made(labels=labels)
    with pytest.raises(
        CollapseError, match=r"must return floating-point embeddings of shape \(\d+, 4\), .*, got .*32 \[2, 4\]"
    ):
        collapse.collect(made(embed=lambda start, stop: torch.zeros(2, 4)))
    broken = DATA["train_features"].clone()
    broken[5, 1] = torch.nan
    with pytest.raises(CollapseError, match="train sample 5 is NaN"):
        collapse.collect(made(embed=lambda start, stop: broken[start:stop]))
    with pytest.raises(UsageError, match="--chunk-length does not apply"):
        collapse.collect(made(), chunk_length=8)


WEIGHT = DATA["classifier"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"identity": {}}, "the source's identity is empty"),
        ({"model": {}}, "the source's model has no name"),
        ({"corpus": {}}, "the source's corpus has no name"),
        ({"weight": WEIGHT[0]}, r"weight must be floating-point numbers of shape \(V, d\), got .* \[4\]"),
        ({"weight": "head"}, "weight cannot be read as an array of numbers"),
        ({"bias": WEIGHT[:, :1]}, r"bias must be floating-point numbers of shape \(V,\)"),
        ({"bias": torch.zeros(5)}, "weight has 6 rows, but its bias has 5"),
        ({"model": {"name": "m", "classes": ["a"]}}, "classes must name the classes 0 to 5, got 1"),
        ({"model": {"name": "m", "classes": dict.fromkeys(range(1, 7), "a")}}, "classes must name the classes 0 to 5"),
    ],
)
def test_a_source_is_checked_when_it_is_made(changes, said):
    with pytest.raises(CollapseError, match=said):
        made(**changes)


@pytest.mark.parametrize("wrong", [None, torch.zeros(32, 5), torch.zeros(32, 4).long()])
def test_what_embed_returns_is_checked(wrong):
    with pytest.raises(CollapseError, match=r"embed\(0, 32\) of the train samples"):
        collapse.collect(made(embed=lambda start, stop: wrong))


def test_a_plugin_gives_a_source_for_a_name(tmp_path, run):
    (tmp_path / "mine.py").write_text(PLUGIN)
    done = run("-p", "mine.py", "measure", "mine:points", "--output", "row.json", cwd=tmp_path)
    assert "mine:points on a table" in done.stdout
    run("-p", "mine.py", "collect", "mine:points", "--store", "s", cwd=tmp_path)
    failed = run("-p", "mine.py", "measure", "mine:points", "--text", "t.jsonl", code=None, cwd=tmp_path)
    assert "mine:points is a source of plugin mine.py: --text does not apply; remove the option" in failed.stderr
    unknown = run("-p", "mine.py", "measure", "mine:lines", code=None, cwd=tmp_path)
    assert "no model, store or features file is called mine:lines" in unknown.stderr


PLUGIN = """
import torch
import collapse


@collapse.hookimpl
def collapse_sources(model):
    if model != "mine:points":
        return None
    y, weight = torch.arange(60) % 3, torch.eye(3, 4)
    h = weight[y] + torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    return collapse.Source(
        identity={"weights": "version 1"},
        model={"name": model},
        corpus={"name": "a table"},
        weight=weight,
        train=collapse.Samples("train", y, lambda start, stop: h[start:stop]),
    )
"""
