"""Make tables of rows: a line per measurement with a value per model, or a line per checkpoint or layer.

The tables also show the values at full collapse and the reachable values. They have a title per model, and notes.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence, Sized
from dataclasses import replace
from typing import Any

from collapse.core.steps import run_and_step
from collapse.errors import counted, some
from collapse.measurement.cells import number
from collapse.measurement.comparable import distinct, is_crossed, limit_of, mixed
from collapse.measurement.results import Results
from collapse.measurement.rows import Row
from collapse.measurement.table import Table
from collapse.plugin.metrics import limits_of
from collapse.plugin.plugin_manager import plugins
from collapse.stores.layer_names import TOP

ERROR = "± standard error"
"""Heading of a line with standard errors, which is below the line of the measurement."""
_KEYS = ("step", "tokens", "layer", "group")
"""Columns that distinguish the rows of one model."""
_MOST_NOTES = 8
"""Maximum number of notes on single checkpoints in a table, because each checkpoint may have its own."""


def whole_table_of(
    rows: Sequence[Row], shown: Collection[str] | None = None, *, more: str = "--all, or --metrics NAMES"
) -> Table:
    """Return a table of the measurements of rows, with a title per model, and all notes except those on errors.

    Args:
        rows: A row per model; all rows have the same measurements. If a row has null baselines, the last columns are
            the values of these baselines.
        shown: The measurements to show; None for all. CSV and JSON always have all.
        more: Text for a note: how to see the other measurements.
    """
    limits = _limits_of(rows, shown)
    ranges = any(isinstance(each, str) and each for ends in limits.values() for each in ends)
    notes = [*_on_hidden(rows, limits, more), *notes_of(rows, shown)]
    notes += ["at full collapse, reachable: a range means that the values of the columns differ"] if ranges else []
    notes += [*_on_limits(rows, limits), *remarks_of(rows)]
    return Table("\n".join(titles_of(rows)), *_columns_and_lines(rows, limits), notes, keys=2, source=Results(rows))


def table_by_step(rows: Sequence[Row], shown: Collection[str] | None = None) -> Table:
    """Return a table with a row per checkpoint or layer, and a column per measurement.

    The table has notes, but none on failed metrics.

    Args:
        rows: A row per checkpoint and layer, in order.
        shown: The measurements to show; None for all. CSV and JSON always have all; JSON also has all notes.
    """
    limits = _limits_of(rows, shown)
    keys = [key for key in _KEYS if any(getattr(row, key) not in (None, TOP) for row in rows)]
    heads = [[getattr(row, key) for key in keys] for row in rows]
    models = [row.model if row.step is None else run_and_step(row.model)[0] for row in rows]
    if not keys or len(set(zip(models, (row.min_count for row in rows), strict=True))) > 1:
        models = distinct([replace(row, layer=TOP, group=None) for row in rows])
        heads = [[model, *head] for model, head in zip(models, heads, strict=True)]
        keys = ["model", *keys]
    lines = [[*head, *(row.measurements.get(name) for name in limits)] for head, row in zip(heads, rows, strict=True)]
    for at, end in enumerate(("at full collapse", "reachable")):
        if any(ends[at] != "" for ends in limits.values()):
            lines.append([end, *[""] * (len(keys) - 1), *(ends[at] for ends in limits.values())])
    named = dict[str, list[str]]()
    for row, name in zip(rows, distinct(rows), strict=True):
        named.setdefault(_about(row, store=False), []).append(name)
    titles = [f"{some([*dict.fromkeys(models)] if len(named) == 1 else of)}{about}" for about, of in named.items()]
    notes = notes_of(rows, shown)
    more = [f"{counted(len(notes) - _MOST_NOTES, 'more note')}: --format json"] if len(notes) > _MOST_NOTES else []
    notes = [*_on_hidden(rows, limits), *notes[:_MOST_NOTES], *more, *_on_limits(rows, limits), *remarks_of(rows)]
    return Table("\n".join(titles), [*keys, *limits], lines, notes, keys=len(keys), source=Results(rows))


def _limits_of(rows: Sequence[Row], shown: Collection[str] | None) -> dict[str, list[float | str]]:
    """Return the measurements to show, each with its value at full collapse and its reachable value."""
    names = by_property(name for name in rows[0].measurements if shown is None or name in shown)
    return {name: [_ends(each) for each in _limits(rows, name)] for name in names}


def _on_hidden(rows: Sequence[Row], shown: Sized, how: str = "--all, or --metrics NAMES") -> list[str]:
    hidden = len(rows[0].measurements) - len(shown)
    return [f"{counted(hidden, 'more measurement')}: {how}"] if hidden else []


def _columns_and_lines(
    rows: Sequence[Row], limits: Mapping[str, Sequence[float | str]]
) -> tuple[list[str], list[list[Any]]]:
    known = plugins().measurements()
    models, kinds = _headings(rows), list(dict.fromkeys(kind for row in rows for kind in row.nulls))
    nulls = [(row, kind) for row in rows for kind in kinds]
    lines, before = [], None
    for name, ends in limits.items():
        property_name = known[name][0].property_of(name)
        cells: list[Any] = ["" if property_name == before else property_name, name]
        cells += [*(row.measurements.get(name) for row in rows), *ends]
        cells += [row.nulls.get(kind, {}).get(name, "") for row, kind in nulls]
        lines.append(cells)
        # the error has its own line, because another column would make the table wider than a terminal
        if any(name in row.standard_errors for row in rows):
            errors = ["", ERROR, *(row.standard_errors.get(name) for row in rows)]
            lines.append([*errors, *[""] * (len(cells) - len(errors))])
        before = property_name
    columns = ["property", "measurement", *models, "at full collapse", "reachable"]
    columns += [kind if len(rows) == 1 else f"{model}, {kind}" for model in models for kind in kinds]
    used = [at for at in range(len(columns)) if at < 2 or any(cells[at] != "" for cells in lines)]
    return [columns[at] for at in used], [[cells[at] for at in used] for cells in lines]


def by_property(names: Iterable[str]) -> list[str]:
    """Sort measurements by property, as tables show them.

    Within a property, the headline measurements come first; the others are sorted by name.
    """
    known = plugins().measurements()
    places = {name: place for place, name in enumerate(plugins().headlines())}
    ranks = {name: _rank(known[name][0].property_of(name)) for name in names}
    return sorted(ranks, key=lambda name: (ranks[name], places.get(name, len(places)), name))


def titles_of(rows: Sequence[Row]) -> list[str]:
    """Return a title for each row: the model's name, and what it was measured on."""
    return [f"{model or 'statistics'}{_about(row)}" for row, model in zip(rows, distinct(rows), strict=True)]


def notes_of(rows: Sequence[Row], shown: Collection[str] | None = None) -> list[str]:
    """Return the notes on the shown measurements, except errors, one line each."""
    return by_line([_notes(row, shown) for row in rows], distinct(rows))


def notes_on_reachable(names: Iterable[str]) -> list[str]:
    """Return a line for each kind of reachable value that is not a bound.

    The line names the measurements, and the points that have this value, such as "uniform random points".
    """
    known = plugins().measurements()
    kinds: dict[str, list[str]] = {}
    for name in names:
        if name in known and known[name][1].reached_by:
            kinds.setdefault(known[name][1].reached_by, []).append(name)
    return [f"reachable, {', '.join(of)}: the value of {what}, not a bound" for what, of in kinds.items()]


def _on_limits(rows: Sequence[Row], limits: Mapping[str, Sequence[float | str]]) -> list[str]:
    """Return the notes on reachable values, if a row has more than d + 1 classes.

    For at most d + 1 classes, a reachable value is that of a simplex, which is an exact bound.
    """
    noise = any(row.classes > row.dim + 1 for row in rows)
    return notes_on_reachable(name for name, ends in limits.items() if ends[1] != "") if noise else []


def remarks_of(rows: Sequence[Row]) -> list[str]:
    """Return a remark for each text or setting in which rows differ, so that the rows cannot be compared.

    Layers and groups may differ. Different values of ``--min-count`` are allowed if every store was measured with the
    same set of values.
    """
    return mixed(rows, apart=("layer", "group", "min_count") if is_crossed(rows) else ("layer", "group"))


def by_line(lines: Sequence[Sequence[str]], names: Sequence[str]) -> list[str]:
    """Return the distinct lines of several models; a line of only some models begins with their names."""
    models: dict[str, list[str]] = {}
    for said, name in zip(lines, names, strict=True):
        for line in said:
            models.setdefault(line, []).append(name)
    return [line if len(of) == len(names) else f"{some(of)}: {line}" for line, of in models.items()]


def _headings(rows: Sequence[Row]) -> list[str]:
    """Return the headings of the columns of values: ``value`` for one row, otherwise a heading per row."""
    if len(rows) == 1:
        return ["value"]
    if is_crossed(rows) and len({row.store for row in rows}) == 1:
        return [limit_of(row) for row in rows]
    return distinct(rows)


def _about(row: Row, *, store: bool = True) -> str:
    said = [f" on {row.corpus}" if row.corpus else "", f": C = {row.classes:,} classes, d = {row.dim:,}"]
    said.append(f", N = {counted(row.samples, 'sample')}")
    said.append(f", classes of at least {row.min_count:,} samples" if row.min_count > 1 else "")
    said.append(f", classes of store {row.class_set[:12]}" if row.class_set else "")
    said.append(f"; out of distribution: {row.ood}" if row.ood else "")
    said.append(f"; T = {row.chunk_length:,}" if row.chunk_length else "")
    said.append(f", at most {counted(row.max_chunks, 'chunk')}" if row.max_chunks else "")
    of_validation = row.max_validation_chunks
    said.append(f", validated on at most {counted(of_validation, 'chunk')}" if of_validation else "")
    said.append(f"; {row.dtype}" if row.dtype not in (None, "float32") else "")
    said.append(f"; store {row.store[:12]}" if row.store and store else "")
    said.append(f" from {row.origin}" if row.origin and store else "")
    return "".join(said)


def _notes(row: Row, shown: Collection[str] | None) -> list[str]:
    """Return the notes on a row's measurements, reasons for missing numbers first; equal notes are joined."""
    by_text = remarks_by_text(row, shown)
    return [text if "*" in names else f"{some(names)}: {text}" for text, names in by_text.items()]  # * is the row


def remarks_by_text(row: Row, shown: Collection[str] | None, *, errors: bool = False) -> dict[str, list[str]]:
    """Return the text of each note, with the measurements that the note is about (``*`` for the whole row).

    Reasons for missing numbers come first. Notes on errors are included only if ``errors`` is true. ``shown`` are the
    measurements whose notes are wanted; None for all.
    """
    known, grouped = plugins().measurements(), dict[str, list[str]]()
    given = {name for name, value in row.measurements.items() if value is not None} | {"*"}
    for note in sorted(row.notes, key=lambda each: each.measurement in given):
        if (errors or note.kind != "error") and (shown is None or note.measurement in ("*", *shown)):
            grouped.setdefault(note.text, []).append(note.measurement)
    for name, left_out in row.excluded.items():
        if shown is None or name in shown:
            of_pairs = name in known and known[name][0].kind == "pair"
            what = f"{counted(left_out, 'pair')} of classes" if of_pairs else counted(left_out, "class")
            grouped.setdefault(f"{what} excluded (value not finite, or 0 in a logarithm)", []).append(name)
    return grouped


def _limits(rows: Sequence[Row], name: str) -> tuple[list[float | None], list[float | None]]:
    """Return two lists: the value at full collapse of each row, and the reachable value of each row.

    The second list is empty if both lists are equal.
    """
    metric, measure = plugins().measurements()[name]
    # errors in limits are reported in the row's notes
    limits = [limits_of(metric, measure, row.classes, row.dim, row.measurements)[0] for row in rows]
    towards = [each["towards"] for each in limits]
    reachable = [each["towards"] if each["reachable"] is None else each["reachable"] for each in limits]
    return towards, [] if reachable == towards else reachable


def _ends(limits: Sequence[float | None]) -> float | str:
    """Return the common limit of the models; if limits differ, their range as text; "" if there is no limit."""
    found = [limit for limit in limits if limit is not None]
    if not found:
        return ""
    least, largest = number(min(found)), number(max(found))
    return found[0] if least == largest else f"{least} to {largest}"


def _rank(property_name: str) -> tuple[float, int, str]:
    """Return a property's sort key: the number in its name, then the length of its name (NC1, NC2, GNC2, NC3).

    Properties without a number come last.
    """
    found = re.search(r"\d+", property_name)
    return (float(found[0]) if found else math.inf, len(property_name), property_name)
