"""The columns of the paper's Table 1 and Figure 1, in our tables and in the two published ones."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

_NAME = re.compile(r"[A-Za-z_][\w.]*")

PAPER: Mapping[str, tuple[str, ...]] = {
    "nc1.cdnv": ("cdnv_mean", "cdnv"),
    "nc2.equinormness": ("norms_log_std/norms_log_mean", "norms_log_var**0.5/norms_log_mean"),
    "nc2.equiangularity": ("interfere_std/interfere_mean",),
    "gnc2.uncentred_uniformity": ("log_dist_std/log_dist_mean",),
    "nc3.self_duality": ("sims_mean", "simcos_mean"),
    "unc3.uniform_duality": ("sims_std/sims_mean", "simcos_var**0.5/simcos_mean"),
    "nc4.agreement": ("matches/(matches+misses)", "hits/(hits+misses)"),
}
"""The seven of Table 1, with formulas of the columns of ``lc-2024_05_18.csv`` and of ``lc-2024_10_24.csv``.

The table of October 2024 has inner products instead of cosines, hence no equiangularity, and only the centred GNC2.
"""

FIGURE1: Mapping[str, tuple[str, ...]] = {
    "log(nc1.cdnv)": ("log(cdnv_mean)", "log(cdnv)"),
    "gnc2.uncentred_uniformity": PAPER["gnc2.uncentred_uniformity"],
    "gnc2.hyperspherical_uniformity": ("log_kern_var**0.5/log_kern_mean",),
    "unc3.uniform_duality": PAPER["unc3.uniform_duality"],
    "nc4.agreement": PAPER["nc4.agreement"],
}
"""The four of Figure 1, whose first axis is logarithmic; GNC2 as published and by Eq. 7, with centring."""

SETS = {"paper": PAPER, "figure1": FIGURE1}

MEASUREMENT_OF = {formula: name for set_ in SETS.values() for name, formulas in set_.items() for formula in formulas}
"""The measurement, or its logarithm, that a formula of published columns gives."""


def columns_of(name: str, frame: "pd.DataFrame") -> tuple[list[str], list[str]]:
    """Return the columns of a set as ``label=expression``, and those that a table does not have.

    A set is one of :data:`SETS`: the seven of Table 1 or the four of Figure 1.

    >>> import pandas as pd
    >>> columns_of("paper", pd.DataFrame(columns=["sims_mean", "sims_std", "nc1.cdnv"]))[0]
    ['nc1.cdnv', 'nc3.self_duality=sims_mean', 'unc3.uniform_duality=sims_std/sims_mean']
    """
    found, missing = [], []
    for label, formulas in SETS[name].items():
        usable = [each for each in (label, *formulas) if _has(frame, each)]
        if usable:
            found.append(label if usable[0] == label else f"{label}={usable[0]}")
        else:
            missing.append(label)
    return found, missing


def _has(frame: "pd.DataFrame", expression: str) -> bool:
    return all(name in frame for name in _NAME.findall(expression) if name != "log")
