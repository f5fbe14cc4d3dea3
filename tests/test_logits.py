"""Scaled and capped logits: how a model makes them is found by running its code; decisions and loss are float64's."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import transformers
from torch import Tensor

import collapse
from collapse.inputs.language_model import LanguageModel
from collapse.inputs.suitability import check_model, find_logits
from collapse.numerics.decisions import Decider
from collapse.numerics.logits import Logits
from collapse.testing import statistics_of

TOKENS = torch.arange(64)[None]


class Changed(transformers.LlamaForCausalLM):
    """A model that changes its logits."""

    change: Callable[[Tensor], Tensor]

    def forward(self, **given: object) -> object:
        out = super().forward(**given)
        out.logits = self.change(out.logits)
        return out


def loaded(change: Callable[[Tensor], Tensor], dtype: torch.dtype = torch.float32, **config: object) -> LanguageModel:
    sizes = {"vocab_size": 128, "hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
    torch.manual_seed(0)
    model = Changed(transformers.LlamaConfig(**sizes, num_hidden_layers=1, num_key_value_heads=2, **config))
    model.change = change
    return LanguageModel.of(model.to(dtype).eval())


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_scale_and_cap_are_the_numbers_of_the_configuration(dtype):
    changes = {
        Logits(): lambda z: z,
        Logits(0.3): lambda z: z * 0.3,
        Logits(1 / 13): lambda z: z / 13,
        Logits(cap=30.0): lambda z: 30 * torch.tanh(z / 30),
        Logits(0.3, 7.7): lambda z: 7.7 * torch.tanh(0.3 * z / 7.7),
    }
    for expected, change in changes.items():
        model = loaded(change, getattr(torch, dtype), mine={"a": [0.3, 13], "cap": 7.7, "other": 30})
        model.logits = find_logits(model, TOKENS)
        assert model.logits == expected
        check_model(model, TOKENS)


def test_a_scale_that_no_configuration_has_is_measured():
    assert find_logits(loaded(lambda z: z * 0.625), TOKENS) == Logits(0.625)
    assert find_logits(loaded(lambda z: z * 0.7, torch.float64), TOKENS) == Logits(0.7)


@pytest.mark.parametrize(
    "change", [lambda z: z.clamp(-20, 20), lambda z: z + z.sin() / 4, lambda z: z + 1, lambda z: z.log_softmax(-1)]
)
def test_other_functions_are_refused(change):
    with pytest.raises(collapse.CollapseError, match="its logits are not ⟨w, h⟩ \\+ b"):
        find_logits(loaded(change), TOKENS)


@pytest.mark.parametrize("offset", [0.0, 300.0])
@pytest.mark.parametrize("logits", [Logits(0.3), Logits(0.3, 2.0), Logits(cap=30.0)])
def test_decisions_and_loss_equal_float64(logits, offset):
    V, C, d, N = 3000, 1200, 24, 400  # several blocks of rows
    draw = torch.Generator().manual_seed(0)
    weight, h = torch.randn(V, d, generator=draw), torch.randn(N, d, generator=draw).double()
    bias = torch.randn(V, generator=draw) * 3 + offset
    classes = torch.randperm(V, generator=draw)[:C].sort().values
    y = classes[torch.randint(C, (N,), generator=draw)]
    s = replace(statistics_of(torch.randn(C, d, generator=draw)), classes=classes)
    z = logits.scale * (h @ weight.double().T + bias.double())
    expected = torch.nn.functional.cross_entropy(logits.capped(z), y, reduction="none")
    for exact, tolerance in ((False, 1e-6), (True, 1e-12)):
        made = Decider(s, weight, bias, logits=logits, exact_loss=exact).linear(h, y)
        assert torch.equal(made.vocabulary, z.argmax(1))
        assert torch.equal(made.with_mean, classes[z[:, classes].argmax(1)])
        assert float(made.loss.mean()) == pytest.approx(float(expected.mean()), rel=tolerance)
        torch.testing.assert_close(made.loss, expected, rtol=tolerance * 20, atol=tolerance * 20)
        top = logits.capped(z).softmax(1).gather(1, z.argmax(1, keepdim=True)).squeeze(1)
        torch.testing.assert_close(made.confidence, top, rtol=tolerance * 20, atol=tolerance * 20)
