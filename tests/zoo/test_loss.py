"""The loss without logits, and the model that returns it."""

import pytest
import torch
import torch.nn.functional as F
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from collapse_zoo import loss
from collapse_zoo.loss import IGNORED, _InPieces, cross_entropy, losses_and_hits
from collapse_zoo.model import build
from collapse_zoo.recipes import Recipe


def drawn(seed, n, d, v, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(n, d, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    weight = torch.randn(v, d, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    labels = torch.randint(v, (n,), generator=generator)
    labels[torch.rand(n, generator=generator) < 0.2] = IGNORED
    return h, weight, labels


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6), n=st.integers(1, 60), d=st.integers(1, 9), v=st.integers(2, 50), piece=st.integers(1, 9)
)
@pytest.mark.parametrize("function", [cross_entropy, _InPieces.apply])
def test_it_is_the_cross_entropy_and_its_gradients(function, seed, n, d, v, piece):
    h, weight, labels = drawn(seed, n, d, v)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss, "_piece", lambda *_: piece)
        ours = function(h, weight, labels) * 0.5
    ours.backward()
    mine = h.grad, weight.grad
    h, weight = h.detach().double().requires_grad_(), weight.detach().double().requires_grad_()
    exact = 0.5 * F.cross_entropy(h @ weight.T, labels, reduction="sum", ignore_index=IGNORED)
    exact.backward()
    assert ours.item() == pytest.approx(exact.item(), rel=1e-5, abs=1e-6)
    torch.testing.assert_close(mine[0].double(), h.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(mine[1].double(), weight.grad, rtol=1e-4, atol=1e-5)


def test_sums_in_float32_and_each_samples_loss_and_hit():
    h, weight, labels = drawn(0, 4000, 16, 3000, torch.bfloat16)
    exact = F.cross_entropy((h @ weight.T).float(), labels, reduction="sum", ignore_index=IGNORED)
    assert cross_entropy(h, weight, labels).item() == pytest.approx(exact.item(), rel=1e-5)
    h, weight, labels = drawn(1, 50, 8, 6)
    losses, hits = losses_and_hits(h, weight, labels)
    logits = h @ weight.T
    torch.testing.assert_close(losses, F.cross_entropy(logits, labels, reduction="none", ignore_index=IGNORED))
    assert torch.equal(hits, logits.argmax(1) == labels)
    assert hits.any()


@pytest.mark.parametrize("autocast", [False, True])
def test_the_models_loss_is_transformers_loss(autocast):
    recipe = Recipe(depth=2, width=32, vocabulary=90, chunk_length=40)
    ours, theirs = build(recipe), transformers.GPTNeoForCausalLM(recipe.configuration())
    theirs.load_state_dict(ours.state_dict())
    tokens_BT = torch.randint(90, (3, 40), generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        mine = ours(tokens_BT, labels=tokens_BT)
        exact = theirs(tokens_BT, labels=tokens_BT)
        ours.eval()
        evaluated = ours(tokens_BT, labels=tokens_BT)
    assert mine.logits is None
    assert mine.loss.item() == pytest.approx(exact.loss.item(), rel=2e-3 if autocast else 1e-5)
    assert evaluated.loss.item() == pytest.approx(exact.loss.item(), rel=2e-3 if autocast else 1e-5)
    tokens, _, summed = evaluated.logits.unbind(1)
    assert tokens.tolist() == [39, 39, 39]
    assert (summed.sum() / tokens.sum()).item() == pytest.approx(evaluated.loss.item())
