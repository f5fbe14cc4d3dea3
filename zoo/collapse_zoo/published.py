"""The paper's own measurements of its 230 models, under our names; from the artifacts of rhubarbwu/linguistic-collapse.

:func:`convert` made ``published.csv`` from that repository's ``lc-2024_05_18.csv`` (the numbers of the paper's tables
and figures) and ``lc-2024_10_24.csv`` (the same models, measured again with the authors' later library). It has nine
digits, and class-wise standard deviations over n − 1 as published. docs/tinystories.md describes the columns.
"""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from collapse.measurement.prepared import MAY, OCTOBER
from collapse_zoo.recipes import parse

if TYPE_CHECKING:
    import pandas as pd

FILE = Path(__file__).with_name("published.csv")


ABOUT = ("n_params", "classes", "dim")
"""Columns that are no measurements."""


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
