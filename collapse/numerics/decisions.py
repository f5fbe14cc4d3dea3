"""Compute the decisions of the linear and the nearest-class-centre classifiers, and the loss, in the validation pass.

Decisions equal those of float64, whatever the head's dtype. First, products in float32 with a proven error bound select
the rows that may have the highest score. The scores of these rows are then computed in float64 (best_rows.py). The
nearest centre is the class c with the largest ⟨h − μ̄, a_c⟩ − ½‖a_c‖², where a_c = μ_c − μ̄. If several centres are
equally near within rounding, ‖h − μ_c‖² is computed by direct difference. Ties go to the lowest id. In the loss, the
logit of the label and the highest logits are float64, the others float32.

Shapes: B samples of a batch, C classes with a mean, V tokens of the vocabulary, d dimensions, K candidates (or classes
of a batch).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from collapse.numerics.best_rows import Ranking
from collapse.numerics.devices import float64_device, work_sizes
from collapse.numerics.finite import check_finite, largest
from collapse.numerics.logits import LINEAR, Logits
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.numerics.ties import first_row, highest
from collapse.numerics.validation_totals import SUMS, with_samples
from collapse.plugin.plugin_statistics import PluginStatistics
from collapse.plugin.statistic import Statistic, ValidationBatch


class LinearDecisions(NamedTuple):
    """The decisions of the linear classifier, and the loss.

    Attributes:
        with_mean: For each sample, the class (token id) with the largest logit among the classes with a mean.
        vocabulary: For each sample, the class with the largest logit in the whole vocabulary.
        confidence: The model's probability of the class ``vocabulary``.
        loss: The cross-entropy of the label over the whole vocabulary, in nats.
    """

    with_mean: Int[Tensor, " B"]
    vocabulary: Int[Tensor, " B"]
    confidence: Float[Tensor, " B"]
    loss: Float[Tensor, " B"]


class Decider:
    """Compute the decisions of the linear and the nearest-class-centre classifiers, and the loss.

    Both classifiers decide among the classes that have a mean. The loss is over the whole vocabulary.

    Args:
        s: Training statistics with the classes and their means.
        weight: The whole output embedding, shape (V, d).
        bias: The bias of the output embedding, shape (V,), or None.
        logits: How the model makes its logits.
        exact_loss: Compute all logits of the loss in float64.
    """

    def __init__(
        self,
        s: EmbeddingStatistics,
        weight: Float[Tensor, "V d"],
        bias: Float[Tensor, " V"] | None,
        *,
        logits: Logits = LINEAR,
        exact_loss: bool = False,
    ) -> None:
        device = float64_device(weight.device)
        weight, bias = weight.to(device), None if bias is None else bias.to(device)
        self.weight, self.bias = weight, bias
        self.classes = s.classes.to(device)
        self.has_mean = torch.zeros(len(weight), dtype=torch.bool, device=device)
        self.has_mean[self.classes] = True
        self._exact_loss, self._work = exact_loss, work_sizes(device)
        self._logits = logits
        groups = [self.classes, (~self.has_mean).nonzero().squeeze(1)]
        self._head = Ranking(weight, groups, bias, cap=logits.cap)
        self._take_centres(s)

    def of_layer(self, s: EmbeddingStatistics) -> "Decider":
        """Return a decider with the same head for another layer; both layers must have the same classes."""
        other = copy(self)
        other._take_centres(s)
        return other

    def _take_centres(self, s: EmbeddingStatistics) -> None:
        device = self.weight.device
        self.global_mean = s.global_mean.to(device)
        self.means = s.means.to(device)
        centres = self.means - self.global_mean
        self._centre_divisor = _power_of_two(centres)
        centres /= self._centre_divisor
        half_sqnorms = torch.einsum("cd,cd->c", centres, centres) / 2
        every_row = torch.arange(len(centres), device=device)
        self._centres = Ranking(
            self.means, [every_row], -half_sqnorms, centre=self.global_mean, divisor=self._centre_divisor
        )

    def linear(self, h_Bd: Float[Tensor, "B d"], y_B: Int[Tensor, " B"]) -> LinearDecisions:
        """Return the decisions of the linear classifier, and the loss."""
        pieces = zip(h_Bd.split(self._work.batch), y_B.split(self._work.batch), strict=True)
        parts = [self._linear_piece(h, y) for h, y in pieces]
        return LinearDecisions(*map(torch.cat, zip(*parts, strict=True)))

    def _linear_piece(self, h_Bd: Tensor, y_B: Tensor) -> LinearDecisions:
        scale, capped = self._logits.scale, self._logits.capped
        h_Bd = h_Bd * scale
        found = self._head.search(h_Bd, bias_factor=scale, sums=True, exact=self._exact_loss)
        sample_K, row_K = found.samples, found.rows
        score_K = self._head.scores_of(h_Bd, sample_K, row_K, bias_factor=scale)
        best_B, vocabulary_B = highest(len(h_Bd), sample_K, row_K, score_K)
        with_mean_B = vocabulary_B
        if not bool(self.has_mean[vocabulary_B].all()):
            # the candidates include the best class with a mean, because Ranking also searches its first group alone
            kept_K = self.has_mean[row_K]
            _, with_mean_B = highest(len(h_Bd), sample_K[kept_K], row_K[kept_K], score_K[kept_K])
        own_B = self._head.scores_of(h_Bd, torch.arange(len(h_Bd), device=h_Bd.device), y_B, bias_factor=scale)
        best_B, own_B = capped(best_B), capped(own_B)  # before rest(), which takes the capped score
        rest_B = found.rest(best_B)
        loss_B = (best_B - own_B).clamp(min=0) + rest_B.log1p()
        return LinearDecisions(with_mean_B, vocabulary_B, 1 / (1 + rest_B), loss_B)

    def nearest(self, h_Bd: Float[Tensor, "B d"]) -> Int[Tensor, " B"]:
        """Return the class with the nearest mean, shape (B,)."""
        return torch.cat([self._nearest_piece(piece) for piece in h_Bd.split(self._work.batch)])

    def _nearest_piece(self, h_Bd: Tensor) -> Tensor:
        # Division by powers of two is exact, and makes all values at most 1, so no product overflows.
        x_Bd = h_Bd - self.global_mean
        divisor = max(_power_of_two(x_Bd), self._centre_divisor)
        x_Bd /= divisor
        # products are in units of divisor · _centre_divisor, biases in _centre_divisor²
        bias_factor = self._centre_divisor / divisor
        found = self._centres.search(x_Bd, bias_factor=bias_factor)
        index_B = self.classes.new_zeros(len(h_Bd))
        index_B[found.samples] = found.rows  # samples with several candidates follow below
        several_K = torch.bincount(found.samples, minlength=len(h_Bd))[found.samples] > 1
        if bool(several_K.any()):
            sample_K, row_K = found.samples[several_K], found.rows[several_K]
            score_K = self._centres.scores_of(x_Bd, sample_K, row_K, bias_factor)
            best_B, _ = highest(len(h_Bd), sample_K, row_K, score_K)
            error_B = self._centres.error(x_Bd.norm(dim=1), torch.float64, best_B).amax(dim=0)
            near_K = score_K >= (best_B - 2 * error_B)[sample_K]
            sample_K, row_K = sample_K[near_K], row_K[near_K]
            # a sample with several candidates is written several times, with one value
            index_B[sample_K] = self._nearest_of(h_Bd, sample_K, row_K, divisor)[sample_K]
        return self.classes[index_B]

    def _nearest_of(self, h_Bd: Tensor, sample_K: Tensor, row_K: Tensor, divisor: float) -> Tensor:
        """Return, for each sample, which of the sample's candidate rows of ``means`` is nearest.

        If several rows are equally near up to rounding, return the lowest of these rows. Differences are divided by
        ``divisor``, so that their squares do not overflow.
        """
        sqdist_K = torch.empty(len(sample_K), dtype=torch.float64, device=h_Bd.device)
        for some in torch.arange(len(sample_K), device=h_Bd.device).split(max(1, self._work.gathered // h_Bd.shape[1])):
            delta = (h_Bd[sample_K[some]] - self.means[row_K[some]]) / divisor
            sqdist_K[some] = torch.linalg.vecdot(delta, delta)
        rounding = (h_Bd.shape[1] + 8) * torch.finfo(torch.float64).eps
        nearest_B = -highest(len(h_Bd), sample_K, row_K, -sqdist_K)[0]
        near_K = sqdist_K <= nearest_B[sample_K] * (1 + rounding)
        return first_row(len(h_Bd), sample_K[near_K], row_K[near_K])


class ValidationTally:
    """Accumulate counts, decisions and losses of validation samples.

    A unit is a chunk or a single sample. ``blocks`` and ``kept`` are functions of (start, stop), for the samples of the
    units from start to stop − 1.

    Args:
        decider: The classifiers.
        plugin_statistics: Plugin statistics of the validation phase.
        blocks: Function that returns the block id of each sample, ascending. None if each unit is a block.
        kept: Function that returns a mask of the samples: True for samples that :meth:`add` gets. It returns None if
            ``add`` gets all of these samples. Give None instead of a function if ``add`` always gets all samples.
    """

    def __init__(
        self,
        decider: Decider,
        plugin_statistics: PluginStatistics | None = None,
        blocks: Callable[[int, int], Int[Tensor, " P"]] | None = None,
        kept: Callable[[int, int], Bool[Tensor, " P"] | None] | None = None,
    ) -> None:
        vocabulary, device = len(decider.weight), decider.weight.device
        self.decider = decider
        self.plugin_statistics = PluginStatistics() if plugin_statistics is None else plugin_statistics
        self._blocks_of, self._kept_of = blocks, kept
        self._sums = {name: torch.zeros(vocabulary, dtype=dtype, device=device) for name, dtype in SUMS.items()}
        self._blocks = torch.zeros(0, 5, dtype=torch.float64, device=device)
        self._argmax_without_mean = 0

    def add(
        self,
        h_Bd: Float[Tensor, "B d"],
        y_B: Int[Tensor, " B"],
        first: int = 0,
        units: int = 1,
        head_input_Bd: Float[Tensor, "B d"] | None = None,
    ) -> None:
        """Add the embeddings and labels of ``units`` units (chunks or single samples) of equal length.

        ``first`` is the index of the first unit. ``head_input_Bd`` is the input of the head, if it differs from the
        embeddings, as for an inner layer.

        Raises:
            NotFinite: An embedding or an input of the head is NaN, infinite or too large.
        """
        device = self.decider.weight.device
        h_Bd, y_B = h_Bd.to(device, torch.float64), y_B.to(device)
        head_input_Bd = h_Bd if head_input_Bd is None else head_input_Bd.to(device, torch.float64)
        for each in (h_Bd,) if head_input_Bd is h_Bd else (h_Bd, head_input_Bd):
            check_finite(each)
        linear, ncc_B = self.decider.linear(head_input_Bd, y_B), self.decider.nearest(h_Bd)
        agree_B, hit_B = linear.with_mean == ncc_B, linear.vocabulary == y_B
        ones_B = torch.ones_like(y_B)
        for name, class_B, values in (
            ("counts", y_B, ones_B),
            ("agreements", y_B, agree_B.long()),
            ("linear_hits", y_B, (linear.with_mean == y_B).long()),
            ("ncc_hits", y_B, (ncc_B == y_B).long()),
            ("vocabulary_hits", y_B, hit_B.long()),
            ("loss_sum", y_B, linear.loss),
            ("linear_predictions", linear.with_mean, ones_B),
            ("ncc_predictions", ncc_B, ones_B),
        ):
            self._sums[name].index_add_(0, class_B, values)
        self._argmax_without_mean += int((~self.decider.has_mean[linear.vocabulary]).sum())
        kept_P = None if self._kept_of is None else self._kept_of(first, first + units)
        place_B = torch.arange(len(y_B), device=device) if kept_P is None else kept_P.to(device).nonzero().squeeze(1)
        length = len(y_B if kept_P is None else kept_P) // units
        chunk_B = place_B // length + first
        block_B = chunk_B if self._blocks_of is None else self._blocks_of(first, first + units).to(device)[place_B]
        # the columns are the fields of ValidationTotals
        per_sample = torch.stack([ones_B.double(), agree_B.double(), hit_B.double(), linear.loss], dim=1)
        self._blocks = with_samples(self._blocks, per_sample, chunk_B, block_B)
        if self.plugin_statistics:
            decided = {
                "linear": linear.with_mean,
                "ncc": ncc_B,
                "vocabulary": linear.vocabulary,
                "confidence": linear.confidence,
                "loss": linear.loss,
                "chunk": chunk_B,
                "block": block_B,
                "position": place_B % length,
            }
            self.plugin_statistics.take(self._batch(h_Bd, y_B, decided))

    @torch.no_grad()
    def _batch(self, h_Bd: Tensor, y_B: Tensor, decided: Mapping[str, Tensor]) -> ValidationBatch:
        classes_K, inverse_B, counts_K = torch.unique(y_B, return_inverse=True, return_counts=True)
        rows_K = torch.searchsorted(self.decider.classes, classes_K).clamp_(max=len(self.decider.classes) - 1)
        means_Kd = self.decider.means[rows_K]
        means_Kd[self.decider.classes[rows_K] != classes_K] = torch.nan
        deviations_Bd = h_Bd - means_Kd[inverse_B]
        return ValidationBatch(
            h=h_Bd,
            y=y_B,
            classes=classes_K,
            inverse=inverse_B,
            counts=counts_K,
            means=means_Kd,
            deviations=deviations_Bd,
            **decided,
        )

    def state(self) -> dict[str, Tensor]:
        """Return the complete state in the layout of the store; :meth:`resume` restores it exactly."""
        seen = torch.stack([self._sums[n] for n in ("counts", "linear_predictions", "ncc_predictions")]).sum(dim=0)
        classes = seen.nonzero().squeeze(1)
        state = {"classes": classes, "block_totals": self._blocks}
        state |= {name: values[classes] for name, values in self._sums.items()}
        state["argmax_without_mean"] = torch.tensor([self._argmax_without_mean])
        state |= self.plugin_statistics.state()
        return {name: value.cpu().contiguous() for name, value in state.items()}

    def resume(self, state: Mapping[str, Tensor], statistic_types: Sequence[type[Statistic]] = ()) -> None:
        """Load the result of :meth:`state`, with the plugin statistics ``statistic_types``, into an empty tally."""
        device = self.decider.weight.device
        classes = state["classes"].to(device)
        for name, values in self._sums.items():
            values[classes] = state[name].to(device)
        self._blocks = state["block_totals"].to(device)
        self._argmax_without_mean = int(state["argmax_without_mean"])
        self.plugin_statistics = PluginStatistics.from_state(state, device, statistic_types)


def _power_of_two(values: Tensor) -> float:
    """Return the power of two p with ½ ≤ max |values| / p < 1, limited to 2⁻¹⁰⁰⁰ ≤ p ≤ 2¹⁰⁰⁰; 1 if all are 0."""
    _, exponent = math.frexp(largest(values))
    return math.ldexp(1.0, min(max(exponent, -1000), 1000))
