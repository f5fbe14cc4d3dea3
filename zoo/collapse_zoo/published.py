"""The paper's own measurements of its 230 models, under our names; from the artifacts of rhubarbwu/linguistic-collapse.

:func:`convert` made ``published.csv`` from that repository's ``lc-2024_05_18.csv`` (the numbers of the paper's tables
and figures) and ``lc-2024_10_24.csv`` (the same models, measured again with the authors' later library). It has nine
digits, and class-wise standard deviations over n − 1 as published. docs/tinystories.md describes the columns.
"""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from collapse_zoo.recipes import parse

if TYPE_CHECKING:
    import pandas as pd

FILE = Path(__file__).with_name("published.csv")

# our names, with the published column or a formula of columns
ABOUT = ("n_params", "classes", "dim")
"""Columns that are no measurements."""
MAY = {
    "n_params": "n_params",
    "classes": "(matches / matches_mean + 0.5) // 1",  # the mean is of a class
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


@cache
def published() -> "pd.DataFrame":
    """Return one row per model, by its short name (``12x1024_10L@9``): size, C, d, validation and measurements."""
    import pandas as pd

    return pd.read_csv(FILE, index_col="model")


def convert(may: Path, october: Path) -> "pd.DataFrame":
    """Make the table from the two published ones."""
    import pandas as pd

    tables = []
    for file, columns in ((may, MAY), (october, OCTOBER)):
        there = pd.read_csv(file).set_index("model")
        tables.append(pd.DataFrame({name: there.eval(formula) for name, formula in columns.items()}))
    made = tables[0].join(tables[1], validate="one_to_one").sort_index()
    made.insert(2, "dim", [parse(str(model)).width for model in made.index])
    return made.astype({"classes": int})
