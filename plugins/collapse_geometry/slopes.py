"""Slopes over classes on the logarithm of their counts: how means, rows, bias and variances follow frequency."""

from jaxtyping import Float, Int
from torch import Tensor

from collapse import Noted, metric

COLLAPSE_OPT_IN = True


@metric("geometry.slope.mean")
def mean_slope(counts: Tensor, norms: Tensor) -> Tensor | Noted:
    """Slope of the log norm of the centred class means on log count, least squares over classes; 0 for equal norms.

    Equation: slope of log‖μ_c − μ̄‖ on log N_c
    Source: minority collapse: Fang et al. 2021

    >>> round(value(mean_slope, tiny_statistics()), 6)
    -0.25
    """
    return _slope(counts, norms.log())


@metric("geometry.slope.row")
def row_slope(counts: Tensor, classifier: Tensor) -> Tensor | Noted:
    """Slope of the log norm of the classifier's rows on log count, least squares over classes; 0 for equal norms.

    Equation: slope of log‖w_c‖ on log N_c
    Source: norms and counts: Kang et al. 2020

    >>> round(value(row_slope, tiny_statistics()), 6)
    -0.25
    """
    return _slope(counts, classifier.norm(dim=1).log())


@metric("geometry.slope.bias")
def bias_slope(counts: Tensor, bias: Tensor) -> Tensor | Noted:
    """Slope of the classifier's bias on log count, least squares over classes; 1 if the bias is the log frequency.

    Equation: slope of b_c on log N_c
    Source: logits of the class prior: Menon et al. 2021

    >>> import dataclasses
    >>> s = tiny_statistics()
    >>> round(value(bias_slope, dataclasses.replace(s, bias=s.counts.log())), 6)
    1.0
    """
    return _slope(counts, bias)


@metric("geometry.slope.variance")
def variance_slope(counts: Tensor, variances: Tensor) -> Tensor | Noted:
    """Slope of the log within-class variance on log count, least squares over classes.

    Classes without variance, such as those of one sample, are excluded.

    Equation: slope of log σ_c² on log N_c
    Source: minority collapse: Fang et al. 2021; norms and counts: Kang et al. 2020

    >>> round(value(variance_slope, tiny_statistics()), 6)
    1.5
    """
    return _slope(counts, variances.log())


def _slope(counts: Int[Tensor, " C"], values: Float[Tensor, " C"]) -> Tensor | Noted:
    """Return the least-squares slope of the finite values on log count."""
    kept = values.isfinite()
    x = counts[kept].to(values).log()
    x = x - x.mean()
    if not x.any():
        return Noted(None, "the classes with a value have equally many samples")
    slope, without = x @ values[kept] / (x @ x), int((~kept).sum())
    return Noted(slope, f"{without:,} of {len(kept):,} classes have the value 0 and are excluded") if without else slope
