"""Prepare a results table for analyses, figures and reports, and remark on rows that are hard to compare.

The published tables have the measurements of collapse under other names, or only values from which they can be
computed. This module has the formulas.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from collapse.errors import counted, shortened, some
from collapse.measurement.comparable import mixed
from collapse.measurement.model_names import ARCHITECTURE, with_parts
from collapse.measurement.results import Results, chosen
from collapse.stores.layer_names import TOP

if TYPE_CHECKING:
    import pandas as pd

MAY = {
    "n_params": "n_params",
    "classes": "(matches / matches_mean + 0.5) // 1",  # matches_mean is the mean per class
    "val_loss": "val_loss",
    "val_accuracy": "val_acc",
    "perplexity": "perplex",
    "nc1.cdnv": "cdnv_mean",
    "nc1.cdnv_std": "cdnv_std",
    "nc2.log_norm": "norms_log_mean / 2",
    "nc2.log_norm_std": "norms_log_std / 2",
    "nc2.equinormness": "norms_log_std / norms_log_mean",
    "nc2.interference": "interfere_mean",
    "nc2.interference_std": "interfere_std",
    "nc2.equiangularity": "interfere_std / interfere_mean",
    "nc2.effective_dimension": "1 / (interfere_std ** 2 + interfere_mean ** 2)",
    "gnc2.uncentred_uniformity": "log_dist_std / log_dist_mean",
    "nc3.self_duality": "sims_mean",
    "nc3.self_duality_std": "sims_std",
    "unc3.uniform_duality": "sims_std / sims_mean",
    "nc4.agreement": "matches / (matches + misses)",
}
"""Measurements, as columns or formulas of columns in ``lc-2024_05_18.csv``, which has the paper's numbers."""
OCTOBER = {
    "nc2.norm": "norms_mean",
    "nc2.norm_std": "norms_var ** 0.5",
    "nc2.etf_error": "etf_error",
    "gnc2.hyperspherical_uniformity": "log_kern_var ** 0.5 / log_kern_mean",
    "gnc2.log_kernel": "log_kern_mean",
    "gnc2.log_kernel_std": "log_kern_var ** 0.5",
    "nc3.dot": "simdot_mean",
    "nc3.duality_distance": "dists_mean",
    "nc3.duality_error": "dual_error",
}
"""The same for ``lc-2024_10_24.csv``: only measurements that the table of May lacks."""
_OCTOBER_AGAIN = {
    "val_accuracy": "val_acc",
    "perplexity": "perplex",
    "nc1.cdnv": "cdnv",
    "nc2.equinormness": "norms_log_var ** 0.5 / norms_log_mean",
    "nc3.self_duality": "simcos_mean",
    "unc3.uniform_duality": "simcos_var ** 0.5 / simcos_mean",
    "nc4.agreement": "hits / (hits + misses)",
}
"""Measurements that both tables have. October's table has inner products, from which no angle can be computed."""
TABLE_1 = (
    "nc1.cdnv",
    "nc2.equinormness",
    "nc2.equiangularity",
    "gnc2.uncentred_uniformity",
    "nc3.self_duality",
    "unc3.uniform_duality",
    "nc4.agreement",
)
"""The seven properties of the paper's Table 1."""
LAYER_DEPTH = "layer_depth"
_NAME = re.compile(r"[a-z]\w*")
SIZES = (ARCHITECTURE, "n_params", "dim")
"""Columns that group models by size, in order of preference. Rows of one size are more exchangeable than all rows."""


def prepared(results: Results) -> "pd.DataFrame":
    """Add columns to a table: values read from models' names, and measurements computed from published columns.

    In the result, ``depth`` is the depth of models. An existing column with the depth of layers is renamed
    ``layer_depth``.
    """
    frame = results.frame()
    frame = with_parts(frame.rename(columns={"depth": LAYER_DEPTH} if "layer" in frame else {}))
    # the two tables have some column names in common, such as norms_mean, but not their meaning
    formulas = MAY if "cdnv_mean" in frame else OCTOBER | _OCTOBER_AGAIN
    made = {
        name: frame.eval(formula)
        for name, formula in formulas.items()
        if name not in frame and all(each in frame for each in _NAME.findall(formula))
    }
    return frame.assign(**made)


def of_top(results: Results, options: Mapping[str, Any] | None = None) -> tuple[Results, list[str]]:
    """Return the rows of the layer ``top``, and a note if other rows are excluded.

    Layers of one model are not independent, so analyses and figures of models use one layer. All rows are returned
    if an option names the column ``layer``, as ``--where layer=4`` does, or if no row is of the layer ``top``.
    """
    frame = results.frame()
    if "layer" not in frame or re.search(r"\blayer\b", str(options)):
        return results, []
    below = frame["layer"] != TOP
    if not below.any() or below.all():
        return results, []
    note = f"{counted(int(below.sum()), 'row')} of layers other than top excluded"
    return chosen(results, frame.index[~below]), [note]


def remarks_on(frame: "pd.DataFrame") -> list[str]:
    """Return remarks on rows with different texts or settings, and on rows that share a model name."""
    found = mixed(frame.to_dict("records"))
    again = frame["model"][frame["model"].duplicated()].tolist() if "model" in frame else []
    if 0 < len(again) < len(frame) - 1:  # if all rows have one name, other columns distinguish them
        named = some([shortened(str(name)) for name in dict.fromkeys(again)])
        rows = counted(len(again), "row")
        found.append(f"{rows} with the same model name as another row ({named}): they may not be independent")
    return found


def size_of(frame: "pd.DataFrame") -> str | None:
    """Return the first of architecture, n_params and dim in which models differ, or None."""
    return next((name for name in SIZES if name in frame and frame[name].nunique() > 1), None)


def sizes_said(frame: "pd.DataFrame") -> str:
    """Return how many sizes the models have, as a clause; "" for one. Models of several sizes are not exchangeable."""
    size = size_of(frame)
    return f"the models have {frame[size].nunique()} values of {size}" if size else ""
