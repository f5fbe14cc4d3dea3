"""A results table made ready for figures: measurements under our names, parts of models' names, what gives a colour."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from collapse import CollapseError, CoV, Results
from collapse.errors import UsageError, counted
from collapse.measurement.columns import read_column
from collapse.measurement.comparing import corpora_of, mixed
from collapse.measurement.model_names import with_parts
from collapse.plugin.plugin_manager import plugins

if TYPE_CHECKING:
    import pandas as pd

# measurements that the published tables hold under other names, or as components (docs/tinystories.md)
_PUBLISHED = {
    "nc1.cdnv": "cdnv_mean",
    "nc2.equinormness": "norms_log_std/norms_log_mean",
    "nc2.interference": "interfere_mean",
    "nc2.interference_std": "interfere_std",
    "nc2.equiangularity": "interfere_std/interfere_mean",
    "nc2.effective_dimension": "1/(interfere_std**2+interfere_mean**2)",
    "gnc2.uncentred_uniformity": "log_dist_std/log_dist_mean",
    "nc3.self_duality": "sims_mean",
    "unc3.uniform_duality": "sims_std/sims_mean",
    "nc4.agreement": "matches/(matches+misses)",
}

_COLOURS = 8
"""A legend with more entries cannot be read: then a scale of colours is drawn."""


@dataclass(frozen=True)
class Colour:
    """What gives points their colour.

    Attributes:
        column: A column of the table.
        title: Its name in the legend.
        kind: "ordinal" for few ordered values, "quantitative" for many (on a log scale), "nominal" for names.
    """

    column: str
    title: str
    kind: str


def measured(results: Results, needs: Sequence[str] = ()) -> "pd.DataFrame":
    """Return a table with the parts of its models' names, and published components as measurements.

    Columns of numbers hold finite ones or NaN. ``width`` is d where the names say nothing.

    Args:
        results: Any results table.
        needs: Only rows with a number in each of these columns are returned.

    Raises:
        CollapseError: No row has numbers in all of ``needs``.
    """
    import pandas as pd

    frame = with_parts(results.frame()).reset_index(drop=True).copy()
    for name, expression in _PUBLISHED.items():
        if name not in frame:
            try:
                frame[name] = read_column(frame, expression).values
            except (UsageError, CollapseError):  # it lacks the components, or they are text or not finite
                continue
    for name in frame.columns:
        if "." in str(name) or name in ("val_loss", "n_params", "dim", "classes", "width", "depth"):
            frame[name] = pd.to_numeric(frame[name], errors="coerce").astype(np.float64)
            frame[name] = frame[name].where(np.isfinite(frame[name]))
    if "width" not in frame and "dim" in frame:
        frame["width"] = frame["dim"]
    if "model" not in frame:
        frame["model"] = [f"row {index + 1}" for index in range(len(frame))]
    frame["called"] = _short([str(each) for each in frame["model"]])
    lacking = [name for name in needs if name not in frame or not frame[name].notna().any()]
    if lacking:
        raise CollapseError(f"needs {', '.join(lacking)}, of which the table has no value")
    kept = frame.dropna(subset=list(needs))
    if needs and kept.empty:
        raise CollapseError(f"no row of the table has all of {', '.join(needs)}")
    return kept.reset_index(drop=True)


def having(frame: "pd.DataFrame", names: Sequence[str]) -> list[str]:
    """Return those columns that have a number in one row at least."""
    return [name for name in names if name in frame and frame[name].notna().any()]


def colour_of(frame: "pd.DataFrame", names: str = "called") -> Colour | None:
    """Return what tells sizes of models apart: width, number of parameters, or else a column of names if few."""
    for column, title in (("width", "width d"), ("n_params", "parameters"), ("dim", "width d")):
        if column not in frame or frame[column].isna().all():
            continue
        different = frame[column].nunique()
        if different > _COLOURS and (frame[column] > 0).all():
            return Colour(column, title, "quantitative")
        if 1 < different <= _COLOURS:
            return Colour(column, title, "ordinal")
    title = "model" if names == "called" else names
    return Colour(names, title, "nominal") if 1 < frame[names].nunique() <= _COLOURS else None


def records(frame: "pd.DataFrame", columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return rows with these columns, as plain values; dots in names become underscores (Vega reads dots as paths)."""
    import pandas as pd

    made: dict[str, list[Any]] = {}
    for name in dict.fromkeys(columns):
        if name in frame:
            values = frame[name].tolist()
            made[field(name)] = [None if pd.isna(each) is True else _whole(each) for each in values]
    return [dict(zip(made, row, strict=True)) for row in zip(*made.values(), strict=True)]


def models_in(frame: "pd.DataFrame") -> int:
    """Return how many models the rows are of: rows of one store that differ in ``--min-count`` are of one.

    >>> import pandas as pd
    >>> models_in(pd.DataFrame({"store": ["a", "a", "b", None]}))
    3
    """
    if "store" not in frame:
        return len(frame)
    stores = frame["store"].where(frame["store"] != "")
    return int(stores.nunique() + stores.isna().sum())


def limits_of_lines(frame: "pd.DataFrame") -> list[str]:
    """Return the column of ``--min-count`` if rows differ in it: they are then points of different lines."""
    return ["min_count"] if "min_count" in frame and frame["min_count"].nunique() > 1 else []


def field(name: str) -> str:
    """Return the name of a column in a specification.

    >>> field("nc1.cdnv")
    'nc1_cdnv'
    """
    return name.replace(".", "_")


def remarks(frame: "pd.DataFrame", left_out: int = 0) -> tuple[str, ...]:
    """Return remarks on the rows of a figure: mixed texts, equal names, rows without a value."""
    found = mixed(frame.to_dict("records"))
    if not found and len(corpora := corpora_of(frame)) > 1:
        found.append(f"rows of different corpora are mixed: {', '.join(corpora[:4])}")
    again = int(frame["model"].duplicated().sum())
    if again:
        found.append(f"{counted(again, 'row')} with the name of another row")
    if left_out:
        found.append(f"{counted(left_out, 'row')} left out for missing values")
    return tuple(found)


def caution(frame: "pd.DataFrame") -> str:
    """Return the sentence of a caption with R² of models of several sizes."""
    sizes = sizes_in(frame)
    return f" {sizes[:1].upper()}{sizes[1:]}: size alone can give a large R²." if sizes else ""


def sizes_in(frame: "pd.DataFrame") -> str:
    """Return how many sizes the models have, or "" for models of one size, whose rows may be exchangeable."""
    names = ("architecture", "n_params", "dim")
    size = next((name for name in names if name in frame and frame[name].nunique() > 1), None)
    return f"the models have {frame[size].nunique()} values of {size}" if size else ""


def mean_crosses_0(frame: "pd.DataFrame", name: str) -> bool:
    """Whether a CoV has values on both sides of 0: it has no bound where the mean that it is divided by is near 0."""
    declared = plugins().measurements().get(name)
    return declared is not None and isinstance(declared[1], CoV) and bool(frame[name].min() < 0 < frame[name].max())


def r_squared(x: Any, y: Any) -> float | None:
    """Return the square of Pearson's r over rows with both numbers; None of fewer than 3 rows or a constant.

    >>> r_squared([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])
    1.0
    """
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    kept = np.isfinite(x) & np.isfinite(y)
    x, y = x[kept], y[kept]
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return float(np.corrcoef(x, y)[0, 1] ** 2)


def _short(names: list[str]) -> list[str]:
    """Return names for a legend: without the owner or folder where they differ without it.

    >>> _short(["user/a", "user/b", "user/a"]), _short(["x/a", "y/a"])
    (['a', 'b', 'a'], ['x/a', 'y/a'])
    """
    last = [each.rstrip("/").rpartition("/")[2] for each in names]
    return last if len(set(last)) == len(set(names)) else names


def _whole(value: Any) -> Any:
    """Return a number without a fraction as an integer, so that legends show 64, not 64.0."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value
