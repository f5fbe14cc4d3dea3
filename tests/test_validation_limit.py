"""``--max-validation-chunks`` limits the validation text independently of the training text."""

import shutil

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


def test_a_trained_store_takes_any_limit_and_keeps_it(validate, tiny):
    store = validate("a", max_validation_chunks=5)
    assert store.state == "complete"
    assert chunks_of(store) == [20, 5]
    assert (store.identity["max_chunks"], store.identity["max_validation_chunks"]) == (20, 5)
    again = {"store": store.path, "shards": 1, "validation_text": str(tiny.validation)}
    with pytest.raises(StoreError, match=r"max_validation_chunks: 5 \(stored\), 6 \(requested\)"):
        collapse.collect(tiny.model, max_validation_chunks=6, **again)
    assert "max_validation_chunks" not in validate("b").identity
