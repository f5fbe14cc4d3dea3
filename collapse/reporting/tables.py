"""The tables of a report on what goes with loss, and on tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from collapse.errors import CollapseError, counted, shortened
from collapse.measurement.analyzing import analyze
from collapse.measurement.cells import is_number, text
from collapse.measurement.model_names import ARCHITECTURE, training_of, with_parts
from collapse.measurement.results import Results
from collapse.measurement.table import Table, table_of_frame
from collapse.plugin.plugin_manager import plugins
from collapse.progress import Report
from collapse.stores.store import Store
from collapse.vocabulary.token_table import tokens
from collapse.vocabulary.token_texts import quoted

if TYPE_CHECKING:
    import pandas as pd

_SIZES = (ARCHITECTURE, "n_params", "dim")
"""Columns of models of one size, within which rows are more exchangeable than over all; the first that divides them."""
LOG_LOSS = "log(val_loss)"
_BOUND = "_is_bound"
"""End of a column that says of the one without it that no permutation reached |r|: 3 p is then its bound of 95 %."""
_EXTREMES = 10


@dataclass(frozen=True)
class Associations:
    """What goes with validation loss.

    Attributes:
        over: Tables of analyses over all rows, by analysis.
        within: The same within models of one size, and with the effect of ``trained`` subtracted.
        size: The column whose values are the sizes, or None where sizes do not repeat.
        lacking: Why others are not shown.
        trained: The column that says how models of one size were trained, if it differs.
    """

    over: Mapping[str, Table]
    within: Mapping[str, Table]
    size: str | None
    lacking: Sequence[str]
    trained: str | None = None


def tests_of(results: Results, permutations: int) -> Associations:
    """Run those of the analyses permutation and correlation that are installed and sound for the rows.

    Where models share a size, rows are not exchangeable: over all rows whole sizes count, and rows are permuted only
    within them. Where these were trained differently, the correlation subtracts that too, and permutes whole sizes;
    because what additive effects leave depends on the scale of the loss, it is then run for the log loss as well.
    """
    named = with_parts(results.frame())
    size = next((name for name in _SIZES if _repeats(named, name)), None)
    trained = training_of(named, size) if size is not None else None
    names = [name for name in (size, trained) if name is not None]
    runs: list[tuple[str, dict[str, object]]] = [("correlation", {"cluster": size})]
    runs += [("correlation", {"within": names})] if size else []
    runs += [("correlation", {"within": names, "against": LOG_LOSS})] if trained else []
    runs += [("permutation", {"n": permutations, "within": names or None})] if trained is None else []
    over: dict[str, Table] = {}
    within: dict[str, Table] = {}
    lacking = []
    for name, options in runs:
        if name not in plugins().analyses:
            continue
        grouped = bool(options.get("within"))
        key = f"{name}-log" if "against" in options else name
        try:
            (within if grouped else over)[key] = analyze(name, Results.from_frame(named), **options)
        except CollapseError as error:
            lacking.append(f"{name}{f' within equal {size}' if grouped else ''}: {error}")
    return Associations(over, within, size, lacking, trained)


def _repeats(frame: "pd.DataFrame", column: str) -> bool:
    """Whether a column divides the rows into several groups, most of more than two rows."""
    if column not in frame:
        return False
    sizes = frame[column].value_counts()
    return len(sizes) > 1 and bool((sizes > 2).mean() > 0.5)


def analysis_table(table: Table) -> Table:
    """Return the table of an analysis, the strongest association first."""
    columns = [name for name in table.columns if not name.endswith(_BOUND)]
    records = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    records.sort(key=lambda record: -(record.get("R2") or 0.0))
    columns = [name for name in columns if any(record[name] is not None for record in records)]
    rows = [
        [f"≤ {min(3 * record[name], 1):.3g}" if record.get(name + _BOUND) else record[name] for name in columns]
        for record in records
    ]
    return Table(table.title, columns, rows, table.notes)


def token_tables(
    stores: Sequence[Store], most: int, tokenizer: str | Path | None = None, progress: Report | None = None
) -> tuple[list[Table], list[str]]:
    """Return for each store its table of tokens, and why others have none.

    Args:
        stores: The stores.
        most: How many of the most frequent tokens are kept.
        tokenizer: Folder or Hub id of their tokenizer; None for the one that each records.
        progress: Called as progress(what, done, total).
    """
    tables, lacking = [], []
    for store in stores:
        try:
            table = tokens(store, tokenizer=tokenizer, progress=progress)
        except CollapseError as error:
            lacking.append(f"tokens of {store.model}: {error}")
        else:
            tables.append(token_extract(table, store.model, most))
    return tables, lacking


def token_extract(table: Table, model: str, most: int) -> Table:
    """Return a row per token: the most frequent ones, and those with the largest and smallest value of each column.

    Args:
        table: A row per token, with its ``text`` and ``count``.
        model: Whose tokens they are.
        most: How many of the most frequent tokens are kept.
    """
    frame, notes = table.frame(), list(table.notes)
    if table.average is not None:
        each = zip(table.columns, table.average, strict=True)
        notes.append("; ".join(f"{name} {text(value)}" for name, value in each if is_number(value)))
    if len(frame) > most:
        chosen = set(frame["count"].nlargest(most).index)
        for name in frame.columns.drop(["id", "text", "count"], errors="ignore"):
            values = frame[name].dropna().astype(float)
            chosen |= {*values.nlargest(_EXTREMES).index, *values.nsmallest(_EXTREMES).index}
        notes.insert(
            0,
            f"{len(chosen):,} of {counted(len(frame), 'token')}: the {most:,} most frequent, and the {_EXTREMES} with "
            "the largest and the smallest value of each column; collapse tokens shows the others",
        )
        frame = frame.loc[sorted(chosen)]
    # Texts in quotes, because spaces count; an id is a name, not a number.
    texts = [None if each is None else quoted(each) for each in frame["text"]]
    frame = frame.assign(id=frame["id"].astype(str), text=texts)
    return table_of_frame(f"Tokens of {shortened(model, 60)}", frame, notes)
