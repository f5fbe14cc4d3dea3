"""Make a table with a row of measurements per token, with the columns of Tables 4 and 5 of the paper."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from collapse.core.progress import Report, shows_progress
from collapse.errors import UsageError
from collapse.measurement.measuring import (
    Measurable,
    check_name,
    class_measurements,
    row_and_results,
    values_by_class,
)
from collapse.measurement.row_tables import notes_of, titles_of
from collapse.measurement.rows import Row
from collapse.measurement.table import Table
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.vocabulary.chosen_classes import choose, rank
from collapse.vocabulary.token_texts import quoted

COLUMNS = (
    "nc2.norm",
    "nc2.scaled_norm",
    "nc1.cdnv",
    "nc2.interference",
    "nc3.self_duality",
    "nc4.agreement",
    "val_loss",
)
"""The measurements of a token, after its id, text and count."""

_AVERAGE = "average"
_AVERAGED = "average: over all classes, pairs or validation samples, as in collapse measure"


def token_table(
    row: Row,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    notes: Sequence[str],
    *,
    average: Sequence[Any] | None = None,
    keys: int = 2,
) -> Table:
    """Return a table of tokens, or of pairs of tokens.

    In the printed table, texts are quoted to show spaces, ids have no commas, and the average is the last row.

    Args:
        row: The measurements of the store, from which the title is made.
        columns: Names of the columns; texts are in columns called ``text…``, ids in columns called ``id…``.
        rows: A value per column for each token or pair.
        notes: Notes below the table.
        average: A value per column for the average; None for no average.
        keys: Number of leading columns that name a row.
    """

    def shown(column: str, value: Any) -> Any:
        if column.startswith("text"):
            return "–" if value is None else quoted(value)
        return str(value) if column.startswith("id") else value

    printed = [[shown(*each) for each in zip(columns, row, strict=True)] for row in rows]
    if average is not None:
        printed.append(
            ["" if value is None and name == "id" else value for name, value in zip(columns, average, strict=True)]
        )
    title = titles_of([row])[0]
    return Table(title, columns, rows, notes, Table(title, columns, printed, keys=keys), average=average)


@shows_progress
def tokens(
    store: Measurable,
    tokens: str | Iterable[str] | None = None,
    *,
    ids: Iterable[int] | None = None,
    top: int | None = None,
    least: int | None = None,
    by: str | None = None,
    tokenizer: Any = None,
    min_count: int = 1,
    progress: Report | None = None,
) -> Table:
    """Measure tokens: a row per class of a store, with its text and its values of NC1 to NC4.

    The columns are those of the paper's Tables 4 and 5, named as measurements: ``count`` (N_c), ``nc2.norm`` (‖μ_c −
    μ̄‖), ``nc2.scaled_norm`` (‖μ_c − μ̄‖² / √d), ``nc1.cdnv`` and ``nc2.interference`` (means over the C−1 other
    classes), ``nc3.self_duality`` (cosine of w_c and μ_c − μ̄), ``nc4.agreement`` and ``val_loss`` (of the validation
    samples with this label). One pass over the pairs of classes computes all pairwise columns.

    Args:
        store: A store, its folder or name on the Hub, or an :class:`collapse.EmbeddingStatistics`.
        tokens: Texts, verbatim. ``" Tim"`` and ``"Tim"`` are different tokens; if you give only one of the two texts,
            the table also has a row for the other.
        ids: Token ids. Without tokens, ids, top and least, the table has all classes.
        top, least: How many classes to show with the largest (``top``) or smallest (``least``) values of ``by``.
        by: What ``top`` and ``least`` rank by: ``count``, or a measurement with a value per class, which becomes a
            column; by default ``nc1.cdnv``.
        tokenizer: Folder or Hub id of the tokenizer, or a tokenizer of transformers; None for the tokenizer that the
            store records.
        min_count: As in :func:`collapse.measure`.
        progress: Called as progress(what, done, total[, note]).

    Returns:
        A table; its ``frame()`` is a pandas DataFrame with a row per token, and its ``average`` has the measurements
        over all classes. Texts are None if no tokenizer is found; a note reports this.

    Raises:
        UsageError: A token, id or column is unknown (the message suggests similar ones, or the tokens of a word), or
            ``top``, ``least`` or ``by`` is combined with arguments that exclude it.
        CollapseError: The store or the tokenizer cannot be read.

    >>> from collapse.testing import tiny_statistics
    >>> tokens(tiny_statistics(), ids=[3]).frame()[["id", "count", "nc3.self_duality"]].round(6).to_dict("records")
    [{'id': 3, 'count': 2, 'nc3.self_duality': 1.0}]
    """
    ranked = top is not None or least is not None
    if ranked and (tokens is not None or ids is not None):
        raise UsageError("--top and --least rank all classes: remove them, or give no tokens")
    if by is not None and not ranked:
        raise UsageError("--by ranks the classes for --top or --least: also give one of these two")
    by = by or "nc1.cdnv"
    check_name(by, ["count", *class_measurements()], "a measurement with a value per class")
    chosen = choose(store, tokens, ids, tokenizer=tokenizer, min_count=min_count, variants=True, every=True)
    names = [*COLUMNS, *([by] if ranked and by not in (*COLUMNS, "count") else [])]
    row, found = row_and_results(chosen.store, metrics=names, min_count=min_count, progress=progress, by_class=True)
    s, values = found.s, values_by_class(found)
    classes, counts = s.classes.tolist(), s.counts.tolist()
    if chosen.ids is not None:
        at = positions(s, chosen.ids)
    elif ranked:
        if by != "count" and by not in values:
            reasons = [note.text for note in row.notes if note.measurement == by]
            raise UsageError(f"cannot rank by {by}: {'; '.join(reasons)}")
        at = rank(s.counts.double() if by == "count" else values[by], top or 0, least or 0)
    else:
        at = list(range(len(classes)))
    of_class = [values[name].tolist() if name in values else [math.nan] * len(classes) for name in names]
    rows = [[classes[c], chosen.texts.text(classes[c]), counts[c], *(each[c] for each in of_class)] for c in at]
    average = [None, _AVERAGE, row.samples / row.classes, *(row.measurements[name] for name in names)]
    notes = [*chosen.notes, *remarks(row), _AVERAGED]
    return token_table(row, ["id", "text", "count", *names], rows, notes, average=average)


def positions(s: EmbeddingStatistics, ids: Sequence[int]) -> list[int]:
    """Return the positions in ``s`` of the classes with these token ids."""
    at = {each: index for index, each in enumerate(s.classes.tolist())}
    return [at[each] for each in ids]


def remarks(row: Row) -> list[str]:
    """Return the notes on measurements, including the reasons of failures."""
    failed = [f"{note.measurement}: {note.text}" for note in row.notes if note.kind == "error"]
    return [*notes_of([row]), *failed]
