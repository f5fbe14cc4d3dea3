"""Options given with a finished store: options that differ from it are refused; one bad store does not stop others."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import save_file

import collapse
from collapse.errors import UsageError
from collapse.testing import random_features


@pytest.fixture(scope="module")
def features(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("features") / "f.safetensors"
    save_file(random_features(6, 4, 60), path)
    return path


def test_a_store_is_measured_as_it_is(told, tiny, stored, tmp_path):
    for words in (("--text", tiny.text), ("--no-fast-attention",), ("--recollect",)):
        for models in ((stored.path,), (tiny.model, stored.path)):
            said = told(2, "measure", *models, "--metrics", "nc3", *words)
            assert f"{stored.path} is a finished store: {words[0]} does not apply; remove the option" in said
    assert "is a store or a part: --store" in told(2, "measure", stored.path, "--store", tmp_path / "s")
    assert not (tmp_path / "s").exists()
    told(0, "measure", stored.path, "--metrics", "nc3", "--device", "cpu", "--batch-size", 4)
    message = told(2, "measure", tiny.model, "other", "--store", stored.path, *tiny.words()[1:])
    assert f"{stored.path} is a store: for several models, give a folder of stores with --store" in message


def test_stores_of_several_models_are_named_after_them(told, tiny, tmp_path):
    folders = [shutil.copytree(tiny.model, tmp_path / name) for name in ("x/checkpoint-25", "y/m-0.5")]
    told(0, "measure", *folders, *tiny.words("--max-chunks", 2, "--metrics", "nc3", "--store", tmp_path / "s")[1:])
    assert sorted(each.name for each in (tmp_path / "s").iterdir()) == ["checkpoint-25", "m-0.5"]
    said = told(2, "measure", "a/final", "b/final", "--store", tmp_path / "s", "--launcher", "local")
    assert f"the stores of a/final and b/final would have the same folder, {tmp_path / 's' / 'final'}: " in said


@pytest.mark.parametrize("name", ["exp--1", "x[1]", "new\nline", "a@b"])
def test_models_and_stores_may_have_any_name(told, tiny, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    model = Path("runs") / name
    shutil.copytree(tiny.model, model)
    options = [*tiny.words("--max-chunks", 4, "--batch-size", 4)[1:]]
    told(0, "collect", model, *options, "--store", f"stores/{name}", "--tokenizer", model)
    told(0, "measure", f"stores/{name}", "--metrics", "nc1", "--output", f"{name}.json")
    told(0, "verify", f"stores/{name}")
    assert json.loads(Path(f"{name}.json").read_text())[0]["model"] == name


def test_options_that_do_not_apply_to_a_features_file(told, features, tiny, tmp_path):
    for words in (("--text", tiny.text), ("--eos-between",)):
        message = f"{features} is a features file: {words[0]} does not apply"
        assert message in told(2, "measure", features, *words), words
        assert message in told(2, "collect", features, "--store", tmp_path / "s", *words), words
    assert "--part does not apply" in told(2, "collect", features, "--store", tmp_path / "s", "--part", "2/2")
    assert not (tmp_path / "s").exists()
    told(0, "measure", features, "--metrics", "nc3", "--batch-size", 4, "--without", "covariance")


def test_collect_on_a_finished_store_compares_every_option(tiny, stored):
    same = {"validation_text": str(tiny.validation), "max_chunks": 24}
    assert collapse.collect(tiny.model, store=stored.path, text_column="text", **same).state == "complete"
    for given, said in (
        ({"text_column": "story"}, "determines the training text: remove --text-column, or also give --text"),
        ({"split": "test"}, "determines the training text: remove --split"),
        ({"validation_split": "foo"}, "--validation-split foo does not apply"),
        ({"shards": 3, **same}, r"shards: 2 \(stored\), 3 \(requested\)"),
    ):
        with pytest.raises(collapse.CollapseError, match=said):
            collapse.collect(tiny.model, store=stored.path, **given)


def test_a_store_decides_its_local_texts(tiny, stored):
    assert collapse.collect(tiny.model, store=stored.path).state == "complete"
    with pytest.raises(collapse.CollapseError, match=r"lacks 1 layer \(0\), and collecting layers needs the training"):
        collapse.collect(tiny.model, store=stored.path, layers="0")


def test_a_folder_of_stores_is_not_a_store(tiny, stored, tmp_path):
    shutil.copytree(stored.path, tmp_path / "a")
    with pytest.raises(collapse.CollapseError, match=r"is a folder of stores \(a\): choose a folder in it for --store"):
        collapse.collect(tiny.model, store=tmp_path, **tiny.options())


def test_options_that_do_not_apply_to_local_texts(told, tiny, tmp_path):
    with pytest.raises(UsageError, match="--part needs a folder for the part: give --store"):
        collapse.collect(tiny.model, part=(1, 2), **tiny.options())
    local = f"{tiny.text.name} is local and has no splits: remove --split test"
    assert local in told(2, "collect", *tiny.words("--store", tmp_path / "s"), "--split", "test")
    with pytest.raises(UsageError, match="--validation-split test does not apply without a validation text"):
        collapse.collect(tiny.model, store=tmp_path / "s", text=str(tiny.text), validation_split="test")
    assert not (tmp_path / "s").exists()


def test_a_trained_store_keeps_the_column_of_its_text(told, tiny, tmp_path):
    """The validation text is read like the training text, unless another column is named."""
    both = [{**json.loads(line), "story": "once upon a time " * 9} for line in tiny.validation.read_text().splitlines()]
    text = tmp_path / "both.jsonl"
    text.write_text("".join(json.dumps(each) + "\n" for each in both))
    words = ["--chunk-length", 32, "--max-chunks", 8, "--without", "covariance"]
    told(0, "collect", tiny.model, "--text", text, "--text-column", "story", "--store", tmp_path / "s", *words)
    for more, column in (([], "story"), (["--text-column", "text"], "text")):
        copy = shutil.copytree(tmp_path / "s", tmp_path / f"s{len(more)}")
        told(0, "collect", tiny.model, "--store", copy, "--validation-text", text, *more, *words)
        assert collapse.load(copy).identity["validation"]["column"] == column


def test_one_bad_store_among_several(told, stored, tmp_path):
    good, altered, empty, half = (tmp_path / "stores" / name for name in ("a", "b", "c", "d"))
    shutil.copytree(stored.path, good)
    shutil.copytree(stored.path, altered)
    data = bytearray((altered / "top" / "train.safetensors").read_bytes())
    data[-1] ^= 1
    (altered / "top" / "train.safetensors").write_bytes(data)
    empty.mkdir()
    (half / "shards").mkdir(parents=True)
    table = tmp_path / "r.json"
    said = told(1, "measure", altered, empty, half, good, "--metrics", "nc3", "--output", table)
    assert f"{altered} is not measured: " in said
    assert f"{empty} is not measured: {empty} holds neither a store" in said
    assert f"{half} is not measured: " in said
    assert "3 of 4 models are not measured" in said
    assert len(json.loads(table.read_text())) == 1
    written = table.read_bytes()
    assert f"{table} is not changed" in told(
        1, "measure", good, tmp_path / "none", "--metrics", "nc3", "--output", table
    )
    assert table.read_bytes() == written  # a table is not replaced by fewer rows
    assert "run the same collapse collect again" in told(1, "measure", half)
