"""The fast attention equals GPT-Neo's own, and is used by every command through a plugin hook."""

import copy

import pandas as pd
import pytest
import torch
import transformers

import collapse
from collapse_zoo import fast_gpt_neo
from collapse_zoo.fast_gpt_neo import NAME, banded_attention, prepare
from collapse_zoo.recipes import Recipe


def gpt_neo(window=256, **config):
    """A small model with scores far from zero, so that the softmax is far from flat."""
    torch.manual_seed(0)
    recipe = Recipe(2, 32, 97, heads=4, window=window, config={"initializer_range": 0.3, **config})
    return transformers.GPTNeoForCausalLM(recipe.configuration()).eval()


def fast(model):
    made = copy.deepcopy(model)
    assert prepare(made) == NAME
    return made


def padded(length, side):
    mask_BT = torch.ones(3, length, dtype=torch.long)
    if side == "left":
        mask_BT[1, : length // 3], mask_BT[2, :-1] = 0, 0
    if side == "right":
        mask_BT[1, length - length // 3 :], mask_BT[2, 1:] = 0, 0
    return mask_BT


@pytest.mark.parametrize("side", ["none", "left", "right"])
@pytest.mark.parametrize("length", [1, 255, 256, 257, 700])
def test_logits_and_gradients_are_the_eager_ones(side, length):
    own = gpt_neo()
    ours = fast(own)
    tokens_BT = torch.randint(97, (3, length), generator=torch.Generator().manual_seed(1))
    mask_BT = padded(length, side)
    kept = mask_BT.bool()
    direction = torch.randn(int(kept.sum()), 97, generator=torch.Generator().manual_seed(2))
    results = []
    for model in (own, ours):
        logits = model(tokens_BT, attention_mask=mask_BT).logits[kept]
        (logits * direction).sum().backward()
        results.append((logits.detach(), {name: p.grad for name, p in model.named_parameters()}))
    (own_logits, own_grads), (our_logits, our_grads) = results
    assert (own_logits - our_logits).abs().max() <= 1e-5 * own_logits.abs().max()
    # of the model's largest gradient, not of each tensor's: with one key the eager gradient of k is exactly 0, while
    # the fused one is rounding
    largest = max(float(grad.abs().max()) for grad in own_grads.values())
    for name, grad in own_grads.items():
        assert torch.isfinite(our_grads[name]).all(), name
        assert (grad - our_grads[name]).abs().max() <= 3e-5 * largest, name


@pytest.mark.parametrize("window", [3, 16])
def test_generation_with_a_cache_is_the_eager_one(window):
    own = gpt_neo(window)
    ours = fast(own)
    prompt = torch.randint(97, (2, 20), generator=torch.Generator().manual_seed(3))
    options = {"max_new_tokens": 30, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(own.generate(prompt, **options), ours.generate(prompt, **options))


def test_an_added_mask_and_embeddings_in_place_of_tokens_work_too():
    own = gpt_neo(window=8)
    ours = fast(own)
    tokens_BT = torch.randint(97, (2, 40), generator=torch.Generator().manual_seed(4))
    added = torch.zeros(2, 1, 40, 40).masked_fill(~torch.ones(40, 40, dtype=torch.bool).tril(), -1e9)
    for arguments in (
        {"input_ids": tokens_BT, "attention_mask": added},
        {"inputs_embeds": own.transformer.wte(tokens_BT)},
    ):
        torch.testing.assert_close(own(**arguments).logits, ours(**arguments).logits, rtol=1e-5, atol=1e-5)


def test_flex_attention_sees_the_same_band():
    from torch.nn.attention.flex_attention import flex_attention

    query, key, value = torch.randn(3, 2, 4, 40, 16, generator=torch.Generator().manual_seed(6))
    with pytest.warns(UserWarning, match="without torch.compile"):
        flexed = flex_attention(query, key, value, block_mask=fast_gpt_neo._band(40, 7, query.device), scale=1.0)
    torch.testing.assert_close(banded_attention(query, key, value, 7), flexed, rtol=1e-5, atol=1e-5)


def test_dropout_and_the_activation_are_kept():
    model = fast(gpt_neo(window=8, attention_dropout=0.5)).train()
    tokens_BT = torch.randint(97, (2, 40))
    assert not torch.equal(model(tokens_BT).logits, model(tokens_BT).logits)
    x = torch.linspace(-12, 12, 10_001)
    for act in ("gelu_new", "relu"):
        own = gpt_neo(activation_function=act)
        act_of = fast(own).transformer.h[0].mlp.act
        assert (type(act_of) is torch.nn.GELU) == (act == "gelu_new")
        torch.testing.assert_close(act_of(x), own.transformer.h[0].mlp.act(x), rtol=1e-5, atol=2e-6)


def test_weights_and_configuration_stay(tmp_path):
    own = gpt_neo()
    ours = fast(own)
    assert all(torch.equal(a, b) for a, b in zip(own.parameters(), ours.parameters(), strict=True))
    ours.save_pretrained(tmp_path / "ours")
    own.save_pretrained(tmp_path / "own")
    assert (tmp_path / "ours" / "config.json").read_text() == (tmp_path / "own" / "config.json").read_text()
    assert prepare(transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=1, n_embd=8, n_head=2))) is None


def test_collection_uses_it_and_says_so(tiny, tmp_path, run):
    words = ["collect", *tiny.words("--max-chunks", 40)]
    run(*words, "--store", tmp_path / "fast")
    run(*words, "--store", tmp_path / "own", "--no-fast-attention")
    fast_store, own_store = (collapse.load(tmp_path / name) for name in ("fast", "own"))
    assert (fast_store.identity["attention"], own_store.identity["attention"]) == (NAME, "eager")
    ours, theirs = (pd.Series(collapse.measure(each).measurements, dtype=float) for each in (fast_store, own_store))
    pd.testing.assert_series_equal(ours, theirs, rtol=1e-4)
    refused = run(*words, "--store", tmp_path / "fast", "--no-fast-attention", code=1)
    assert "differs in fast_attention: none (stored), false (requested)" in refused.stderr
