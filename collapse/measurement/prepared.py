"""Prepare a results table for analyses, figures and reports, and remark on rows that are hard to compare."""

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
SIZES = (ARCHITECTURE, "n_params", "dim")
"""Columns that group models by size, in order of preference. Rows of one size are more exchangeable than all rows."""


def prepared(results: Results) -> "pd.DataFrame":
    """Return a results table as a DataFrame, with the values in models' names as additional columns.

    In the result, ``depth`` is the depth of models. An existing column with the depth of layers is renamed
    ``layer_depth``.
    """
    frame = results.frame()
    return with_parts(frame.rename(columns={"depth": LAYER_DEPTH} if "layer" in frame else {}))


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
    """Return a clause that says how many sizes the models have, or "" if the models do not differ in size.

    Models of several sizes are not exchangeable.
    """
    size = size_of(frame)
    return f"the models have {frame[size].nunique()} values of {size}" if size else ""
