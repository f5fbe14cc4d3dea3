"""Special tokens: the note on them, packing without them, and ignored samples."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from random_models import chunks_of
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from transformers import AutoModelForCausalLM, AutoTokenizer

import collapse
from collapse.errors import UsageError

CUT = {"chunk_length": 32, "max_chunks": 12, "shards": 1}


@pytest.fixture(scope="module")
def model(tiny, tmp_path_factory) -> Path:
    """A model whose tokenizer begins each text with the special token 0."""
    model = Path(shutil.copytree(tiny.model, tmp_path_factory.mktemp("begins") / "model"))
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.post_processor = TemplateProcessing(single="<|end|> $A", special_tokens=[("<|end|>", 0)])
    tokenizer.save(str(model / "tokenizer.json"))
    return model


def samples(model: Path, text: Path, **options) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings (n, d) and next tokens of the first chunks, by the definition, one chunk at a time."""
    loaded, chunks = AutoModelForCausalLM.from_pretrained(model), chunks_of(model, text, most=12, **options)
    with torch.no_grad():
        h = [loaded.transformer(chunk[None]).last_hidden_state[0, :-1] for chunk in chunks]
    return torch.cat(h).double().numpy(), chunks[:, 1:].reshape(-1).numpy()


def check(store: collapse.Store, h: np.ndarray, y: np.ndarray) -> None:
    s = store.statistics()
    assert s.classes.tolist() == sorted({*y.tolist()})
    assert s.counts.tolist() == [int((y == c).sum()) for c in s.classes.tolist()]
    means = np.stack([h[y == c].mean(axis=0) for c in s.classes.tolist()])
    np.testing.assert_allclose(s.means.numpy(), means, atol=2e-5)


def test_a_note_says_that_special_tokens_are_classes(model, tiny, tmp_path):
    lines = shutil.copy(tiny.text, tmp_path / "t.txt")
    for given, said in (({"text": str(tiny.text)}, "text"), ({"text": str(lines)}, "line")):
        row = collapse.measure(model, **given, **CUT, metrics=["nc2.norm"])
        (note,) = [note.text for note in row.notes if note.kind == "special_tokens"]
        assert note.startswith(f"the tokenizer adds 1 special token to each {said}, which count as classes and samples")
    for silent in ({"special_tokens": False}, {"ignore_tokens": "special"}):
        row = collapse.measure(model, text=str(tiny.text), **CUT, **silent, metrics=["nc2.norm"])
        assert not [note for note in row.notes if note.kind == "special_tokens"]


def test_packing_without_special_tokens_is_that_of_a_tokenizer_that_adds_none(model, tiny):
    h, y = samples(model, tiny.text, add_special_tokens=False)
    without = collapse.collect(model, text=str(tiny.text), **CUT, special_tokens=False)
    check(without, h, y)
    plain = collapse.collect(tiny.model, text=str(tiny.text), **CUT)
    assert without.manifest["provenance"]["tokens"] == plain.manifest["provenance"]["tokens"]
    assert without.identity["special_tokens"] is False
    assert not {"special_tokens", "ignore_tokens"} & plain.identity.keys()


@pytest.mark.parametrize("ids", ["special", "9,5"])
def test_ignored_tokens_are_neither_classes_nor_samples(model, tiny, ids):
    options = {"text": str(tiny.text), "validation_text": str(tiny.validation), **CUT, "ignore_tokens": ids}
    ignored = [0] if ids == "special" else [5, 9]
    h, y = samples(model, tiny.text)
    assert np.isin(ignored, y).all()
    kept = ~np.isin(y, ignored)
    store = collapse.collect(model, **options, batch_size=3)
    assert store.identity["ignore_tokens"] == ("special" if ids == "special" else "5,9")
    check(store, h[kept], y[kept])
    assert store.manifest["coverage"]["train"]["samples"] == kept.sum()
    h, y = samples(model, tiny.validation)
    kept = ~np.isin(y, ignored)
    validation = store.statistics().validation
    assert int(validation.counts.sum()) == kept.sum()
    logits = torch.from_numpy(h) @ AutoModelForCausalLM.from_pretrained(model).get_output_embeddings().weight.double().T
    loss = torch.nn.functional.cross_entropy(logits[kept], torch.from_numpy(y)[kept])
    assert collapse.measure(store)["val_loss"] == pytest.approx(loss.item(), abs=1e-5)
    shuffled = collapse.collect(model, **options, null="shuffled")
    assert torch.equal(shuffled.statistics().counts, store.statistics().counts)


def test_chunks_without_a_sample_add_nothing(model, tiny):
    h, y = samples(model, tiny.text)
    ids = {*y[:62].tolist()}  # all next tokens of the first two chunks
    kept = ~np.isin(y, [*ids])
    options = {"text": str(tiny.text), "validation_text": str(tiny.text), **CUT, "ignore_tokens": ids}
    store = collapse.collect(model, **options, batch_size=1)
    check(store, h[kept], y[kept])
    assert int(store.statistics().validation.counts.sum()) == kept.sum()


def test_ids_are_checked(model, tiny):
    for bad in ("", "a", "0,b", "-1", []):
        with pytest.raises(UsageError, match="--ignore-tokens must be special or ids, such as 0,50256, got"):
            collapse.collect(model, text=str(tiny.text), ignore_tokens=bad)
    every = range(len(AutoTokenizer.from_pretrained(model)))
    with pytest.raises(UsageError, match="--ignore-tokens 99999: the tokenizer has no such id; give ids up to "):
        collapse.collect(model, text=str(tiny.text), **CUT, ignore_tokens=[3, 99999])
    with pytest.raises(UsageError, match="--ignore-tokens excludes every sample of the train text"):
        collapse.collect(model, text=str(tiny.text), **CUT, ignore_tokens=every)
