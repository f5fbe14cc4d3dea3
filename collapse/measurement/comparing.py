"""Two stores of one text side by side: each measurement, the difference, and its standard error."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from collapse.core.precision import exact_arithmetic
from collapse.core.progress import Report, shows_progress
from collapse.errors import CollapseError, counted
from collapse.measurement.comparable import ONE_TEXT, differing, distinct, mixed
from collapse.measurement.measuring import Classes, measured
from collapse.measurement.part_errors import Error, errors_of_parts, exceeded
from collapse.measurement.results import Results, Row
from collapse.measurement.row_tables import by_property, notes_of, titles_of
from collapse.measurement.seeds import spread_of_seeds
from collapse.measurement.table import Table
from collapse.numerics.standard_errors import standard_error
from collapse.plugin.guarding import outside_inference_mode
from collapse.plugin.plugin_manager import plugins
from collapse.stores.described import about
from collapse.stores.store import Store

_COLUMNS = ("measurement", "A", "B", "difference", "standard_error", "t", "seeds_sd")
_HEADINGS = {"difference": "B−A", "standard_error": "± error", "seeds_sd": "seeds' sd"}
"""Headings for people, short enough for a line of 80 characters; JSON and CSV have the columns' names."""


@shows_progress
@outside_inference_mode
@exact_arithmetic()
def compare(
    a: Store | str | Path,
    b: Store | str | Path,
    *,
    metrics: str | Iterable[str] | None = None,
    min_count: int = 1,
    classes_of: Classes | None = None,
    parts: Sequence[Sequence[Any]] | None = None,
    seeds: "Results | str | Path | None" = None,
    anyway: bool = False,
    device: str | None = None,
    progress: Report | None = None,
) -> Table:
    """Compare two stores of one text: each measurement of A and of B, B − A, and its standard error.

    Measurements of the validation text have a standard error over its blocks (runs of whole texts with at least a
    chunk's tokens). Blocks are paired: a block's effect on both models cancels. Measurements of the training text have
    a standard error if both collections were also made in ``parts``: the jackknife of B − A over the K parts.

    Args:
        a, b: Stores or their folders.
        metrics: Measurement names or prefixes, as in :func:`collapse.measure`; None means all.
        min_count: Keep the classes with at least this many samples, also in each part.
        classes_of: Keep only the classes that A, B and this store, or each of several stores, have.
        parts: All parts (``--part 1/K`` to ``K/K``) of the training text of A, and all of B.
        seeds: Results table with models that differ only in their seed, its file, or its name, such as "paper" for
            the 21 published models of 2 layers and width 768; None for no column.
        anyway: Compare stores of different texts too; their blocks are not paired.
        device: As in :func:`collapse.measure`.
        progress: Called as progress(what, done, total).

    Returns:
        A row per measurement: its name, A, B, difference (B − A), standard_error, t (difference ÷ standard error), and
        seeds_sd, the standard deviation over ``seeds``. What is not available is None; the notes say why.

    Raises:
        UsageError: A name is unknown, or the parts are not parts of A and B.
        CollapseError: The stores are of different texts, or one is incomplete or was altered.
    """
    stores = [each if isinstance(each, Store) else Store.load(each) for each in (a, b)]
    different = differing(map(about, stores), ONE_TEXT)
    said = [f"{ONE_TEXT[name]}: {' and '.join(values)}" for name, values in different.items()]
    if different and not anyway:
        they = f"{stores[0]} and {stores[1]} differ in {'; '.join(said)}"
        raise CollapseError(f"{they}: compare stores of one text, or add --anyway (anyway=True)")
    how: dict[str, Any] = {"metrics": metrics, "min_count": min_count, "classes_of": _common(classes_of, stores)}
    how |= {"device": device, "progress": progress}
    made = [measured(each, **how) for each in stores]
    errors = _errors_of_blocks(stores, [found.influences for _, found in made], one_text=not different)
    if parts is not None:
        errors |= errors_of_parts(stores, parts, one_text=not different, **how)
    spread, notes = (None, []) if seeds is None else spread_of_seeds(seeds, min_count)
    rows = [row for row, _ in made]
    lines = _lines(rows, errors, spread)
    if "tokenizer" in different:
        said.append("tokens: do not compare losses and perplexities, which are per token")
    before = [f"A and B differ in {each}" for each in said]
    return _table(rows, lines, [*before, *_said_of_errors(lines, errors, parts is not None), *notes])


def _common(classes_of: Classes | None, stores: Sequence[Store]) -> Classes:
    """Return the stores whose common classes are kept: the given stores, A and B; [] if none is given."""
    others = [classes_of] if isinstance(classes_of, Store | str | Path) else list(classes_of or ())
    return [*others, *stores] if others else []


def _lines(rows: Sequence[Row], errors: Mapping[str, Error], spread: Mapping[str, float] | None) -> list[list[Any]]:
    """Return a line for each measurement: A, B, the difference, its standard error and t, and the seeds' deviation."""
    lines = []
    for name in by_property(rows[0].measurements):
        a, b = (row.measurements[name] for row in rows)
        difference = None if a is None or b is None or not math.isfinite(b - a) else b - a
        error, _ = errors.get(name, (None, ""))
        line = [name, a, b, difference, error, difference / error if difference is not None and error else None]
        lines.append(line if spread is None else [*line, spread.get(name)])
    return lines


def _table(rows: Sequence[Row], lines: list[list[Any]], notes: list[str]) -> Table:
    first, second = distinct(rows)
    shown = [line[0] for line in lines]
    about_each = [f"{side} = {''.join(title)}" for side, title in zip("AB", titles_of(rows), strict=True)]
    same = ["A and B are the same store"] if rows[0].store == rows[1].store else []
    remarks = [*about_each, *same, *notes, *notes_of(rows, shown), *mixed(rows, apart=ONE_TEXT)]
    columns = _COLUMNS[: len(lines[0])]
    for_people = Table("", [_HEADINGS.get(name, name) for name in columns], lines)
    return Table(f"{first} (A) and {second} (B); difference = B − A", columns, lines, remarks, for_people)


def _errors_of_blocks(
    stores: Sequence[Store], influences: Sequence[Mapping[str, Tensor]], *, one_text: bool
) -> dict[str, Error]:
    """Return the standard errors of differences of validation measurements; blocks of equal samples are paired."""
    errors: dict[str, Error] = {}
    names = influences[0].keys() & influences[1].keys()
    blocks = [store.tensors("validation")["block_totals"][:, [0, 4]] for store in stores if names]
    paired = bool(names) and one_text and torch.equal(*blocks)
    for name in names:
        a, b = (each[name] for each in influences)
        error = standard_error(b - a) if paired else math.hypot(standard_error(a), standard_error(b))
        units = [_units(len(each), len(of)) for each, of in zip((a, b), blocks, strict=True)]
        over = units[0] if units[0] == units[1] else f"{units[0]} of A and {units[1]} of B"
        few = exceeded(min(len(a), len(b)) - 1)
        errors[name] = error, f"over {over}, {'paired' if paired else 'not paired'}{few}"
    return errors


def _units(units: int, blocks: int) -> str:
    return counted(units, "block") if units == blocks else f"{units:,} groups of blocks"


def _said_of_errors(lines: Sequence[Sequence[Any]], errors: Mapping[str, Error], of_parts: bool) -> list[str]:
    """Say how standard errors were computed or why there are none, one line per reason."""
    said: dict[tuple[str, str], list[str]] = {}
    for name, _, _, difference, error, *_ in lines:
        if error is not None:
            said.setdefault(("standard error", errors[name][1]), []).append(name)
        elif difference is not None and (why := _why_none(name, of_parts)):
            said.setdefault(("no standard error", why), []).append(name)
    notes = []
    for (what, text), names in sorted(said.items(), key=lambda each: each[0][0], reverse=True):
        notes.append(f"{what} of {', '.join(names) if len(names) <= 4 else counted(len(names), 'measurement')}: {text}")
    return notes


def _why_none(name: str, of_parts: bool) -> str:
    """Say why a measurement has no standard error; "" if it needs none."""
    metric, _ = plugins().measurements()[name]
    if set(metric.needs) == {"n_params"}:
        return ""
    if metric.standard_error:
        return "the validation text has only one block"
    if "validation" in metric.needs:
        return "stores do not keep its counts by block"
    return "not every part has this measurement" if of_parts else "a measurement of the training text needs --parts"
