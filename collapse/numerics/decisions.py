"""The validation pass: decisions of the linear and the nearest-class-centre classifiers, and the loss.

Linear decisions and the loss are computed in float64 from the given embeddings, so they are exact to rounding whatever
the head's dtype. The nearest centre is found in three steps; the later steps handle only samples for which the previous
step left several classes within its proven error bound. 1. argmax ⟨h − μ̄, a_c⟩ − ½‖a_c‖², a_c = μ_c − μ̄, in float32.
2. The same in float64. 3. ‖h − μ_c‖² by direct difference for the remaining classes. Ties go to the lowest id.

Shapes: B samples of a batch, C classes with a mean, V the output vocabulary, d dimensions.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from collapse.numerics.finite import check_finite, within_range
from collapse.numerics.statistics import EmbeddingStatistics, ValidationStatistics
from collapse.plugin.batch import ValidationBatch
from collapse.plugin.filling import Filled
from collapse.plugin.statistic import Statistic

_LOGITS = 1 << 24  # number of logits in memory at a time (float64: 128 MB)
_HEAD = 1 << 28  # a head of at most this many numbers is kept in float64 (2 GB); a larger one is converted in blocks
_GATHER = 1 << 21  # numbers gathered at a time for direct differences
_PER_CLASS = ("counts", "agreements", "linear_hits", "ncc_hits", "vocabulary_hits")


class Decider:
    """The two classifiers over the classes with a mean, and the loss over the whole vocabulary.

    Args:
        s: Training statistics: classes and means.
        weight: The output embedding, every row, shape (V, d).
        bias: Its bias, shape (V,), or None.
    """

    def __init__(self, s: EmbeddingStatistics, weight: Float[Tensor, "V d"], bias: Float[Tensor, " V"] | None) -> None:
        device = weight.device
        self.weight = weight.double() if weight.numel() <= _HEAD else weight
        self.bias = None if bias is None else bias.double()
        self.classes = s.classes.to(device)
        self.global_mean = s.global_mean.to(device)
        self.means = s.means.to(device)
        self.centred_means = self.means - self.global_mean  # the nearest one is asked for, however little they differ
        self._scale = _power_of_two(self.centred_means)
        self._centres = self.centred_means / self._scale
        self._half_sqnorms = torch.linalg.vecdot(self._centres, self._centres) / 2
        self._longest = (2 * self._half_sqnorms.max()).sqrt()
        self._centres_32 = self._centres.float()
        self.has_mean = torch.zeros(len(weight), dtype=torch.bool, device=device)
        self.has_mean[self.classes] = True

    def linear(self, h_Bd: Float[Tensor, "B d"], y_B: Int[Tensor, " B"]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the argmax over classes with a mean, that over all V, its probability, the loss in nats; each (B,)."""
        rows = max(1, _LOGITS // len(self.weight))
        parts = [self._linear_block(h, y) for h, y in zip(h_Bd.split(rows), y_B.split(rows), strict=True)]
        decided, everywhere, confidence, loss = (torch.cat(each) for each in zip(*parts, strict=True))
        return decided, everywhere, confidence, loss

    def _linear_block(self, h_Bd: Tensor, y_B: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        low = h_Bd.new_full((len(h_Bd),), float("-inf"))
        best, best_seen, log_sum, own = low, low, low, torch.zeros_like(low)
        index = index_seen = torch.zeros_like(y_B)
        step = len(self.weight) if self.weight.dtype == torch.float64 else max(1, _HEAD // 8 // h_Bd.shape[1])
        for start in range(0, len(self.weight), step):
            block = slice(start, start + step)
            logits = h_Bd @ self.weight[block].double().T
            if self.bias is not None:
                logits += self.bias[block]
            log_sum = torch.logaddexp(log_sum, logits.logsumexp(dim=1))
            here = (y_B >= start) & (y_B < start + logits.shape[1])
            own[here] = logits[here, y_B[here] - start]
            # strictly greater: of two equal logits, the lower id comes first and is kept
            top, at = logits.max(dim=1)
            index, best = torch.where(top > best, at + start, index), torch.maximum(top, best)
            logits.masked_fill_(~self.has_mean[block], float("-inf"))
            top, at = logits.max(dim=1)
            index_seen, best_seen = (
                torch.where(top > best_seen, at + start, index_seen),
                torch.maximum(top, best_seen),
            )
        return index_seen, index, (best - log_sum).exp(), log_sum - own

    def nearest(self, h_Bd: Float[Tensor, "B d"]) -> Int[Tensor, " B"]:
        """Return the class with the nearest mean, shape (B,)."""
        rows = max(1, _LOGITS // len(self.classes))
        return torch.cat([self._nearest_block(block) for block in h_Bd.split(rows)])

    def _nearest_block(self, h_Bd: Tensor) -> Tensor:
        # Division by powers of two is exact, and makes all values at most 1, so no product overflows.
        x_Bd = h_Bd - self.global_mean
        scale = max(_power_of_two(x_Bd), self._scale)
        x_Bd /= scale
        share = self._scale / scale
        half_sqnorms_C = self._half_sqnorms * share
        scores_BC = x_Bd.float() @ self._centres_32.T
        scores_BC -= half_sqnorms_C.float()
        best_B, index_B = scores_BC.max(dim=1)
        scores_BC.sub_((best_B - 2 * self._error_bound(x_Bd, share, torch.float32)).unsqueeze(1))
        sure_B = (scores_BC >= 0).sum(dim=1) == 1
        unsure = (~sure_B).nonzero().squeeze(1)
        if len(unsure):
            x_Bd = x_Bd[unsure]
            scores_BC = x_Bd @ self._centres.T - half_sqnorms_C
            least_B = scores_BC.amax(dim=1) - 2 * self._error_bound(x_Bd, share, torch.float64)
            index_B[unsure] = self._nearest_of(h_Bd[unsure], scores_BC >= least_B.unsqueeze(1), scale)
        return self.classes[index_B]

    def _error_bound(self, x_Bd: Tensor, share: float, dtype: torch.dtype) -> Tensor:
        """Bound the error of a score: the error of a dot product of length d is at most about d·ε·‖x‖‖a‖ + d·tiny."""
        size_B = (x_Bd.norm(dim=1) + share * self._longest) * self._longest
        kind = torch.finfo(dtype)
        return (x_Bd.shape[1] + 8) * (kind.eps * size_B + 8 * kind.tiny)

    def _nearest_of(self, h_Bd: Tensor, candidates_BC: Tensor, scale: float) -> Tensor:
        """Return the row of the nearest mean among each sample's candidates; the first of those equal to rounding."""
        index_B = candidates_BC.int().argmax(dim=1)
        several = (candidates_BC.sum(dim=1) > 1).nonzero().squeeze(1)
        if self._longest == 0 or not len(several):  # all means are equal, or every sample is decided
            return index_B
        sqdist_BC = torch.full(candidates_BC.shape, float("inf"), dtype=torch.float64, device=h_Bd.device)[several]
        pairs = candidates_BC[several].nonzero()
        for some in pairs.split(max(1, _GATHER // h_Bd.shape[1])):
            samples, classes = some.unbind(dim=1)
            delta = (h_Bd[several[samples]] - self.means[classes]) / scale
            sqdist_BC[samples, classes] = torch.linalg.vecdot(delta, delta)
        rounding = (h_Bd.shape[1] + 8) * torch.finfo(torch.float64).eps
        nearest_B = sqdist_BC.amin(dim=1, keepdim=True)
        index_B[several] = (sqdist_BC <= nearest_B * (1 + rounding)).int().argmax(dim=1)
        return index_B


class ValidationTally:
    """Counts, decisions and losses of the validation samples seen so far.

    Args:
        decider: The classifiers.
        statistics: Plugin statistics of the validation phase.
    """

    def __init__(self, decider: Decider, statistics: Sequence[Statistic] | Filled = ()) -> None:
        vocabulary, device = len(decider.weight), decider.weight.device
        self.decider = decider
        self.statistics = statistics if isinstance(statistics, Filled) else Filled(statistics)
        self._sums = {name: torch.zeros(vocabulary, dtype=torch.int64, device=device) for name in _PER_CLASS}
        self._sums["linear_predictions"] = torch.zeros(vocabulary, dtype=torch.int64, device=device)
        self._sums["ncc_predictions"] = torch.zeros(vocabulary, dtype=torch.int64, device=device)
        self._sums["loss_sum"] = torch.zeros(vocabulary, dtype=torch.float64, device=device)
        self._chunks: list[Tensor] = []
        self._argmax_without_mean = 0

    def add(self, h_Bd: Float[Tensor, "B d"], y_B: Int[Tensor, " B"], chunks: int = 1, first: int = 0) -> None:
        """Add a batch of whole chunks of equal length; ``first`` is the index of the first chunk."""
        device = self.decider.weight.device
        given_Bd = h_Bd
        h_Bd, y_B = h_Bd.to(device, torch.float64), y_B.to(device)
        if not within_range(h_Bd):
            check_finite(h_Bd)
        linear_B, everywhere_B, confidence_B, loss_B = self.decider.linear(h_Bd, y_B)
        ncc_B = self.decider.nearest(h_Bd)
        agree_B, hit_B = linear_B == ncc_B, everywhere_B == y_B
        ones_B = torch.ones_like(y_B)
        for name, values in (
            ("counts", ones_B),
            ("agreements", agree_B.long()),
            ("linear_hits", (linear_B == y_B).long()),
            ("ncc_hits", (ncc_B == y_B).long()),
            ("vocabulary_hits", hit_B.long()),
            ("loss_sum", loss_B),
        ):
            self._sums[name].index_add_(0, y_B, values)
        self._sums["linear_predictions"].index_add_(0, linear_B, ones_B)
        self._sums["ncc_predictions"].index_add_(0, ncc_B, ones_B)
        self._argmax_without_mean += int((~self.decider.has_mean[everywhere_B]).sum())
        per_sample = torch.stack([ones_B.double(), agree_B.double(), hit_B.double(), loss_B], dim=1)
        self._chunks.append(per_sample.view(chunks, -1, 4).sum(dim=1))
        if self.statistics:
            place_B = torch.arange(len(y_B), device=device)
            decided = {
                "linear": linear_B,
                "ncc": ncc_B,
                "vocabulary": everywhere_B,
                "confidence": confidence_B,
                "loss": loss_B,
                "chunk": place_B // (len(y_B) // chunks) + first,
                "position": place_B % (len(y_B) // chunks),
            }
            self.statistics.take(lambda: self._batch(given_Bd, y_B, decided))

    def _batch(self, given_Bd: Tensor, y_B: Tensor, decided: Mapping[str, Tensor]) -> ValidationBatch:
        """Return a batch for statistics, in its own memory."""
        y_B = y_B.clone()
        h_Bd = given_Bd.to(self.decider.weight.device, torch.float64, copy=True)
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
            **{name: value.clone() for name, value in decided.items()},
        )

    def state(self) -> dict[str, Tensor]:
        """Return the complete state in the layout of the store; :meth:`resume` restores it exactly."""
        seen = torch.stack([self._sums[n] for n in ("counts", "linear_predictions", "ncc_predictions")]).sum(dim=0)
        classes = seen.nonzero().squeeze(1)
        chunks = torch.cat(self._chunks) if self._chunks else torch.zeros(0, 4, dtype=torch.float64)
        state = {"classes": classes, "chunk_totals": chunks}
        state |= {name: values[classes] for name, values in self._sums.items()}
        state["argmax_without_mean"] = torch.tensor([self._argmax_without_mean])
        state |= self.statistics.state()
        return {name: value.cpu().contiguous() for name, value in state.items()}

    def resume(
        self,
        state: Mapping[str, Tensor],
        kinds: Sequence[type[Statistic]] = (),
        dropped: Mapping[str, str] | None = None,
    ) -> None:
        """Resume from the result of :meth:`state` with these statistics; those in ``dropped`` are no longer filled."""
        device = self.decider.weight.device
        classes = state["classes"].to(device)
        for name, values in self._sums.items():
            values[classes] = state[name].to(device)
        self._chunks = [state["chunk_totals"].to(device)]
        self._argmax_without_mean = int(state["argmax_without_mean"])
        self.statistics = Filled.from_state(state, device, kinds, dropped)


def _power_of_two(values: Tensor) -> float:
    """Return the power of two that divides the largest value to between ½ and 1."""
    _, exponent = math.frexp(max(map(abs, map(float, torch.aminmax(values)))))
    return math.ldexp(1.0, min(max(exponent, -1000), 1000))


def merge_validation(parts: Sequence[ValidationStatistics]) -> ValidationStatistics:
    """Add the validation counts of parts, and concatenate their chunks in this order."""
    classes = torch.unique(torch.cat([part.classes for part in parts]))

    def added(name: str) -> Tensor:
        total = torch.zeros(len(classes), dtype=getattr(parts[0], name).dtype)
        for part in parts:
            total.index_add_(0, torch.searchsorted(classes, part.classes), getattr(part, name))
        return total

    names = (*_PER_CLASS, "linear_predictions", "ncc_predictions", "loss_sum")
    return ValidationStatistics(
        classes=classes,
        chunk_totals=torch.cat([part.chunk_totals for part in parts]),
        argmax_without_mean=torch.stack([part.argmax_without_mean for part in parts]).sum(dim=0),
        **{name: added(name) for name in names},
    )
