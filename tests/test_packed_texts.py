"""Texts that collapse pack has packed: same key and numbers as the texts, other options refused, on the Hub too."""

import json
import shutil
from pathlib import Path

import pytest

import collapse
from collapse.errors import CollapseError, UsageError

CUT = {"chunk_length": 32, "shards": 3, "eos_between": True}


@pytest.fixture(scope="module")
def packed(tiny, tmp_path_factory) -> Path:
    """Both texts of the tiny model, packed with :data:`CUT`."""
    out = tmp_path_factory.mktemp("packed") / "packed"
    found = collapse.pack(tiny.text, validation_text=tiny.validation, tokenizer=tiny.model, out=out, **CUT)
    assert sorted(found) == ["train", "validation"]
    return out


@pytest.mark.parametrize("more", [{}, {"max_chunks": 20}, {"max_chunks": 300, "max_validation_chunks": 7}])
def test_the_store_is_that_of_the_text_also_with_a_limit(packed, tiny, tmp_path, more):
    texts = {"text": tiny.text, "validation_text": tiny.validation}
    of_text = collapse.collect(tiny.model, **texts, **CUT, **more, store=tmp_path / "text")
    own_length = {**CUT, "chunk_length": None}  # that of the packed text
    of_packed = collapse.collect(tiny.model, text=packed, **own_length, **more, store=tmp_path / "packed")
    assert of_text.digest == of_packed.digest
    assert of_packed.state == "complete"


def test_neither_the_text_nor_the_cache_is_needed(tiny, tmp_path, own_home):
    text, out = shutil.copy(tiny.text, tmp_path / "text.jsonl"), tmp_path / "packed"
    collapse.pack(text, tokenizer=tiny.model, out=out, chunk_length=32)
    Path(text).unlink()
    store = collapse.collect(tiny.model, text=out)
    assert (store.corpus, store.state) == ("text.jsonl", "trained")  # no validation text was packed
    validated = collapse.collect(tiny.model, text=out, validation_text=out)
    assert validated.manifest["corpus"]["validation"] == "text.jsonl"
    assert not (own_home / "chunks").exists()


def test_another_tokenizer_that_does_the_same_fits(packed, tiny, tmp_path):
    other, file = shutil.copytree(tiny.model, tmp_path / "other"), tmp_path / "other" / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "chat_template": "{{ messages }}"}))
    texts = {"text": tiny.text, "validation_text": tiny.validation}
    of_text = collapse.collect(other, **texts, **CUT, store=tmp_path / "text")
    assert of_text.digest == collapse.collect(other, text=packed, **CUT, store=tmp_path / "packed").digest


def test_limits_of_packing_hold_and_may_be_lowered_only(tiny, tmp_path):
    limits = {"max_chunks": 30, "max_validation_chunks": 10}
    texts, out = {"text": tiny.text, "validation_text": tiny.validation, "chunk_length": 32}, tmp_path / "packed"
    collapse.pack(**texts, **limits, tokenizer=tiny.model, out=out)
    of_text = collapse.collect(tiny.model, **texts, **limits, store=tmp_path / "text")
    assert of_text.digest == collapse.collect(tiny.model, text=out, store=tmp_path / "own").digest
    fewer = collapse.collect(tiny.model, **texts, max_chunks=5, store=tmp_path / "text5")
    assert fewer.digest == collapse.collect(tiny.model, text=out, max_chunks=5, store=tmp_path / "own5").digest
    with pytest.raises(UsageError, match=r"max_chunks: 30 \(packed\), 31 \(requested\)\. Give the same options, or"):
        collapse.collect(tiny.model, text=out, max_chunks=31)


def test_the_limit_of_a_packed_training_text_is_not_that_of_a_validation_text_packed_alone(tiny, tmp_path):
    for text, name, limit in ((tiny.text, "train", 30), (tiny.validation, "held", None)):
        collapse.pack(text, tokenizer=tiny.model, out=tmp_path / name, chunk_length=32, max_chunks=limit)
    whole = collapse.collect(tiny.model, text=tmp_path / "train", validation_text=tmp_path / "held")
    coverage = whole.manifest["coverage"]
    assert coverage["train"]["chunks"] == 30
    assert coverage["validation"]["chunks"] > 30


def test_what_does_not_fit_is_refused_in_one_line(packed, tiny, tmp_path, told):
    words = ["collect", tiny.model, "--text", packed, "--store", tmp_path / "store"]
    right = ["--shards", 3, "--eos-between"]
    assert "eos_between: true (packed), false (requested)" in told(2, *words, "--shards", 3)
    assert "chunk_length: 32 (packed), 64 (requested)" in told(2, *words, *right, "--chunk-length", 64)
    assert "which cannot be changed: remove --text-column story" in told(2, *words, *right, "--text-column", "story")
    assert "was packed with another column or split, which" in told(2, *words, *right, "--split", "test")
    other, file = shutil.copytree(tiny.model, tmp_path / "other"), tmp_path / "other" / "tokenizer.json"
    file.write_text(file.read_text().replace('"add_prefix_space": false', '"add_prefix_space": true'))
    assert "tokenizer: sha256:" in told(2, "collect", other, *words[2:], *right)
    assert f"/train is inside the folder of a packed text: give the folder, {packed}" in told(
        2, *words[:3], packed / "train", *words[4:]
    )
    copy = shutil.copytree(packed, tmp_path / "copy")
    (copy / "train" / "tokens.bin").write_bytes(b"\0" * 64)
    assert "is damaged: copy or download it again" in told(1, *words[:3], copy, *words[4:], *right)
    shutil.rmtree(copy / "train")
    assert f"{copy} is an unfinished packed text: pack" in told(2, *words[:3], copy, *words[4:], *right)
    assert not (tmp_path / "store").exists()


def test_a_packing_that_ends_early_is_not_taken_for_a_whole_one(packed, tiny, tmp_path, told):
    bad, out = tmp_path / "bad.jsonl", tmp_path / "out"
    bad.write_text(tiny.text.read_text() + '{"text": 1}\n')
    words = ["--validation-text", tiny.validation, "--tokenizer", tiny.model, "--chunk-length", 32, "--out", out]
    assert "of bad.jsonl holds 1" in told(1, "pack", bad, *words)
    assert "is an unfinished packed text" in told(2, "measure", tiny.model, "--text", out)


def test_the_same_packing_is_found_and_another_or_other_files_are_kept(packed, tiny, tmp_path, out, told):
    before = {each: each.stat().st_mtime_ns for each in packed.rglob("*.bin")}
    texts = [tiny.text, "--validation-text", tiny.validation, "--tokenizer", tiny.model]
    words = ["pack", *texts, "--shards", 3, "--eos-between", "--out"]
    assert "chunks of 32 tokens, and " in out(*words, packed, "--chunk-length", 32)
    assert "chunk_length: 32 (packed), 64 (requested). Choose another --out" in told(2, *words, packed)
    assert {each: each.stat().st_mtime_ns for each in packed.rglob("*.bin")} == before
    alone = ["pack", tiny.text, *texts[3:], "--shards", 3, "--eos-between", "--chunk-length", 32, "--out", packed]
    assert "also holds a packed validation text: give it again with --validation-text" in told(2, *alone)
    (tmp_path / "mine.txt").touch()
    assert "holds other files (mine.txt" in told(2, *words, tmp_path)
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": 1}\n')
    assert "line 1 of bad.jsonl holds 1" in told(1, "pack", bad, "--tokenizer", tiny.model, "--out", tmp_path / "new")
    assert not list(tmp_path.glob("new/*/*"))
    assert "is already packed" in told(2, "pack", packed, *words[2:], tmp_path / "new")
    with pytest.raises(TypeError, match="takes no argument 'dtype'"):
        collapse.pack(tiny.text, tokenizer=tiny.model, out=tmp_path / "new", dtype="float32")


def test_a_packed_text_on_the_hub_is_downloaded_alone_and_found_offline(packed, tiny, hub, as_user, tmp_path):
    files = {str(each.relative_to(packed)): each.read_bytes() for each in packed.rglob("*.*")}
    hub.add("owner/packed", {**files, "more/data.jsonl": b""}, kind="datasets")
    words = ["collect", tiny.model, "--text", "owner/packed", "--shards", 3, "--eos-between", "--store"]
    as_user(*words, tmp_path / "hub")
    got = {path.split("/main/")[-1].split("/", 6)[-1] for method, path in hub.requests if "/resolve/" in path}
    assert {each.rsplit("/", 1)[-1] for each in got} == {"chunks.json", "tokens.bin", "starts.bin"}
    as_user(*words, tmp_path / "offline", offline=True)
    of_text = collapse.collect(
        tiny.model, text=tiny.text, validation_text=tiny.validation, **CUT, store=tmp_path / "text"
    )
    assert of_text.digest == collapse.load(tmp_path / "hub").digest
    assert of_text.digest == collapse.load(tmp_path / "offline").digest


def test_the_hub_s_own_texts_keep_their_origin(hub, as_user, tiny, tmp_path):
    hub.add("owner/data", {"train.jsonl": tiny.text.read_bytes(), "test.jsonl": b""}, kind="datasets")
    out = tmp_path / "packed"
    as_user("pack", "owner/data", "--tokenizer", tiny.model, "--chunk-length", 32, "--out", out)
    record = json.loads((out / "train" / "chunks.json").read_text())
    assert (record["name"], record["corpus"]["split"]) == ("owner/data", "train")
    for text in (out, "owner/data"):
        as_user("collect", tiny.model, "--text", text, "--chunk-length", 32, "--store", tmp_path / str(text)[-4:])
    assert collapse.load(tmp_path / "data").digest == collapse.load(tmp_path / "cked").digest


DOWNLOADED = """
from collapse.hub.remote import reach
data = reach("owner/data", "dataset")
for get in (lambda **how: data.fetch("a.bin", **how), lambda **how: data.download(["b*"], **how)):
    told = []
    get(report=lambda *words: told.append(words))
    print(*told[-1], sep=", ")
"""


def test_the_zoo_trains_on_a_packed_text(packed, tiny, tmp_path):
    from collapse_zoo.sources import find_source

    given = {"tokenizer": str(tiny.model), "shards": 3, "eos_between": True}
    of_text = find_source(text=tiny.text, validation_text=tiny.validation, **given)
    of_packed = find_source(text=packed, **given)
    assert of_packed.identity() == of_text.identity()
    for which in ("chunks", "validation_chunks"):
        assert getattr(of_packed, which)(32).sha256 == getattr(of_text, which)(32).sha256
    assert of_packed.label == "packed"
    store = collapse.collect(tiny.model, store=tmp_path / "store", **of_packed.collecting(32))
    assert store.identity["corpus"] == of_text.identity()["corpus"]
    with pytest.raises(CollapseError, match="chunk_length: 32"):
        of_packed.chunks(16)
