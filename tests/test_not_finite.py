"""A value that is not finite stops a collection: the message says where, and no incomplete store is left."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import collapse
from collapse.errors import CollapseError
from collapse.hub.corpus import find_corpus
from collapse.hub.references import find_model
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.model_loading import load_tokenizer
from collapse.inputs.packing import pack
from collapse.numerics.decisions import Decider, ValidationTally
from collapse.testing import statistics_of

FEW = 3
"""Chunks of training: some tokens of the validation text are not in them."""


def changed(tiny, folder, change) -> Path:
    """A copy of the tiny model with an output embedding of its own, after a change of the model."""
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny.model)
    head = torch.nn.Linear(48, 512, bias=False)
    head.weight.data = model.lm_head.weight.data.clone()
    model.lm_head, model.config.tie_word_embeddings = head, False
    change(model)
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny.model / name, folder)
    return folder


def chunks(tiny, path) -> np.ndarray:
    spec = CollectionSpec(chunk_length=32)
    tokenizer = load_tokenizer(find_model(str(tiny.model)))
    return np.asarray(pack(find_corpus(str(path)), tokenizer, spec, tokenizer_key="t").tokens)


def test_an_embedding_of_validation_is_named_and_the_store_stays_trained(tiny, told, tmp_path):
    train, validation = (chunks(tiny, path) for path in (tiny.text, tiny.validation))
    chunk, token = next(
        (chunk, token)
        for chunk, row in enumerate(validation[2:], start=2)
        for token in row[:-1]
        if token not in train[:FEW] and token not in validation[:chunk]
    )

    def poison(model):
        model.transformer.wte.weight.data[token] = torch.nan

    model = changed(tiny, tmp_path / "m", poison)
    words = ["collect", model, *tiny.words()[1:], "--store", tmp_path / "s", "--max-chunks", FEW]
    said = told(1, *words, "--max-validation-chunks", len(validation), "--batch-size", 4)
    # attention spreads it to the samples before
    assert f"the embedding of sample 0 of validation chunk {chunk} is NaN or infinite" in said
    assert "it was not stored; check the model's weights" in said  # float32 already
    store = collapse.load(tmp_path / "s")
    assert (store.state, store.check().manifest["coverage"]["validation"]) == ("trained", None)
    shutil.rmtree(tmp_path / "s" / "shards", ignore_errors=True)  # slices before it can be resumed
    told(0, *words, "--max-validation-chunks", chunk, "--batch-size", 4)
    assert collapse.load(tmp_path / "s").manifest["coverage"]["validation"]["chunks"] == chunk
    model = changed(tiny, tmp_path / "n", lambda model: model.transformer.wpe.weight.data[20].fill_(torch.nan))
    said = told(1, "collect", model, *tiny.words()[1:], "--store", tmp_path / "t")
    assert "embedding of sample 0 of train chunk 0 is NaN or infinite" in said


@pytest.mark.parametrize("bad", [float("nan"), -float("inf")])
def test_a_head_is_named_by_its_vocabulary_entry(tiny, told, tmp_path, bad):
    def poison(model):
        model.lm_head.weight.data[401, 3] = bad

    model = changed(tiny, tmp_path / "m", poison)
    said = told(1, "collect", model, *tiny.words("--store", tmp_path / "s", "--max-chunks", FEW)[1:])
    assert "row 401 of the classifier's weight is NaN or infinite, so class 401 cannot be predicted" in said
    assert not (tmp_path / "s").exists()


def test_a_bias_is_named_too():
    arrays = {"features": np.eye(4), "labels": np.arange(4) % 2, "classifier": np.eye(2, 4)}
    with pytest.raises(CollapseError, match="row 1 of the classifier's bias is NaN or infinite"):
        collapse.collect_arrays(**arrays, bias=np.array([0, np.inf]))


def test_logits_that_overflow_though_the_head_does_not(tiny, told, tmp_path):
    def enlarge(model):
        model.lm_head.weight.data[17] = 65504  # the largest float16
        model.transformer.ln_f.weight.data.fill_(0)
        model.transformer.ln_f.bias.data.fill_(1)

    model = changed(tiny, tmp_path / "m", enlarge)
    words = ["collect", model, *tiny.words("--store", tmp_path / "s", "--max-chunks", FEW)[1:]]
    said = told(1, *words, "--dtype", "float16")
    assert "gives logits that are NaN or infinite, from finite embeddings: try --dtype float32" in said
    assert not (tmp_path / "s").exists()
    told(0, *words)
    loss = collapse.measure(collapse.load(tmp_path / "s")).measurements["val_loss"]
    assert 48 * 65000 < loss < 48 * 65504 * 1.01


@pytest.mark.parametrize("size", [300.0, 65504.0, 1e30, 1e140])
@pytest.mark.parametrize("exact_loss", [False, True])
def test_large_finite_numbers_give_the_losses_of_float64(size, exact_loss):
    draw = torch.Generator().manual_seed(0)
    h_nd, weight = (torch.randn(n, 16, generator=draw, dtype=torch.float64) * size for n in (100, 300))
    logits = h_nd @ weight.T
    y_n = logits.argmax(dim=1)
    y_n[::2] = torch.randint(300, (50,), generator=draw)
    tally = ValidationTally(Decider(statistics_of(weight / 2), weight, None, exact_loss=exact_loss))
    tally.add(h_nd, y_n, units=4)
    expected = torch.logsumexp(logits, dim=1) - logits[torch.arange(100), y_n]
    assert tally.state()["block_totals"][:, 3] == pytest.approx(expected.view(4, 25).sum(dim=1), rel=1e-9)
