"""What the axes of figures are called: every measurement with its unit, short enough for a panel of one inch."""

from dataclasses import dataclass

LOSS = "loss (nats/token)"


@dataclass(frozen=True)
class Shown:
    """How a measurement is drawn.

    Attributes:
        title: Of the panel: the property.
        axis: Of the axis: what is measured, with its unit; values without one have none.
        log: On a log axis.
    """

    title: str
    axis: str
    log: bool = False


_SHOWN = {
    "val_loss": Shown("Loss", LOSS),
    "nc1.cdnv": Shown("NC1", "mean CDNV (1/h²)", log=True),
    "nc1.cdnv_ratio": Shown("NC1, ratio", "variance / distance²", log=True),
    "nc1.cdnv_ratio_debiased": Shown("NC1, debiased", "variance / distance²", log=True),
    "nc2.equinormness": Shown("NC2: norms", "CoV of log norms"),
    "nc2.interference": Shown("NC2: mean angle", "mean cosine"),
    "nc2.interference_std": Shown("NC2: angles (std)", "std of cosines"),
    "nc2.equiangularity": Shown("NC2: angles (CoV)", "CoV of cosines"),
    "nc2.effective_dimension": Shown("NC2: dimensions", "effective dimension", log=True),
    "nc2.etf_error": Shown("NC2: ETF error", "distance from an ETF"),
    "nc3.duality_error": Shown("NC3: ETF error", "distance from an ETF"),
    "gnc2.hyperspherical_uniformity": Shown("GNC2", "CoV of log(1/dist.)"),
    "gnc2.uncentred_uniformity": Shown("GNC2, not centred", "CoV of log(1/dist.)"),
    "nc3.self_duality": Shown("NC3", "mean cos(w, μ)"),
    "nc3.self_duality_ratio": Shown("NC3, ratio", "cosine of W and M"),
    "nc3.self_duality_ratio_debiased": Shown("NC3, debiased", "cosine of W and M"),
    "unc3.uniform_duality": Shown("UNC3", "CoV of cos(w, μ)"),
    "nc4.agreement": Shown("NC4", "agreeing share"),
}


def shown(name: str) -> Shown:
    """Return how a measurement is drawn; one that is not known here is called by its name.

    >>> shown("nc1.cdnv").axis, shown("mine.mean_count").axis
    ('mean CDNV (1/h²)', 'mine.mean_count')
    """
    return _SHOWN.get(name) or Shown(name, name)
