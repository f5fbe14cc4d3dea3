"""A loaded model on texts in memory: the same store as from files."""

import json

import pandas as pd
import pytest

import collapse
from collapse.errors import UsageError


@pytest.fixture
def loaded(tiny):
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(tiny.model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny.model)
    texts = [json.loads(line)["text"] for line in tiny.text.read_text().splitlines()]
    validation = [json.loads(line)["text"] for line in tiny.validation.read_text().splitlines()]
    return model, tokenizer, texts, validation


def test_the_numbers_are_those_of_files(tiny, loaded, tmp_path):
    options = {"chunk_length": 32, "max_chunks": 20}
    store = collapse.collect_loaded(*loaded, name="mine", store=tmp_path / "s", **options)
    files = collapse.collect(
        tiny.model, text=str(tiny.text), validation_text=str(tiny.validation), store=tmp_path / "f", **options
    )
    assert store.model == "mine"
    assert {**store.identity, "tokenizer": None} == {**files.identity, "tokenizer": None}
    mine, theirs = (pd.Series(collapse.measure(each).measurements, dtype=float) for each in (store, files))
    pd.testing.assert_series_equal(mine, theirs, rtol=1e-9)
    assert collapse.load(tmp_path / "s").check().digest == store.digest
    again = collapse.collect_loaded(*loaded, name="mine", **options)
    assert again.digest == store.digest  # the cache knows it by content


def test_weights_that_changed_in_memory_are_measured(loaded):
    model, *rest = loaded
    options = {"chunk_length": 32, "max_chunks": 20}
    before = collapse.collect_loaded(model, *rest, **options)
    assert before.model == "loaded/model"  # and not of the temporary folder that it was read from
    model.get_input_embeddings().weight.data.mul_(1.5)
    after = collapse.collect_loaded(model, *rest, **options)
    assert before.identity["weights"] != after.identity["weights"]


@pytest.mark.parametrize(("texts", "said"), [("one", "a list of strings"), ([], "no texts"), (iter([]), "no texts")])
def test_texts_that_are_none(loaded, texts, said):
    with pytest.raises(UsageError, match=said):
        collapse.collect_loaded(loaded[0], loaded[1], texts)
