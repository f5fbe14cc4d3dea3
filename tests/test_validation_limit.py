"""``--max-validation-chunks`` limits the validation text independently of the training text."""

import shutil
from functools import partial

import pytest
import torch

import collapse
from collapse.errors import StoreError


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


@pytest.mark.parametrize("rows", [2, 40])
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

    assert chunks_of(collected(max_chunks=20)) == [20, 20]
    assert chunks_of(collected(max_chunks=7, max_validation_chunks=20)) == [7, 20]
    whole = chunks_of(collected(max_validation_chunks=10**6))
    assert chunks_of(collected(max_validation_chunks=7)) == [whole[0], 7]
    assert "max_validation_chunks" not in collected(max_chunks=20).identity


def test_another_limit_is_another_collection(tiny, tmp_path):
    limited = {**tiny.options(), "max_chunks": 20, "max_validation_chunks": 7}
    store = collapse.collect(tiny.model, store=tmp_path / "s", **limited)
    assert store.identity["max_validation_chunks"] == 7
    for recollect, other, shown in ((False, 5, "5"), (True, None, "none")):
        options = limited | {"max_validation_chunks": other, "recollect": recollect}
        with pytest.raises(StoreError, match=rf"max_validation_chunks: 7 \(stored\), {shown} \(requested\)"):
            collapse.collect(tiny.model, store=tmp_path / "s", **options)
    assert collapse.collect(tiny.model, store=tmp_path / "s", **limited).digest == store.digest
    text = str(tiny.validation)  # without a training text, the store's limits are taken
    assert collapse.collect(tiny.model, store=tmp_path / "s", validation_text=text).digest == store.digest


def test_a_trained_store_takes_any_limit_and_keeps_it(validate, tiny):
    store = validate("a", max_validation_chunks=5)
    assert store.state == "complete"
    assert chunks_of(store) == [20, 5]
    assert (store.identity["max_chunks"], store.identity["max_validation_chunks"]) == (20, 5)
    again = {"store": store.path, "shards": 1, "validation_text": str(tiny.validation)}
    with pytest.raises(StoreError, match=r"max_validation_chunks: 5 \(stored\), 6 \(requested\)"):
        collapse.collect(tiny.model, max_validation_chunks=6, **again)
    assert "max_validation_chunks" not in validate("b").identity


def test_parts_have_one_limit(tiny, tmp_path):
    options = {**tiny.options(), "max_chunks": 20}
    for name, k, limit in (("1", 1, 6), ("2", 2, 6), ("other", 2, 7)):
        collapse.collect(tiny.model, store=tmp_path / name, part=(k, 2), max_validation_chunks=limit, **options)
    for join in (collapse.convergence, partial(collapse.merge, store=tmp_path / "bad")):
        with pytest.raises(StoreError, match=r"they differ in max_validation_chunks: 6 \(\S+/1\), 7 \(\S+/other\)"):
            join([tmp_path / "1", tmp_path / "other"])
    merged = collapse.merge([tmp_path / "1", tmp_path / "2"], store=tmp_path / "merged")
    for k in (1, 2):  # parts of the validation have the limit of the store
        shutil.copytree(merged.path, tmp_path / f"v{k}")
        collapse.collect(tiny.model, store=tmp_path / f"v{k}", validation_text=str(tiny.validation), part=(k, 2))
    complete = collapse.merge([tmp_path / "v1", tmp_path / "v2"], store=tmp_path / "complete")
    once = collapse.collect(tiny.model, store=tmp_path / "once", max_validation_chunks=6, **options)
    assert torch.equal(complete.tensors("validation")["counts"], once.tensors("validation")["counts"])


def test_without_a_validation_text_the_limit_is_refused(tiny, trained, told):
    words = ["collect", tiny.model, "--max-validation-chunks", 5, "--store", trained.path]
    refused = "--max-validation-chunks 5 does not apply without a validation text: give --validation-text"
    assert refused in told(2, *words)
    words = ["measure", tiny.model, "--text", tiny.text, "--chunk-length", 32, "--max-validation-chunks", 5]
    assert refused in told(2, *words)
