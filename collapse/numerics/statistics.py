"""Define the statistics of one layer's embeddings, which every metric reads.

Shapes: C classes, d dimensions, V classes that occur in validation as a label or a prediction, S validation blocks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from collapse.errors import CollapseError, at_least, counted
from collapse.plugin.parameter_names import HELD, OF_OTHERS

ROUNDING = 2.0**-48
"""Largest relative difference (16 ulp) between float64 sums of the same few thousand numbers in different orders."""

_PER_CLASS = ("classes", "counts", "means", "variances", "classifier", "bias")
_PER_LABEL = ("classes", "counts", "agreements", "linear_hits", "ncc_hits", "vocabulary_hits", "loss_sum")


@dataclass(frozen=True, kw_only=True)
class ValidationStatistics:
    """The counts of one pass over the validation text, per class and per block.

    ``linear`` is the model's own classifier and ``ncc`` the nearest-class-centre rule, both over the classes with a
    mean; ``vocabulary`` is the model's classifier over every token.

    Attributes:
        classes: Labels and predicted classes, ascending, shape (V,).
        counts: Samples with this label.
        agreements: Samples with this label for which linear and ncc predict the same class.
        linear_hits: Samples with this label that linear predicts correctly.
        ncc_hits: Samples with this label that ncc predicts correctly.
        vocabulary_hits: Samples with this label that the argmax over the whole vocabulary predicts correctly.
        linear_predictions: Samples for which linear predicts this class.
        ncc_predictions: Samples for which ncc predicts this class.
        loss_sum: Sum of cross-entropy over the whole vocabulary, in nats.
        block_totals: For each block, five columns: samples, agreements, vocabulary hits, loss, and the block's number;
            shape (S, 5).
        argmax_without_mean: Number of samples whose argmax over the whole vocabulary is a class without a mean, shape
            (1,).
    """

    classes: Int[Tensor, " V"]
    counts: Int[Tensor, " V"]
    agreements: Int[Tensor, " V"]
    linear_hits: Int[Tensor, " V"]
    ncc_hits: Int[Tensor, " V"]
    vocabulary_hits: Int[Tensor, " V"]
    linear_predictions: Int[Tensor, " V"]
    ncc_predictions: Int[Tensor, " V"]
    loss_sum: Float[Tensor, " V"]
    block_totals: Float[Tensor, "S 5"]
    argmax_without_mean: Int[Tensor, " 1"]

    @property
    def samples(self) -> int:
        """Number of validation samples."""
        return int(self.counts.sum())

    def of_labels(self, labels: Int[Tensor, " K"]) -> "ValidationStatistics | None":
        """Return the counts of the samples with these labels, as one block; None if there are no such samples.

        Predictions are counted over all samples, not for the samples of each label. So ``linear_predictions``,
        ``ncc_predictions`` and ``argmax_without_mean`` are unknown for these samples, and are 0 in the result.
        """
        kept = torch.isin(self.classes, labels.to(self.classes.device))
        made = {name: getattr(self, name)[kept] for name in _PER_LABEL}
        unknown = torch.zeros_like(made["counts"])
        totals = [made[name].sum().double() for name in ("counts", "agreements", "vocabulary_hits", "loss_sum")]
        if not totals[0]:
            return None
        return ValidationStatistics(
            **made,
            linear_predictions=unknown,
            ncc_predictions=unknown,
            block_totals=torch.stack([*totals, torch.zeros_like(totals[0])]).unsqueeze(0),
            argmax_without_mean=torch.zeros_like(self.argmax_without_mean),
        )


@dataclass(frozen=True, kw_only=True)
class EmbeddingStatistics:
    """Class statistics of one layer, float64, as metrics read them.

    Attributes:
        classes: Next-token ids that occur in training, ascending, shape (C,).
        counts: N_c, samples per class, shape (C,).
        means: μ_c, shape (C, d), not centred.
        variances: σ_c², mean squared distance of a class's embeddings to its mean (Eq. 3), shape (C,).
        classifier: w_c, rows of the output embedding for these classes, shape (C, d), float64.
        bias: b_c, bias of the output embedding for these classes, shape (C,), or None.
        validation: The counts of the validation pass, or None.
        extra: For each plugin statistic, by name: its tensors, or a function that reads or downloads these tensors.
        n_params: Number of parameters of the model, or None if unknown.
        dtype: The dtype in which the embeddings were computed ("float32", "bfloat16", ...).
        min_count: Only classes with at least this many samples are kept.
        class_set: Digests of the stores whose common classes are kept, or None for all classes.
        left_out: Number of classes excluded because they have fewer samples or are not in the class set.
        seen: Ids of all classes with a mean, including the excluded classes, shape (C + left_out,); None if no class is
            excluded.
        versions: Version of each plugin statistic, by name. A statistic without a version is not compared with its
            installed plugin.
        makers: For each plugin statistic, by name: the distribution (Python package), file or module of the plugin that
            filled the statistic. If it is unknown, only the version is compared with the installed plugin.
        absent: For a value or statistic that metrics need, by name: why it can be missing, and which command adds it.
        ood: Statistics of an out-of-distribution text, or None.
        previous: Statistics of the previous row in a table of models, checkpoints or layers, or None.
    """

    classes: Int[Tensor, " C"]
    counts: Int[Tensor, " C"]
    means: Float[Tensor, "C d"]
    variances: Float[Tensor, " C"]
    classifier: Float[Tensor, "C d"] | None = None
    bias: Float[Tensor, " C"] | None = None
    validation: ValidationStatistics | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    n_params: int | None = None
    dtype: str = "float32"
    min_count: int = 1
    class_set: str | None = None
    left_out: int = 0
    seen: Int[Tensor, " K"] | None = None
    versions: Mapping[str, int] = field(default_factory=dict)
    makers: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    ood: "EmbeddingStatistics | None" = None
    previous: "EmbeddingStatistics | None" = None

    @property
    def n_classes(self) -> int:
        """Number of classes C."""
        return self.means.shape[0]

    @property
    def dim(self) -> int:
        """Number of dimensions d."""
        return self.means.shape[1]

    @cached_property
    def global_mean(self) -> Float[Tensor, " d"]:
        """μ̄, the unweighted mean of the class means (Eq. 2)."""
        return self.means.mean(dim=0)

    @cached_property
    def centred_means(self) -> Float[Tensor, "C d"]:
        """μ_c − μ̄; set to 0 where it is a rounding error, so that no ratio of rounding errors is reported."""
        return _without_rounding(self.means - self.global_mean, self.mean_rounding)

    @cached_property
    def norms(self) -> Float[Tensor, " C"]:
        """‖μ_c − μ̄‖."""
        return self.centred_means.norm(dim=1)

    @cached_property
    def mean_rounding(self) -> Float[Tensor, " C"]:
        """Length below which a difference of means is a rounding error: ROUNDING·(‖μ_c‖ + ‖μ̄‖)."""
        return ROUNDING * (self.means.norm(dim=1) + self.global_mean.norm())

    @property
    def unit_means(self) -> Float[Tensor, "C d"]:
        """u_c = (μ_c − μ̄)/‖μ_c − μ̄‖; nan where the norm is zero."""
        return self.centred_means / self.norms.unsqueeze(1)

    @property
    def centred_rows(self) -> Float[Tensor, "C d"] | None:
        """Classifier rows minus their mean over the kept classes; set to 0 where the difference is a rounding error."""
        if self.classifier is None:
            return None
        centre = self.classifier.mean(dim=0)
        rounding = ROUNDING * (self.classifier.norm(dim=1) + centre.norm())
        return _without_rounding(self.classifier - centre, rounding)

    def statistic(self, name: str) -> Mapping[str, Tensor]:
        """Return the tensors of a plugin statistic, on the device of the means.

        Raises:
            CollapseError: The store does not hold this statistic.
        """
        if name not in self.extra:
            raise CollapseError(
                f"this store holds no statistic {name!r}: collect the store again with the plugin of this statistic"
            )
        held = self.extra[name]
        tensors = held() if callable(held) else held
        return {key: value.to(self.means.device) for key, value in tensors.items()}

    def has(self, need: str) -> bool:
        """Return whether the value or plugin statistic named ``need``, which a metric needs, is available."""
        return getattr(self, need) is not None if need in HELD else need in self.extra

    def keep(
        self, min_count: int, ids: Int[Tensor, " K"] | None = None, class_set: str | None = None
    ) -> "EmbeddingStatistics":
        """Return a copy with only some classes; validation counts are unchanged.

        Args:
            min_count: Keep classes with at least this many samples.
            ids: Keep only these classes; None for all.
            class_set: Digests of the stores whose common classes are ``ids``; None keeps the recorded digests.

        Raises:
            UsageError: ``min_count`` is not an integer of at least 1.
            CollapseError: Fewer than two classes remain.
        """
        min_count = at_least(1, "min_count", min_count)
        kept = self.counts >= min_count
        if ids is not None:
            kept &= torch.isin(self.classes, ids.to(self.classes.device))
        here = int(kept.sum())
        if here < 2:
            remedy = "collect samples of more classes"
            if here < self.n_classes:
                remedy = (
                    f"lower --min-count (the largest class has {int(self.counts.max())}), or choose other classes with "
                    "--classes-of or --group-by"
                )
            raise CollapseError(
                f"{here} of {counted(self.n_classes, 'class')} kept, but a measurement needs two: {remedy}"
            )
        made = replace(self, min_count=max(min_count, self.min_count), class_set=class_set or self.class_set)
        if here == self.n_classes:
            return made
        left_out = self.left_out + self.n_classes - here
        seen = self.classes if self.seen is None else self.seen
        return made._with_rows(lambda rows: rows[kept], left_out=left_out, seen=seen)

    def group(self, ids: Int[Tensor, " K"]) -> "EmbeddingStatistics":
        """Return a copy with only these classes, and only the validation samples with these labels.

        Raises:
            CollapseError: Fewer than two classes remain.
        """
        validation = self.validation and self.validation.of_labels(ids)
        why = {"validation": "no validation sample has a label of this group"} if self.validation else {}
        return replace(self.keep(1, ids), validation=validation, absent={**self.absent, **why})

    def to(self, device: str | torch.device) -> "EmbeddingStatistics":
        """Return a copy with the class tensors, also those of ``ood`` and ``previous``, on another device."""
        others = {name: other.to(device) for name in OF_OTHERS if (other := getattr(self, name)) is not None}
        return self._with_rows(lambda rows: rows.to(device), **others)

    def _with_rows(self, change: Callable[[Tensor], Tensor], **more: Any) -> "EmbeddingStatistics":
        for name in _PER_CLASS:
            rows = getattr(self, name)
            more[name] = None if rows is None else change(rows)
        return replace(self, **more)


def _without_rounding(rows: Float[Tensor, "C d"], rounding: Float[Tensor, " C"]) -> Float[Tensor, "C d"]:
    """Set to 0, in place, the rows whose norm is at most their rounding error."""
    nothing = (rows.norm(dim=1) <= rounding) & (rounding > 0)  # both are 0 if the squares of tiny rows underflow
    return rows.masked_fill_(nothing.unsqueeze(1), 0)


def row_cosine(a: Float[Tensor, "C d"], b: Float[Tensor, "C d"]) -> Float[Tensor, " C"]:
    """Return the cosine of row i of ``a`` and row i of ``b``, for each i; nan if one of the two rows is zero.

    No product overflows.

    >>> row_cosine(torch.tensor([[3.0, 4.0]]), torch.tensor([[6.0, 8.0]])).tolist()
    [1.0]
    """
    return (unit_rows(a) * unit_rows(b)).sum(dim=1)


def unit_rows(rows: Float[Tensor, "C d"]) -> Float[Tensor, "C d"]:
    """Divide each row by its norm; nan if the row is zero.

    >>> unit_rows(torch.tensor([[0.0, 4e200]], dtype=torch.float64)).tolist()
    [[0.0, 1.0]]
    """
    rows = rows / rows.abs().amax(dim=1, keepdim=True)
    return rows / rows.norm(dim=1, keepdim=True)


def cov(values: Float[Tensor, " n"]) -> Tensor:
    """Return the coefficient of variation, population standard deviation / mean; it has the sign of the mean.

    >>> float(cov(torch.tensor([1.0, 3.0])))
    0.5
    """
    return values.std(correction=0) / values.mean()
