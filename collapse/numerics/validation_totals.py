"""Add up the totals of validation blocks, and merge the states of several passes over parts of a text.

Shapes: B samples, K rows to add, S blocks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from collapse.numerics.statistics import ValidationStatistics
from collapse.plugin.plugin_statistics import PluginStatistics
from collapse.plugin.statistic import Statistic

SUMS = {
    **dict.fromkeys(("counts", "agreements", "linear_hits", "ncc_hits", "vocabulary_hits"), torch.int64),
    **dict.fromkeys(("linear_predictions", "ncc_predictions"), torch.int64),
    "loss_sum": torch.float64,
}
"""The sums of a validation pass that have one number per class, and their dtypes."""


@dataclass(frozen=True)
class ValidationTotals:
    """Totals over the validation text, summed over its blocks, each a float64 number.

    The fields are the first four columns of ``block_totals``; the fifth is the block's number. Standard errors are
    computed from the derivatives of a measurement with respect to these totals.

    Attributes:
        samples: Validation samples.
        agreements: Samples for which the linear and the nearest-class-centre rule predict the same class.
        hits: Samples that the argmax over the whole vocabulary predicts correctly.
        loss: Sum of cross-entropy over the whole vocabulary, in nats.
    """

    samples: Float[Tensor, ""]
    agreements: Float[Tensor, ""]
    hits: Float[Tensor, ""]
    loss: Float[Tensor, ""]


def with_samples(
    blocks: Float[Tensor, "S 5"],
    per_sample: Float[Tensor, "B 4"],
    chunk_B: Int[Tensor, " B"],
    block_B: Int[Tensor, " B"],
) -> Float[Tensor, "S2 5"]:
    """Return the block totals after adding samples.

    The samples of a chunk are summed first, so that no digit depends on the batch size. ``per_sample`` has the first
    four columns of ``blocks``. ``block_B`` is ascending, and no block precedes the last block of ``blocks``.
    """
    begins_B = torch.ones_like(block_B, dtype=torch.bool)
    begins_B[1:] = (block_B.diff() != 0) | (chunk_B.diff() != 0)
    run_B = begins_B.long().cumsum(0) - 1  # a run: the samples of one chunk in one block
    of_K = block_B[begins_B].double().unsqueeze(1)
    sums = per_sample.new_zeros(len(of_K), 4).index_add_(0, run_B, per_sample)
    done, last = blocks[:-1], blocks[-1:]  # only the last block can continue
    return torch.cat([done, by_block(torch.cat([last, torch.cat([sums, of_K], dim=1)]))])


def by_block(rows: Float[Tensor, "K 5"]) -> Float[Tensor, "S 5"]:
    """Return one row per block: the sum of the block's rows, in their order, and the block's number as last column."""
    block_S, row_K = rows[:, 4].unique(return_inverse=True)
    totals = rows.new_zeros(len(block_S), 4).index_add_(0, row_K, rows[:, :4])
    return torch.cat([totals, block_S.unsqueeze(1)], dim=1)


def merge_validation(
    states: Sequence[Mapping[str, Tensor]], statistic_types: Sequence[type[Statistic]]
) -> tuple[ValidationStatistics, PluginStatistics]:
    """Merge the states of passes over parts of a text, with the plugin statistics ``statistic_types``.

    A state is a result of :meth:`collapse.numerics.decisions.ValidationTally.state`.
    """
    plugin_statistics, *others = [PluginStatistics.from_state(state, "cpu", statistic_types) for state in states]
    for each in others:
        plugin_statistics.merge(each)
    classes = torch.unique(torch.cat([state["classes"] for state in states]))

    def added(name: str) -> Tensor:
        total = torch.zeros(len(classes), dtype=SUMS[name])
        for state in states:
            total.index_add_(0, torch.searchsorted(classes, state["classes"]), state[name])
        return total

    counts = ValidationStatistics(
        classes=classes,
        block_totals=by_block(torch.cat([state["block_totals"] for state in states])),
        argmax_without_mean=torch.stack([state["argmax_without_mean"] for state in states]).sum(dim=0),
        **{name: added(name) for name in SUMS},
    )
    return counts, plugin_statistics
