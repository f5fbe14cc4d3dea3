"""``--max-validation-chunks`` limits the validation text apart from the training text."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import collapse
from collapse.errors import CollapseError, StoreError
from collapse.hub.card import card
from collapse.hub.sharing import folder_of
from collapse.stores.shards import shards_in
from collapse.testing import random_features

NEEDS_VALIDATION = ["nc4", "val_loss", "val_accuracy"]


@pytest.fixture(scope="module")
def trained(tiny, tmp_path_factory) -> collapse.Store:
    """A store of 20 training chunks, which is not validated."""
    folder = tmp_path_factory.mktemp("trained") / "s"
    return collapse.collect(tiny.model, store=folder, text=str(tiny.text), chunk_length=32, max_chunks=20, shards=1)


@pytest.fixture
def validate(tiny, trained, tmp_path):
    """Validate a copy of the trained store."""

    def validate(name, text=None, **options):
        shutil.copytree(trained.path, tmp_path / name)
        options = {"validation_text": str(text or tiny.validation), "shards": 1, **options}
        return collapse.collect(tiny.model, store=tmp_path / name, **options)

    return validate


def chunks_of(store):
    """The chunks of the training and of the validation text that were counted."""
    coverage = store.manifest["coverage"]
    return [(coverage[phase] or {}).get("chunks") for phase in ("train", "validation")]


@pytest.mark.parametrize("rows", [2, 11, 40])
def test_a_limit_gives_the_numbers_of_a_text_cut_to_its_first_chunks(tiny, validate, tmp_path, rows):
    cut = tmp_path / "cut.jsonl"
    cut.write_text("".join(f"{line}\n" for line in tiny.validation.read_text().splitlines()[:rows]))
    whole = validate("cut", cut, max_validation_chunks=10**9)  # larger than the text
    _, chunks = chunks_of(whole)
    limited = validate("limited", max_validation_chunks=chunks)
    assert chunks_of(limited) == [20, chunks]
    for name, values in whole.tensors("validation").items():
        assert torch.equal(values, limited.tensors("validation")[name]), name
    a, b = (collapse.measure(each) for each in (whole, limited))
    assert a.measurements == b.measurements
    assert a.standard_errors == b.standard_errors
    assert (a.max_chunks, b.max_validation_chunks) == (20, chunks)


def test_which_limit_is_whose(tiny):
    def collected(**options):
        return collapse.collect(tiny.model, **tiny.options(), **options)

    whole = chunks_of(collected())
    assert chunks_of(collected(max_chunks=20)) == [20, 20]
    assert chunks_of(collected(max_chunks=20, max_validation_chunks=7)) == [20, 7]
    assert chunks_of(collected(max_chunks=7, max_validation_chunks=20)) == [7, 20]
    assert chunks_of(collected(max_validation_chunks=7)) == [whole[0], 7]
    assert chunks_of(collected(max_validation_chunks=10**6)) == whole
    assert "max_validation_chunks" not in collected(max_chunks=20).identity


def test_texts_of_one_file_with_two_limits(tiny):
    texts = {"text": str(tiny.text), "validation_text": str(tiny.text), "chunk_length": 32}
    made = {}
    for limits in ((9, 3), (3, 9), (9, 9)):  # each is packed apart, or cut from what is in the cache
        made[limits] = collapse.collect(
            tiny.model, store=None, **texts, max_chunks=limits[0], max_validation_chunks=limits[1]
        )
        assert chunks_of(made[limits]) == [*limits]
    few, many = (made[each].tensors("validation")["counts"].sum() for each in ((9, 3), (9, 9)))
    assert (few, many) == (3 * 31, 9 * 31)
    counts = [made[each].tensors("train")["counts"].sum() for each in ((9, 3), (3, 9), (9, 9))]
    assert counts == [9 * 31, 3 * 31, 9 * 31]


def test_another_limit_is_another_collection(tiny, tmp_path):
    limited = {**tiny.options(), "max_chunks": 20, "max_validation_chunks": 7}
    store = collapse.collect(tiny.model, store=tmp_path / "s", **limited)
    assert store.identity["max_validation_chunks"] == 7
    for recollect in (False, True):
        for other, said in ((5, "max_validation_chunks: 7 and 5"), (None, "max_validation_chunks: 7 and none")):
            options = limited | {"max_validation_chunks": other, "recollect": recollect}
            with pytest.raises(StoreError, match=said):
                collapse.collect(tiny.model, store=tmp_path / "s", **options)
    assert collapse.collect(tiny.model, store=tmp_path / "s", **limited).digest == store.digest
    text = str(tiny.validation)  # without a training text, the store's limits are taken
    assert collapse.collect(tiny.model, store=tmp_path / "s", validation_text=text).digest == store.digest
    again = collapse.collect(tiny.model, store=tmp_path / "s", recollect=True, **limited)
    assert again.tensors("validation")["counts"].sum() == 7 * 31


def test_a_trained_store_takes_any_limit_and_keeps_it(validate, tiny):
    store = validate("a", max_validation_chunks=5)
    assert store.state == "complete"
    assert chunks_of(store) == [20, 5]
    assert (store.identity["max_chunks"], store.identity["max_validation_chunks"]) == (20, 5)
    again = {"store": store.path, "shards": 1, "validation_text": str(tiny.validation)}
    with pytest.raises(StoreError, match="max_validation_chunks: 5 and 6"):
        collapse.collect(tiny.model, max_validation_chunks=6, **again)
    assert "max_validation_chunks" not in validate("b").identity


def test_a_killed_collection_is_resumed_only_with_the_same_limit(tiny, tmp_path):
    def stop(what, done, total):
        if what.endswith("validation") and done > 3:
            raise KeyboardInterrupt

    options = {**tiny.options(), "max_chunks": 20, "batch_size": 1, "store": tmp_path / "s"}
    with pytest.raises(KeyboardInterrupt):
        collapse.collect(tiny.model, max_validation_chunks=7, progress=stop, **options)
    with pytest.raises(StoreError, match=r"unfinished collection that differs in max_validation_chunks: 7 and 8"):
        collapse.collect(tiny.model, max_validation_chunks=8, **options)
    resumed = collapse.collect(tiny.model, max_validation_chunks=7, **options)
    assert 1 <= resumed.manifest["provenance"]["validation"]["slices_of_earlier_runs"] <= 3
    once = collapse.collect(tiny.model, max_validation_chunks=7, **{**options, "store": tmp_path / "once"})
    assert resumed.digest == once.digest


def test_parts_have_one_limit(tiny, tmp_path):
    options = {**tiny.options(), "max_chunks": 20}
    limits = {1: 6, 2: 6, 3: 7, 4: None}
    for name, limit in limits.items():
        part = (1 if name == 1 else 2, 2)
        collapse.collect(tiny.model, store=tmp_path / f"{name}", part=part, max_validation_chunks=limit, **options)
    for other, said in ((3, "6 and 7"), (4, "6 and none")):
        with pytest.raises(StoreError, match=f"they differ in max_validation_chunks: {said}"):
            collapse.merge([tmp_path / "1", tmp_path / f"{other}"], store=tmp_path / "bad")
        with pytest.raises(StoreError, match=f"they differ in max_validation_chunks: {said}"):
            collapse.convergence([tmp_path / "1", tmp_path / f"{other}"], metrics="nc2")
    merged = collapse.merge([tmp_path / "1", tmp_path / "2"], store=tmp_path / "merged")
    assert len(collapse.convergence([tmp_path / "1", tmp_path / "2"], metrics="nc2").rows) == 2
    for k in (1, 2):  # parts of the validation have the limit of the store
        shutil.copytree(merged.path, tmp_path / f"v{k}")
        done = collapse.collect(tiny.model, store=tmp_path / f"v{k}", validation_text=str(tiny.validation), part=(k, 2))
        assert done.state == "trained"
        assert shards_in(done.path, "validation")[0].about["coverage"]["chunks"] == 6
    complete = collapse.merge([tmp_path / "v1", tmp_path / "v2"], store=tmp_path / "complete")
    once = collapse.collect(tiny.model, store=tmp_path / "once", max_validation_chunks=6, **options)
    assert torch.equal(complete.tensors("validation")["counts"], once.tensors("validation")["counts"])
    with pytest.raises(StoreError, match="max_validation_chunks: 6 and 5"):
        collapse.collect(tiny.model, store=tmp_path / "v1", max_validation_chunks=5, **options)


def test_rows_of_unequal_limits_are_told_and_stores_refused(tiny, validate):
    few, more = (validate(f"{limit}", max_validation_chunks=limit) for limit in (5, 9))
    all_ = validate("all")
    with pytest.raises(CollapseError, match=r"differ in their limit of --max-validation-chunks: 5 and 9: compare"):
        collapse.compare(few, more)
    with pytest.raises(CollapseError, match=r"differ in their limit of --max-validation-chunks: 5 and 20: compare"):
        collapse.compare(few, all_)
    table = collapse.compare(few, more, metrics="val_loss", seeds=None, anyway=True)
    assert "A and B differ in their limit of --max-validation-chunks: 5 and 9" in table.notes
    said = "standard error of val_loss: over 4 blocks of A and 6 blocks of B, not paired"
    assert any(note.startswith(said) for note in table.notes)
    equal = validate("equal", max_validation_chunks=20)  # by another option as many as --max-chunks leaves
    collapse.compare(equal, all_, metrics="val_loss", seeds=None)


def test_parts_of_the_training_text_need_no_limit_of_validation(tiny, tmp_path):
    options = {**tiny.options(), "max_chunks": 20}
    whole = collapse.collect(tiny.model, store=tmp_path / "whole", max_validation_chunks=6, **options)
    parts = [collapse.collect(tiny.model, store=tmp_path / f"{k}", part=(k, 2), **options) for k in (1, 2)]
    table = collapse.compare(whole, whole, parts=[parts, parts], metrics=["nc2.norm", "val_loss"], seeds=None)
    assert [record["standard_error"] for record in table.records()] == [0, 0]


def test_tables_keep_the_limit(validate, tmp_path, out):
    rows = [validate("few", max_validation_chunks=5), validate("all")]
    results = collapse.Results([collapse.measure(each, metrics=NEEDS_VALIDATION) for each in rows])
    for suffix in ("csv", "json", "parquet"):
        results.write(tmp_path / f"r.{suffix}")
        read = collapse.Results.read(tmp_path / f"r.{suffix}").frame()["max_validation_chunks"]
        assert read[0] == 5
        assert read.isna().tolist() == [False, True]
    shown = out("measure", rows[0].path, rows[1].path, "--metrics", "val_loss")
    assert "validated on at most 5 chunks" in " ".join(shown.split())
    assert "--max-validation-chunks are mixed: 5 (1 row), 20 (1 row)" in " ".join(shown.split())


def test_names_and_cards_on_the_hub(tiny, validate):
    few, all_ = validate("few", max_validation_chunks=5), validate("all")
    assert folder_of(few) != folder_of(all_)
    text = card(few, "user/repo/collapse/x")
    assert "| chunks of the training text, at most | 20 |" in text
    assert "| chunks of the validation text, at most | 5 |" in text
    assert "| chunks of each text, at most | 20 |" in card(all_, "user/repo/collapse/x")


def test_info_shows_it(validate, out):
    assert "max validation chunks" in out("info", validate("few", max_validation_chunks=5).path)


def test_without_a_validation_text_the_limit_is_refused(tiny, trained, told):
    words = ["collect", tiny.model, "--max-validation-chunks", 5, "--store", trained.path]
    assert "--max-validation-chunks 5 does not apply, because there is no validation text: give one" in told(2, *words)
    words = ["measure", tiny.model, "--text", tiny.text, "--chunk-length", 32, "--max-validation-chunks", 5]
    assert "--max-validation-chunks 5 does not apply, because there is no validation text: give one" in told(2, *words)


def test_values_that_are_no_limit(tiny, told):
    said = told(2, "measure", *tiny.words("--max-validation-chunks", 0))
    assert "--max-validation-chunks must be at least 1, got 0" in said
    told(2, "measure", *tiny.words("--max-validation-chunks", 2.5))


def test_a_store_or_features_file_refuses_the_option(validate, tmp_path, told):
    store = validate("few", max_validation_chunks=5).path
    said = told(2, "measure", store, "--max-validation-chunks", 6)
    assert "holds max validation chunks 5: --max-validation-chunks 6 does not apply" in said
    told(0, "measure", store, "--max-validation-chunks", 5, "--metrics", "val_loss")
    said = told(2, "measure", validate("all").path, "--max-validation-chunks", 6)
    assert "holds max validation chunks none: --max-validation-chunks 6 does not apply" in said
    save_file(random_features(6, 4, 60), tmp_path / "f.safetensors")
    said = told(2, "measure", tmp_path / "f.safetensors", "--max-validation-chunks", 5)
    assert "is a features file: --max-validation-chunks does not apply" in said


def test_nulls_have_the_limit_of_the_model(tiny):
    options = {**tiny.options(), "max_chunks": 12, "max_validation_chunks": 5}
    row = collapse.measure_with_nulls(tiny.model, metrics=["val_loss"], **options)
    assert row.max_validation_chunks == 5
    assert sorted(row.nulls) == ["shuffled", "untrained"]


def test_every_other_row_is_as_before():
    golden = Path(__file__).parent / "golden" / "store-v2"
    assert "max_validation_chunks" not in json.loads((golden / "collapse.json").read_text())["identity"]
    row = collapse.measure(collapse.load(golden), metrics="nc2.norm")
    assert row.max_validation_chunks is None
    assert collapse.Row.from_dict({k: v for k, v in row.to_dict().items() if k != "max_validation_chunks"}) == row
