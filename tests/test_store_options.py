"""Options beside a finished store: those that it does not follow are refused; one bad store costs itself only."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import save_file

import collapse
from collapse.cli import _add_commands, _run
from collapse.errors import UsageError
from collapse.testing import random_features


@pytest.fixture
def told(capsys) -> Callable[..., str]:
    """Run a command line in this process; returns what it printed, stdout first."""
    _add_commands()

    def told(code: int, *words: object) -> str:
        capsys.readouterr()
        found = _run([str(word) for word in words])
        out = capsys.readouterr()
        assert "Traceback" not in out.err
        assert found == code, out.err
        return out.out + out.err

    return told


@pytest.fixture(scope="module")
def stored(tiny, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("options") / "store"
    collapse.collect(tiny.model, store=folder, max_chunks=24, **tiny.options())
    return folder


@pytest.fixture(scope="module")
def features(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("features") / "f.safetensors"
    save_file(random_features(6, 4, 60), path)
    return path


def test_options_that_a_store_does_not_follow(told, tiny, stored, tmp_path):
    (tmp_path / "other.txt").write_text("some other text")
    for words, message in (
        (("--text", tmp_path / "other.txt"), "holds corpus text "),
        (("--text", tmp_path / "absent.txt"), "no file matches"),
        (("--validation-text", tiny.text), "holds validation text "),
        (("--text", tiny.text, "--text-column", "story"), "holds corpus text "),
        (("--text-column", "story"), "holds text column text: --text-column story does not apply"),
        (("--split", "test"), "--split test does not apply"),
        (("--dtype", "bfloat16"), "holds dtype float32: --dtype bfloat16 does not apply"),
        (("--chunk-length", 64), "holds chunk length 32: --chunk-length 64 does not apply"),
        (("--max-chunks", 9), "holds max chunks 24"),
        (("--shards", 3), "holds shards 2"),
        (("--eos-between",), "holds eos between false: --eos-between does not apply"),
        (("--model-arg", "gguf_file=x.gguf"), "holds model args none: --model-arg "),
        (("--revision", "main"), "--revision main does not apply"),
        (("--without", "covariance"), "holds the statistic covariance: --without covariance does not apply"),
        (("--without", "covarience"), "no statistic is called 'covarience'; did you mean covariance"),
        (("--no-fast-attention",), "--no-fast-attention does not apply"),
        (("--recollect",), "leave out --recollect"),
        (("--store", tmp_path / "s"), "is a store: --store"),
    ):
        assert message in told(2, "measure", stored, "--metrics", "nc3", *words), words
    assert not (tmp_path / "s").exists()


def test_options_that_repeat_what_a_store_holds(told, tiny, stored, tmp_path):
    words = ["--dtype", "float32", "--max-chunks", 24, "--shards", 2, "--tokenizer", tiny.model]
    told(0, "measure", stored, "--metrics", "nc3", *tiny.words()[1:], *words)
    moved = shutil.copy(tiny.text, tmp_path / "elsewhere.jsonl")  # equal text under another name
    told(0, "measure", stored, "--metrics", "nc3", "--text", moved, "--device", "cpu")


def test_options_must_suit_every_store_and_model(told, tiny, stored, tmp_path):
    words = ["--metrics", "nc3", "--store", tmp_path / "stores", *tiny.words()[1:]]
    assert "holds max chunks 24" in told(1, "measure", tiny.model, stored, *words[:2], *words[4:], "--max-chunks", 9)
    assert f"{stored} is a store: --store" in told(1, "measure", tiny.model, stored, *words, "--max-chunks", 24)
    told(0, "measure", tiny.model, stored, *words[:2], *words[4:], "--max-chunks", 24, "--batch-size", 4)


def test_a_store_is_no_folder_of_stores(told, tiny, stored):
    message = told(2, "measure", tiny.model, "other", "--store", stored, *tiny.words()[1:])
    assert f"{stored} is a store: for several models give --store a folder of stores" in message


def test_stores_of_several_models_are_named_after_them(told, tiny, tmp_path, monkeypatch):
    first, third = (tmp_path / name for name in ("x/checkpoint-25", "y/m-0.5"))
    shutil.copytree(tiny.model, first)
    shutil.copytree(tiny.model, third)
    words = [*tiny.words("--max-chunks", 2, "--metrics", "nc3", "--store", tmp_path / "s")[1:]]
    monkeypatch.chdir(first)
    told(0, "measure", ".", f"{first}/", third, *words)
    assert sorted(each.name for each in (tmp_path / "s").iterdir()) == ["checkpoint-25", "m-0.5"]


def test_options_that_do_not_apply_to_a_features_file(told, features, tiny, tmp_path):
    for words in (
        ("--text", tiny.text), ("--chunk-length", 32), ("--tokenizer", tiny.model), ("--model-arg", "a=1"),
        ("--revision", "main"), ("--text-column", "story"), ("--eos-between",),
    ):  # fmt: skip
        message = f"{features} is a features file: {words[0]} does not apply"
        assert message in told(2, "measure", features, *words), words
        assert message in told(2, "collect", features, "--store", tmp_path / "s", *words), words
    assert not (tmp_path / "s").exists()
    told(0, "measure", features, "--metrics", "nc3", "--batch-size", 4, "--without", "covariance")


def test_options_of_collect_that_do_not_apply_to_a_features_file(told, features, tiny, tmp_path):
    for flag, given in {
        "--text": {"text": str(tiny.text)},
        "--validation-text": {"validation_text": [str(tiny.validation)]},
        "--text-column": {"text_column": "story"},
        "--split": {"split": "test"},
        "--tokenizer": {"tokenizer": str(tiny.model)},
        "--dtype": {"dtype": "bfloat16"},
        "--chunk-length": {"chunk_length": 32},
        "--shards": {"shards": 3},
        "--eos-between": {"eos_between": True},
        "--model-arg": {"model_args": {"a": 1}},
        "--no-fast-attention": {"fast_attention": False},
        "--part": {"part": (2, 2)},
    }.items():
        with pytest.raises(UsageError, match=f": {flag}.* does not apply"):
            collapse.collect(features, store=tmp_path / "s", **given)
    assert "--part does not apply" in told(2, "collect", features, "--store", tmp_path / "s", "--part", "2/2")
    assert not (tmp_path / "s").exists()
    assert collapse.collect(features, shards=2, without=["covariance"]).state == "complete"


def test_collect_on_a_finished_store_compares_every_option(told, tiny, stored):
    words = ["collect", tiny.model, "--store", stored, "--validation-text", tiny.validation, "--max-chunks", 24]
    told(0, *words)
    assert "--split test does not apply" in told(2, *words, "--split", "test")
    assert "holds the statistic covariance" in told(2, *words, "--without", "covariance")
    assert "shards: 2 and 3" in told(1, *words, "--shards", 3)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"text_column": "story"}, "holds text column text: --text-column story does not apply"),
        ({"split": "test"}, "--split test does not apply"),
        ({"validation_split": "foo"}, "--validation-split foo does not apply"),
        ({"without": "covariance"}, "holds the statistic covariance: --without covariance does not apply"),
    ],
)
def test_python_refuses_what_a_store_does_not_follow(tiny, stored, given, said):
    with pytest.raises(UsageError, match=said):
        collapse.collect(tiny.model, store=stored, **given)
    same = {"validation_text": str(tiny.validation), "max_chunks": 24}
    assert collapse.collect(tiny.model, store=stored, text_column="text", **same).state == "complete"


def test_a_cached_store_that_holds_what_is_left_out_is_refused(told, tiny):
    words = ["measure", tiny.model, *tiny.words("--max-chunks", 2, "--metrics", "nc3")[1:]]
    told(0, *words)
    assert "holds the statistic covariance: --without covariance does not apply" in told(
        2, *words, "--without", "covariance"
    )


def test_a_store_of_a_features_file_is_not_without_what_it_holds(told, features, tmp_path):
    told(0, "collect", features, "--store", tmp_path / "s")
    assert "--without covariance does not apply" in told(2, "measure", tmp_path / "s", "--without", "covariance")
    assert "no device 'foo'" in told(2, "collect", features, "--store", tmp_path / "t", "--device", "foo")
    assert not (tmp_path / "t").exists()


def test_a_part_needs_a_folder_of_its_own(tiny):
    with pytest.raises(UsageError, match="a part needs a folder of its own, to be merged from: give --store"):
        collapse.collect(tiny.model, part=(1, 2), **tiny.options())


def test_local_texts_have_no_splits(told, tiny, stored, tmp_path):
    local = f"{tiny.text.name} is local and has no splits"
    other = f"{tiny.validation.name} is local and has no splits"
    for more, message in (
        (("--split", "test"), f"--split test does not apply: {local}"),
        (("--split", "train"), f"--split train does not apply: {local}"),
        (("--validation-split", "test"), f"--validation-split test does not apply: {other}"),
    ):
        for words in (["collect", *tiny.words("--store", tmp_path / "s")], ["measure", *tiny.words()]):
            assert message in told(2, *words, *more), more
        assert message in told(2, "measure", stored, *tiny.words()[1:], *more), more
    for split, text in (("split", local), ("validation_split", other)):
        with pytest.raises(UsageError, match=f"--{split.replace('_', '-')} train does not apply: {text}"):
            collapse.collect(tiny.model, store=tmp_path / "s", **tiny.options(), **{split: "train"})
    with pytest.raises(UsageError, match="--validation-split test does not apply, because there is no validation"):
        collapse.collect(tiny.model, store=tmp_path / "s", text=str(tiny.text), validation_split="test")
    assert not (tmp_path / "s").exists()


def test_a_trained_store_keeps_the_column_of_its_text(told, tiny, tmp_path):
    """The validation text is read like the training text, unless another column is named."""
    both = [{**json.loads(line), "story": "once upon a time " * 9} for line in tiny.validation.read_text().splitlines()]
    text = tmp_path / "both.jsonl"
    text.write_text("".join(json.dumps(each) + "\n" for each in both))
    words = ["--chunk-length", 32, "--max-chunks", 8, "--without", "covariance"]
    told(0, "collect", tiny.model, "--text", text, "--text-column", "story", "--store", tmp_path / "s", *words)
    lines = tmp_path / "lines.txt"
    lines.write_text("once upon a time there was a fox\n" * 99)
    told(0, "collect", tiny.model, "--text", lines, "--store", tmp_path / "l", *words)
    for of, more, column in (
        ("s", [], "story"),
        ("s", ["--text-column", "text"], "text"),
        ("l", [], "text"),
        ("l", ["--text-column", "story"], "story"),
    ):
        copy = shutil.copytree(tmp_path / of, tmp_path / f"{of}{len(more)}")
        told(0, "collect", tiny.model, "--store", copy, "--validation-text", text, *more, *words)
        assert collapse.load(copy).identity["validation"]["column"] == column
    said = told(2, "collect", tiny.model, "--store", tmp_path / "s", "--validation-text", tiny.validation, *words)
    assert "has no column 'story'" in said


def test_a_store_without_validation_follows_no_validation_split(told, tiny, tmp_path):
    collapse.collect(tiny.model, store=tmp_path / "s", text=str(tiny.text), chunk_length=32, max_chunks=2)
    message = told(2, "measure", tmp_path / "s", "--validation-split", "test")
    assert "holds validation split none" in message
    assert "--validation-split test does not apply" in message


def test_a_device_that_is_not_there(told, stored, features):
    for device in ("foo", "cuda:99", "meta"):
        assert f"no device '{device}'" in told(2, "measure", stored, "--device", device)
        assert f"no device '{device}'" in told(2, "measure", features, stored, "--device", device)
    with pytest.raises(collapse.CollapseError, match="no device 'foo'"):
        collapse.measure(collapse.load(stored), device="foo")


def test_one_bad_store_among_several(told, stored, tmp_path):
    good, altered, empty, half = (tmp_path / "stores" / name for name in ("a", "b", "c", "d"))
    shutil.copytree(stored, good)
    shutil.copytree(stored, altered)
    data = bytearray((altered / "top" / "train.safetensors").read_bytes())
    data[-1] ^= 1
    (altered / "top" / "train.safetensors").write_bytes(data)
    empty.mkdir()
    (half / "shards").mkdir(parents=True)
    table = tmp_path / "r.json"
    said = told(1, "measure", altered, empty, half, good, "--metrics", "nc3", "--output", table)
    assert "nc3.self_duality" in said
    assert f"{altered} is not measured: " in said
    assert f"{empty} is not measured: {empty} holds neither a store" in said
    assert f"{half} is not measured: " in said
    assert "3 of 4 models are not measured" in said
    assert len(json.loads(table.read_text())) == 1
    table.unlink()
    assert "2 of 2 models" in told(1, "measure", altered, empty, "--metrics", "nc3", "--output", table)
    assert not table.exists()
    assert "run the same collapse collect again" in told(1, "measure", half)


@pytest.mark.parametrize("suffix", [".csv", ".json", ".parquet"])
def test_a_table_is_not_replaced_by_fewer_rows_where_a_model_fails(told, features, tmp_path, suffix):
    table, other = tmp_path / f"t{suffix}", tmp_path / "other.safetensors"
    shutil.copyfile(features, other)
    words = ("--metrics", "nc3", "--output", table)
    told(0, "measure", features, other, *words)
    written = table.read_bytes()
    said = told(1, "measure", features, tmp_path / "none", *words)
    assert f"{table} is unchanged" in said
    assert table.read_bytes() == written
    told(0, "measure", features, *words)
    assert len(collapse.Results.read(table)) == 1
