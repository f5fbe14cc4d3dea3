"""The validation pass in blocks, batches and parts, compared with a direct computation of every decision and loss."""

from dataclasses import replace
from typing import ClassVar

import pytest
import torch

from collapse import State, ValidationStatistic
from collapse.numerics import best_rows, decisions
from collapse.numerics.decisions import Decider, ValidationTally
from collapse.numerics.devices import work_sizes
from collapse.numerics.finite import NotFinite
from collapse.numerics.validation_totals import merge_validation
from collapse.plugin.plugin_statistics import PluginStatistics
from collapse.testing import statistics_of

VOCABULARY, DIM, CLASSES = 23, 5, torch.tensor([1, 2, 5, 9, 14, 20])


@pytest.fixture
def problem():
    draw = torch.Generator().manual_seed(0)
    # quarters, whose products are exact: equal logits are equal in blocks of any width, with any kernels
    weight = torch.randint(-10, 11, (VOCABULARY, DIM), generator=draw) / 4
    means = torch.randn(len(CLASSES), DIM, generator=draw, dtype=torch.float64)
    h = torch.randint(-20, 21, (60, DIM), generator=draw).double() / 4
    y = torch.randint(VOCABULARY, (60,), generator=draw)
    h[:12] = weight[3:15].double() * 4  # decided for these rows
    y[:12] = torch.arange(3, 15)
    weight[16], weight[9] = weight[4], weight[5]  # equal logits in far blocks: the lower id
    bias = torch.linspace(-1, 1, VOCABULARY)
    bias[16], bias[9] = bias[4], bias[5]
    return replace(statistics_of(means), classes=CLASSES), weight, bias, h, y


def direct(s, weight, bias, h, y):
    logits = h @ weight.double().T + (0 if bias is None else bias.double())
    loss = logits.logsumexp(dim=1) - logits[torch.arange(len(y)), y]
    linear = torch.stack([s.classes[row[s.classes].argmax()] for row in logits])
    ncc = s.classes[torch.cdist(h, s.means, compute_mode="donot_use_mm_for_euclid_dist").argmin(dim=1)]
    return linear, logits.argmax(dim=1), loss, ncc


@pytest.mark.parametrize("exact_loss", [True, False])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize(
    ("kept", "sizes"),
    [
        (1 << 26, {}),
        (1 << 26, {"rows": 4}),
        (1 << 26, {"rows": 1, "batch": 7, "samples": 7}),
        (0, {}),
        (1 << 26, {"gathered": 1}),
    ],
)
def test_blocks_decide_as_the_whole(problem, monkeypatch, with_bias, kept, sizes, exact_loss):
    monkeypatch.setattr(best_rows, "_KEPT", kept)
    for module in (decisions, best_rows):
        monkeypatch.setattr(module, "work_sizes", lambda device: work_sizes(device)._replace(**sizes))
    s, weight, bias, h, y = problem
    bias = bias if with_bias else None
    linear, everywhere, loss, ncc = direct(s, weight, bias, h, y)
    decider = Decider(s, weight, bias, exact_loss=exact_loss)
    found = decider.linear(h, y)
    assert torch.equal(found[0], linear)
    assert torch.equal(found[1], everywhere)
    confidence = (h.double() @ weight.double().T + (0 if bias is None else bias)).softmax(dim=1).amax(dim=1)
    tolerance = {"rtol": 1e-12, "atol": 1e-12} if exact_loss else {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(found[2], confidence, **tolerance)
    torch.testing.assert_close(found[3], loss, **tolerance)
    assert torch.equal(decider.nearest(h), ncc)


class Seen(ValidationStatistic):
    """Everything of each batch that it was given."""

    name = "seen"
    state: ClassVar = {"rows": State(("C", 2 + 3 * DIM))}

    def update(self, batch):
        assert torch.equal(batch.classes[batch.inverse], batch.y)
        assert torch.equal(batch.counts, torch.bincount(batch.y)[batch.classes])
        decided = torch.stack([batch.linear, batch.ncc], dim=1).double()
        self.classes = batch.chunk * 5 + batch.position  # the rows of its own
        self.rows = torch.cat([decided, batch.h, batch.means[batch.inverse], batch.deviations], dim=1)


def expected_state(problem, chunk):
    s, weight, bias, h, y = problem
    linear, everywhere, loss, ncc = direct(s, weight, bias, h, y)
    classes = torch.cat([y, linear, ncc]).unique()

    def by_label(values):
        return torch.stack([values[y == c].sum() for c in classes])

    agree, hit = linear == ncc, everywhere == y
    each = torch.stack([torch.ones(60).double(), agree.double(), hit.double(), loss], dim=1)
    return {
        "classes": classes,
        "counts": by_label(torch.ones_like(y)),
        "agreements": by_label(agree),
        "linear_hits": by_label(linear == y),
        "ncc_hits": by_label(ncc == y),
        "vocabulary_hits": by_label(hit),
        "loss_sum": by_label(loss),
        "linear_predictions": torch.stack([(linear == c).sum() for c in classes]),
        "ncc_predictions": torch.stack([(ncc == c).sum() for c in classes]),
        "argmax_without_mean": (~torch.isin(everywhere, CLASSES)).sum().reshape(1),
        "block_totals": torch.cat(
            [each.view(60 // chunk, chunk, 4).sum(dim=1), torch.arange(60 // chunk).double().unsqueeze(1)], dim=1
        ),
    }


def assert_state(state, expected):
    assert state.keys() - {"seen/rows", "seen/classes"} == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(state[name], value, rtol=1e-12, atol=1e-12, msg=name)


def test_counts_of_batches_resumed_between_are_the_direct_ones(problem):
    s, weight, bias, h, y = problem
    tally = ValidationTally(Decider(s, weight, bias, exact_loss=True), PluginStatistics([Seen]))
    empty = tally.state()
    assert empty["block_totals"].shape == (0, 5)
    assert len(empty["classes"]) == 0
    tally.add(h[:20].float().double(), y[:20], units=4)
    resumed = ValidationTally(Decider(s, weight, bias, exact_loss=True))
    resumed.resume(tally.state(), [Seen])
    resumed.add(h[20:50], y[20:50], units=6, first=4)
    resumed.add(h[50:], y[50:], units=2, first=10)
    h[:20] = h[:20].float()
    state = resumed.state()
    assert_state(state, expected_state(problem, chunk=5))
    assert int(state["argmax_without_mean"]) > 10
    linear, _, _, ncc = direct(s, weight, bias, h, y)
    rows = state["seen/rows"]
    assert torch.equal(rows[:, 0].long(), linear)
    assert torch.equal(rows[:, 1].long(), ncc)
    means = torch.full((60, DIM), torch.nan, dtype=torch.float64)
    for row, c in enumerate(s.classes):
        means[y == c] = s.means[row]
    assert 5 < int(means[:, 0].isnan().sum()) < 55
    assert torch.equal(rows[:, 2 : 2 + DIM], h)
    torch.testing.assert_close(rows[:, 2 + DIM : 2 + 2 * DIM], means, equal_nan=True)
    torch.testing.assert_close(rows[:, 2 + 2 * DIM :], h - means, equal_nan=True)


def test_sums_and_blocks_add_up_over_chunks_batches_and_parts(problem):
    s, weight, bias, h, y = problem
    decider = Decider(s, weight, bias, exact_loss=True)
    block = torch.repeat_interleave(torch.arange(5), torch.tensor([7, 20, 3, 21, 9]))  # across chunks of 5
    blocks = {"blocks": lambda start, stop: block[start * 5 : stop * 5]}
    whole = ValidationTally(decider, **blocks)
    whole.add(h, y, units=12)
    batches, parts = ValidationTally(decider, **blocks), []
    for run in (slice(0, 10), slice(10, 15), slice(15, 60)):
        given = {"units": len(h[run]) // 5, "first": run.start // 5}
        batches.add(h[run], y[run], **given)
        part = ValidationTally(decider, **blocks)
        part.add(h[run], y[run], **given)
        parts.append(part.state())
    totals = whole.state()["block_totals"]
    assert totals[:, 0].tolist() == [7, 20, 3, 21, 9]
    assert totals[:, 4].tolist() == [0, 1, 2, 3, 4]
    assert torch.equal(batches.state()["block_totals"], totals)
    merged, _ = merge_validation(parts, [])
    assert_state(vars(merged), expected_state(problem, chunk=5) | {"block_totals": totals})


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e150])
def test_an_embedding_beyond_reach_is_named(problem, bad):
    s, weight, bias, h, y = problem
    h[7, 2] = bad
    with pytest.raises(NotFinite, match="sample 7 is"):
        ValidationTally(Decider(s, weight, bias, exact_loss=True)).add(h, y)
