"""Prepare a results table for figures: the measurements that each figure draws, and the colour of points."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from collapse import CollapseError, Part, Results, Store
from collapse.errors import counted, shortened
from collapse.measurement.prepared import LAYER_DEPTH, prepared, remarks_on, sizes_said

if TYPE_CHECKING:
    import pandas as pd

_COLOURS = 8  # with more sizes, draw a colour scale, because a long legend is hard to read
_NUMBERS = {"val_loss", "n_params", "dim", "classes", "width", "depth", LAYER_DEPTH}


@dataclass(frozen=True)
class Shown:
    """How a measurement is drawn."""

    title: str  # title of the panel: the property
    axis: str  # title of the axis: the measured quantity with its unit
    figures: str = ""  # the kinds of figures that draw it
    log: bool = False  # whether the axis is logarithmic


MEASUREMENTS = {
    "val_loss": Shown("Loss", "loss (nats)", "curves"),
    "nc1.cdnv": Shown("NC1", "mean CDNV (1/h²)", "loss curves parts", log=True),
    "nc1.cdnv_ratio": Shown("NC1, ratio", "variance / distance²", "parts", log=True),
    "nc1.cdnv_ratio_debiased": Shown("NC1, debiased", "variance / distance²", "curves parts", log=True),
    "nc2.equinormness": Shown("NC2: norms", "CoV of log norms", "geometry curves"),
    "nc2.interference": Shown("NC2: mean angle", "mean cosine"),
    "nc2.interference_std": Shown("NC2: angles (std)", "std of cosines", "geometry curves parts"),
    "nc2.equiangularity": Shown("NC2: angles (CoV)", "CoV of cosines", "geometry"),
    "nc2.effective_dimension": Shown("NC2: dimensions", "effective dimension", log=True),
    "nc2.etf_error": Shown("NC2: ETF error", "distance from an ETF"),
    "nc3.duality_error": Shown("NC3: ETF error", "distance from an ETF"),
    "gnc2.hyperspherical_uniformity": Shown("GNC2", "CoV of log(1/dist.)", "geometry dimension parts"),
    "gnc2.uncentred_uniformity": Shown("GNC2, not centred", "CoV of log(1/dist.)", "loss dimension curves"),
    "nc3.self_duality": Shown("NC3", "mean cos(w, μ)", "duality curves parts"),
    "nc3.self_duality_ratio": Shown("NC3, ratio", "cosine of W and M", "parts"),
    "nc3.self_duality_ratio_debiased": Shown("NC3, debiased", "cosine of W and M", "parts"),
    "unc3.uniform_duality": Shown("UNC3", "CoV of cos(w, μ)", "loss duality curves parts"),
    "nc4.agreement": Shown("NC4", "agreeing share", "loss curves"),
}
"""How measurements are drawn, in the order of panels; a debiased measurement follows the plain one."""


def shown(name: str) -> Shown:
    """Return how a measurement is drawn; an unknown measurement is titled by its name.

    A monitor's validation measurement ``val_nc1.…`` is drawn as ``nc1.…``.

    >>> shown("nc1.cdnv").axis, shown("mine.mean_count").axis
    ('mean CDNV (1/h²)', 'mine.mean_count')
    """
    if name not in MEASUREMENTS and (of_validation := MEASUREMENTS.get(name.removeprefix("val_"))):
        return replace(of_validation, title=f"{of_validation.title}, validation")
    return MEASUREMENTS.get(name) or Shown(name, name)


def drawn_in(figure: str) -> list[str]:
    """Return the names of the measurements that a kind of figure draws.

    >>> drawn_in("duality")
    ['nc3.self_duality', 'unc3.uniform_duality']
    """
    return [name for name, about in MEASUREMENTS.items() if figure in about.figures.split()]


@dataclass(frozen=True)
class Colour:
    """The column that determines the colour of points."""

    column: str
    title: str  # title of the legend
    kind: str  # "ordinal" for few ordered values, "quantitative" for many (on a log scale), "nominal" for names


def measured(results: Results, needs: Sequence[str] = ()) -> "pd.DataFrame":
    """Return a table, with columns for the values in the models' names; numbers are finite or NaN.

    If names do not contain a width, the column ``width`` is d. The column ``called`` contains the models' names; owner
    and folder are removed if the short names of all models differ. Rows that lack a number in any of ``needs`` are
    excluded.

    Raises:
        CollapseError: No row has numbers in all of ``needs``.
    """
    import pandas as pd

    frame = prepared(results).reset_index(drop=True)
    numbers = [name for name in frame if "." in str(name) or name in _NUMBERS]
    frame[numbers] = frame[numbers].apply(pd.to_numeric, errors="coerce").astype(np.float64)
    frame[numbers] = frame[numbers].where(np.isfinite(frame[numbers]))
    frame = frame.copy()  # merges blocks: pandas warns when a frame of more than 100 blocks gets a new column
    if "width" not in frame and "dim" in frame:
        frame["width"] = frame["dim"]
    if "model" not in frame:
        frame["model"] = [f"row {index + 1}" for index in range(len(frame))]
    last = frame["model"].astype(str).str.rstrip("/").str.split("/").str[-1]
    frame["called"] = last if last.nunique() == frame["model"].nunique() else frame["model"].astype(str)
    kept = frame.dropna(subset=list(needs))
    if needs and kept.empty:
        raise CollapseError(
            f"no row of the table has numbers in all columns {', '.join(needs)}: give a table with such a row, or "
            "choose another figure"
        )
    return kept.reset_index(drop=True)


def having(frame: "pd.DataFrame", names: Sequence[str]) -> list[str]:
    """Return the columns that have a number in at least one row."""
    return [name for name in names if name in frame and frame[name].notna().any()]


def one_of(frame: "pd.DataFrame", names: Sequence[str]) -> list[str]:
    """Return the columns that have a number in at least one row; raise CollapseError if there are none."""
    found = having(frame, names)
    if not found:
        raise CollapseError(
            f"this figure needs numbers in one of the columns {', '.join(names)}: measure one of them, or choose "
            "another figure"
        )
    return found


def colour_of(frame: "pd.DataFrame", names: str = "called") -> Colour | None:
    """Choose the column that colours the points: a size if the models differ in size, otherwise the column ``names``.

    If models do not differ in size, and ``names`` has only one value or more than 8 values, return None.
    """
    for column, title in (("width", "width d"), ("n_params", "parameters"), ("dim", "width d")):
        different = frame[column].nunique() if column in frame else 0
        if different > _COLOURS and (frame[column] > 0).all():
            return Colour(column, title, "quantitative")
        if 1 < different <= _COLOURS:
            return Colour(column, title, "ordinal")
    title = "model" if names == "called" else names
    return Colour(names, title, "nominal") if 1 < frame[names].nunique() <= _COLOURS else None


def records(frame: "pd.DataFrame", columns: Sequence[str], colour: Colour | None = None) -> list[dict[str, Any]]:
    """Return the rows with those of ``columns``, and the column of ``colour``, that the table has.

    Dots in names become underscores, because Vega reads dots as paths. Missing values become None.

    >>> import pandas as pd
    >>> records(pd.DataFrame({"nc1.cdnv": [0.5, None]}), ["nc1.cdnv", "absent"])
    [{'nc1_cdnv': 0.5}, {'nc1_cdnv': None}]
    """
    names = dict.fromkeys([*columns, *([colour.column] if colour else [])])
    kept = frame[[name for name in names if name in frame]].astype(object)
    found: list[dict[str, Any]] = kept.where(kept.notna(), None).rename(columns=field).to_dict("records")
    return found


def field(name: str) -> str:
    """Return a column's name for a Vega-Lite specification, with underscores in place of dots."""
    return name.replace(".", "_")


def models(frame: "pd.DataFrame") -> str:
    """Return the number of models in the rows, as text; rows of one store are one model.

    >>> import pandas as pd
    >>> models(pd.DataFrame({"store": ["a", "a", "b", None]}))
    '3 models'
    """
    if "store" not in frame:
        return counted(len(frame), "model")
    stores = frame["store"].where(frame["store"] != "")
    return counted(int(stores.nunique() + stores.isna().sum()), "model")


def remarks(frame: "pd.DataFrame", left_out: int = 0) -> tuple[str, ...]:
    """Return remarks on the rows of a figure, and on rows that are excluded for missing values."""
    more = [f"{counted(left_out, 'row')} excluded for missing values"] if left_out else []
    return (*remarks_on(frame), *more)


def caution(frame: "pd.DataFrame") -> str:
    """Return, for a caption, the warning that size alone can give a large R²; "" if all models have one size."""
    said = sizes_said(frame)
    return f" {said[0].upper()}{said[1:]}: size alone can give a large R²." if said else ""


def r_squared(x: Any, y: Any) -> float | None:
    """Return the square of Pearson's r over rows with both numbers; None for fewer than 3 rows or a constant.

    >>> r_squared([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])
    1.0
    """
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    kept = np.isfinite(x) & np.isfinite(y)
    if kept.sum() < 3 or np.ptp(x[kept]) == 0 or np.ptp(y[kept]) == 0:
        return None
    return float(np.corrcoef(x[kept], y[kept])[0, 1] ** 2)


def names_of(stores: Sequence[Store | Part]) -> list[str]:
    """Return a unique name for each store: its model, with a number and its digest if models share a name."""
    names = [shortened(each.model) for each in stores]
    if len(set(names)) == len(stores):
        return names
    pairs = enumerate(zip(names, stores, strict=True), start=1)
    return [f"{at}: {name} ({each.digest[:8]})" for at, (name, each) in pairs]
