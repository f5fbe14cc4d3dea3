"""Compute the decisions, the loss and the class moments of a monitor's validation samples."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from torch import Tensor

from collapse.core.precision import exact_arithmetic
from collapse.errors import UsageError
from collapse.measurement.rows import Row
from collapse.monitoring.buffered_moments import BufferedMoments
from collapse.monitoring.model_head import LinearHead
from collapse.monitoring.rank_states import merged, of_all_ranks, rank_and_size
from collapse.numerics.decisions import Decider, ValidationTally
from collapse.numerics.devices import float64_device
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.numerics.validation_totals import merge_validation
from collapse.plugin.plugin_statistics import PluginStatistics
from collapse.plugin.statistic import Statistic

T = TypeVar("T")

VALIDATION = "val_"
"""Prefix of the names of measurements that are computed from the class moments of the validation samples."""


def validated(
    s: EmbeddingStatistics,
    head: LinearHead | None,
    batches: Iterable[tuple[Tensor, Tensor, int]],
    statistic_types: Sequence[type[Statistic]],
) -> tuple[EmbeddingStatistics, EmbeddingStatistics]:
    """Return the training statistics with validation counts, and the statistics of the validation samples alone.

    Args:
        s: The training statistics, of all ranks.
        head: The classifier; without it there are no decisions and no loss.
        batches: The batches of this rank. Each has embeddings (n, d), labels (n,), and the number of sequences or,
            without sequences, of samples. All sequences of a batch have the same length. For standard errors, each
            sequence or sample is a block.
        statistic_types: Plugin statistics. Those of the phase "train" are filled in the second result. Those of the
            phase "validation" are added to the first result, if there is a head.

    Raises:
        UsageError: There are no samples.
        CollapseError: A label has no row in the classifier, or an embedding is not finite.
    """
    of_training = [kind for kind in statistic_types if kind.phase == "train"]
    of_validation = [kind for kind in statistic_types if kind.phase == "validation"]
    device, classes = (s.means.device, None) if head is None else (head.weight.device, len(head.weight))
    device = float64_device(device)

    def states() -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        moments = BufferedMoments(classes, s.dim, device, of_training)
        tally: ValidationTally | None = None
        if head is not None:
            decider = Decider(s, head.weight, head.bias, logits=head.logits, exact_loss=True)
            tally = ValidationTally(decider, PluginStatistics(of_validation), kept=lambda *_: kept_B)
        first = rank_and_size()[0] << 40  # so that ranks number their units differently
        for h_Bd, y_B, units in batches:
            h_Bd, y_B = h_Bd.to(device), y_B.to(device)
            moments.add(h_Bd, y_B)
            kept_B = (y_B >= 0) & (y_B < (classes or 0))  # moments.state() reports other labels
            if tally is not None and bool(kept_B.any()):
                with exact_arithmetic():
                    tally.add(h_Bd[kept_B], y_B[kept_B], first, units)
            first += units
        return moments.state(), {} if tally is None else tally.state()

    parts = of_all_ranks(states)
    if not any(len(each["classes"]) for each, _ in parts):
        raise UsageError(
            "the validation has no samples: give a loader or a list, because an iterator is empty after its first use"
        )
    own = replace(merged((each for each, _ in parts), of_training).statistics_so_far(), dtype=s.dtype)
    if head is None:
        lacking = "NC4, loss and accuracy need a classifier: attach(model), or compute(…, classifier=…)"
        return replace(s, absent={**s.absent, "validation": lacking}), own
    total, plugin_statistics = merge_validation([state for _, state in parts], of_validation)
    extra, versions, makers = (
        {**s.extra, **plugin_statistics.tensors()},
        {**s.versions, **plugin_statistics.versions},
        plugin_statistics.makers,
    )
    return replace(s, validation=total, extra=extra, versions=versions, makers={**s.makers, **makers}), own


def with_validation(row: Row, own: Row) -> Row:
    """Return ``row`` and the measurements of ``own`` (the validation samples alone) in one row.

    The names of the measurements of ``own`` get the prefix ``val_``.
    """

    def named(values: Mapping[str, T]) -> dict[str, T]:
        return {f"{VALIDATION}{name}": value for name, value in values.items()}

    return replace(
        row,
        measurements=row.measurements | named(own.measurements),
        versions=row.versions | named(own.versions),
        excluded=row.excluded | named(own.excluded),
        made_by=row.made_by | named(own.made_by),
        notes=row.notes + tuple(replace(note, measurement=VALIDATION + note.measurement) for note in own.notes),
    )
