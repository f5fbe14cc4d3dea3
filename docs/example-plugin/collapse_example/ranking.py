"""Models in the order of a column: an analysis."""

from collapse import Results, Table, analysis
from collapse.measurement.columns import read_column
from collapse.measurement.comparable import mixed


@analysis("example-ranking")
def ranking(results: Results, *, column: str = "val_loss", top: int = 3) -> Table:
    """The models with the smallest values of a column.

    Args:
        column: A column, or arithmetic such as nc2.norm_std/nc2.norm.
        top: How many.
    """
    frame = results.frame()
    values = read_column(frame, column).values
    order = values.argsort(kind="stable")[:top]
    rows = [[str(frame["model"].iloc[place]), float(values[place])] for place in order]
    return Table(f"Smallest {column}", ["model", column], rows, mixed(frame.to_dict("records")))
