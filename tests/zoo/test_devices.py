"""What runs on a GPU gives the CPU's numbers: attention, loss, training, collection. Without a GPU, the CPU's alone."""

import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
import transformers

import collapse
from collapse_zoo.fast_gpt_neo import prepare
from collapse_zoo.loss import IGNORED, cross_entropy
from collapse_zoo.recipes import Recipe
from collapse_zoo.sources import find_source
from collapse_zoo.training import train

pytestmark = pytest.mark.filterwarnings("default")  # of compilers, which would put flex_attention out of use
GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))


@pytest.fixture(params=["cpu", GPU])
def device(request):
    return request.param


@pytest.mark.parametrize("heads", [4, 16])  # of 16 dimensions, which flex_attention takes, and of 4
@pytest.mark.parametrize("length", [256, 700])
def test_attention_is_the_eager_one(device, heads, length):
    torch.manual_seed(0)
    config = Recipe(2, 64, vocabulary=97, heads=heads, chunk_length=length).configuration()
    own = transformers.GPTNeoForCausalLM(config)
    ours = copy.deepcopy(own).to(device)
    prepare(ours)
    tokens_BT = torch.randint(97, (2, length))
    logits, exact = ours(tokens_BT.to(device)).logits.cpu(), own(tokens_BT).logits
    assert (logits - exact).abs().max() <= 5e-5 * exact.abs().max()
    direction = torch.randn_like(exact)
    (logits * direction).sum().backward()
    (exact * direction).sum().backward()
    for (name, mine), theirs in zip(ours.named_parameters(), own.parameters(), strict=True):
        assert (mine.grad.cpu() - theirs.grad).abs().max() <= 5e-4 * max(float(theirs.grad.abs().max()), 1e-3), name


@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
def test_the_loss_is_the_exact_one(device, dtype, close):
    draw = torch.Generator().manual_seed(0)
    h, weight = (torch.randn(n, 32, generator=draw).to(dtype) for n in (700, 1900))
    labels = torch.randint(1900, (700,), generator=draw)
    labels[:50] = IGNORED
    exact = [each.double().requires_grad_() for each in (h, weight)]
    ours = [each.to(device).requires_grad_() for each in (h, weight)]
    loss = cross_entropy(*ours, labels.to(device))
    wanted = F.cross_entropy(exact[0] @ exact[1].T, labels, reduction="sum", ignore_index=IGNORED)
    loss.backward()
    wanted.backward()
    assert loss.item() == pytest.approx(wanted.item(), rel=close)
    for mine, theirs in zip(ours, exact, strict=True):
        assert (mine.grad.cpu().double() - theirs.grad).norm() <= close * theirs.grad.norm()


@pytest.mark.parametrize(("precision", "close"), [("float32", 1e-4), ("bf16", 2e-2)])
def test_training_goes_as_on_the_cpu_and_is_measured(device, texts, tmp_path, precision, close):
    source = find_source(text=str(texts / "train.jsonl"), tokenizer=str(texts / "tokenizer"))
    small = Recipe(2, 64, vocabulary=400, heads=4, window=32, chunk_length=64, batch_size=8, max_steps=5)
    losses = []
    for where, recipe in ((device, replace(small, precision=precision)), ("cpu", replace(small, precision="float32"))):
        run = train(recipe, source, tmp_path / f"on-{where}-{recipe.precision}", device=where)
        losses.append([line["loss"] for line in run.curve() if "loss" in line])
    assert losses[0] == pytest.approx(losses[1], rel=close)
    rows = []
    for where in dict.fromkeys((device, "cpu")):
        store = collapse.collect(run.path, store=tmp_path / f"store-{where}", device=where, **source.collecting())
        measured = collapse.measure(store, device=where).measurements
        rows.append({name: value for name, value in measured.items() if value is not None})
    assert rows[0] == pytest.approx(rows[-1], rel=1e-3, abs=1e-6)
