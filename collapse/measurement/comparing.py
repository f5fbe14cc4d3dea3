"""Compare the measurements of two stores of one text: differences, standard errors, and what a difference means."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from collapse.core.progress import Report, shows_progress
from collapse.errors import CollapseError
from collapse.measurement.comparable import COMPARED, ONE_TEXT, differing
from collapse.measurement.meaning import NOISE, SEEDS, Errors, caveats_of, meaning_of, notes_on
from collapse.measurement.measuring import Classes, open_measurable, row_and_results
from collapse.measurement.part_errors import Error, errors_of_parts
from collapse.measurement.results import Results, Row
from collapse.measurement.row_tables import by_property, titles_of
from collapse.measurement.seeds import spread_of_seeds
from collapse.measurement.table import Table
from collapse.numerics.standard_errors import standard_error
from collapse.stores.merging import Parts
from collapse.stores.store import Store
from collapse.stores.store_columns import cut_columns, row_columns

_COLUMNS = ("measurement", "A", "B", "difference", "standard_error", "t", "seeds_sd", "meaning", "caveats")
_SHOWN = {"measurement": "measurement", "A": "A", "B": "B", "difference": "B−A", "meaning": "meaning"}
_SHOWN |= {"standard_error": "± error", "t": "t", "seeds_sd": "seeds' sd"}
"""Headings of the printed columns. The meaning follows the difference, so that 80 characters show both."""
_FIELDS = {**ONE_TEXT, "dtype": COMPARED["dtype"]}
_FIELDS["tokenizer"] += ", so their tokens cannot be compared"


@shows_progress
def compare(
    a: Store | str | Path,
    b: Store | str | Path,
    *,
    metrics: str | Iterable[str] | None = None,
    min_count: int = 1,
    classes_of: Classes | None = None,
    parts: Sequence[Parts] | None = None,
    seeds: "Results | str | Path | None" = None,
    anyway: bool = False,
    device: str | None = None,
    progress: Report | None = None,
) -> Table:
    """Compare two stores of one text: each measurement of A and of B, B − A, and its standard error.

    Measurements of the validation text have a standard error over blocks of this text. A block consists of adjacent
    whole texts that together have at least as many tokens as a chunk. If A and B have the same blocks, the blocks are
    paired, so the effect of a block on both models cancels. Measurements of the training text have a standard error if
    both stores were also collected in ``parts``. This error is the jackknife of B − A over the K parts.

    Args:
        a, b: Stores or their folders.
        metrics: Measurement names or prefixes, as in :func:`collapse.measure`; None means all.
        min_count: Keep the classes with at least this many samples. When the jackknife excludes a part, the samples of
            this part are not counted.
        classes_of: A store or several stores. Keep the classes that A, B and all these stores have.
        parts: Two items, the first for A and the second for B. Each item has all parts (``--part 1/K`` to ``K/K``) of
            the store: the folder that holds the parts, or a list of parts or of their folders.
        seeds: A results table, or its file or name, with models that differ from A and B only in their seed. "paper",
            for example, has 21 published models of 2 layers and width 768. With None, there is no column seeds_sd.
        anyway: Compare stores of different texts too; their blocks are not paired.
        device: As in :func:`collapse.measure`.
        progress: Called as progress(what, done, total[, note]).

    Returns:
        A row per measurement with the columns measurement, A, B, difference (B − A), standard_error, t (difference ÷
        standard error), seeds_sd (standard deviation over ``seeds``), meaning (whether B is better, worse, higher or
        lower than A, or why this is not known) and caveats. A missing value is None. If A or B is None, a caveat says
        why.

    Raises:
        UsageError: A name is unknown, or the parts are not parts of A and B.
        CollapseError: The stores are of different texts, one is incomplete or was altered, or ``seeds`` has fewer than
            two seeds of a model.
    """
    stores: list[Store] = [open_measurable(each, Store) for each in (a, b)]
    differ = differing([row_columns(each) | cut_columns(each) for each in stores], _FIELDS).items()
    different = {name: f"{_FIELDS[name]}: {' and '.join(values)}" for name, values in differ}
    of_text = [said for name, said in different.items() if name in ONE_TEXT]
    if of_text and not anyway:
        they = f"{stores[0]} and {stores[1]} differ in {'; '.join(of_text)}"
        raise CollapseError(f"{they}: compare stores of one text, or add --anyway (anyway=True)")
    how: dict[str, Any] = {"metrics": metrics, "min_count": min_count, "classes_of": _common(classes_of, stores)}
    how |= {"device": device, "progress": progress}
    made = [row_and_results(each, **how) for each in stores]
    rows = [row for row, _ in made]
    if rows[0].classes != rows[1].classes:
        different["classes"] = f"numbers of classes: {rows[0].classes:,} and {rows[1].classes:,}"
    yardsticks, notes = {NOISE: dict[str, Error]()}, list[str]()
    if seeds is not None:
        models = [{**vars(row), "n_params": found.s.n_params} for row, found in made]
        yardsticks[SEEDS], notes = spread_of_seeds(seeds, models, min_count)
    influences = [found.influences for _, found in made]
    yardsticks[NOISE] |= _errors_of_blocks(stores, influences, one_text=not of_text)
    if parts is not None:
        yardsticks[NOISE] |= errors_of_parts(stores, parts, one_text=not of_text, **how)
    return _table(rows, yardsticks, different, notes)


def _common(classes_of: Classes | None, stores: Sequence[Store]) -> Classes:
    """Return the stores for ``classes_of``: the given stores, and A and B. Return [] if no store is given."""
    others = [classes_of] if isinstance(classes_of, Store | str | Path) else list(classes_of or ())
    return [*others, *stores] if others else []


def _table(rows: Sequence[Row], yardsticks: Errors, different: Mapping[str, str], notes: Sequence[str]) -> Table:
    names = by_property(rows[0].measurements)
    caveats = caveats_of(rows, names, different)
    marks = list(dict.fromkeys(text for name in names for text in caveats[name]))
    columns = [name for name in _COLUMNS if name != "seeds_sd" or SEEDS in yardsticks]
    records, lines = [], []
    for name in names:
        a, b = (row.measurements[name] for row in rows)
        difference = None if a is None or b is None or not math.isfinite(b - a) else b - a
        error, sd = (yardsticks.get(word, {}).get(name, (None,))[0] for word in (NOISE, SEEDS))
        t = difference / error if difference is not None and error else None
        meaning = None if difference is None else meaning_of(name, rows, yardsticks, different)
        cells = (name, a, b, difference, error, t, sd, meaning, "; ".join(caveats[name]))
        record = dict(zip(_COLUMNS, cells, strict=True))
        marked = ",".join(str(at) for at, text in enumerate(marks, 1) if text in caveats[name])
        records.append(record)
        lines.append(record | {"meaning": f"{meaning or '–'} [{marked}]" if marked else meaning})
    title = "\n".join(f"{side} = {title}" for side, title in zip("AB", titles_of(rows), strict=True))
    same = ["A and B are the same store"] if rows[0].store == rows[1].store else []
    shown = [name for name in _SHOWN if any(each[name] is not None for each in lines)]
    for_people = Table("", [_SHOWN[name] for name in shown], [[each[name] for name in shown] for each in lines])
    remarks = [*same, *notes_on(records, marks, yardsticks), *notes]
    return Table(title, columns, [[each[name] for name in columns] for each in records], remarks, for_people)


def _errors_of_blocks(
    stores: Sequence[Store], influences: Sequence[Mapping[str, Tensor]], *, one_text: bool
) -> dict[str, Error]:
    """Return the standard errors of B − A for measurements of the validation text.

    For A and for B, ``influences`` has the influence of each validation block on each measurement. The blocks of A and
    B are paired if both stores have the same text (``one_text``) and equal blocks.
    """
    errors: dict[str, Error] = {}
    names = influences[0].keys() & influences[1].keys()
    blocks = [store.tensors("validation")["block_totals"][:, [0, 4]] for store in stores if names]
    paired = bool(names) and one_text and torch.equal(*blocks)
    for name in names:
        a, b = (each[name] for each in influences)
        error = standard_error(b - a) if paired else math.hypot(standard_error(a), standard_error(b))
        units = " and ".join(dict.fromkeys(f"{len(each):,}" for each in (a, b)))
        what = "blocks" if (len(a), len(b)) == tuple(map(len, blocks)) else "groups of blocks"
        how = f"± error of the validation text: {units} {what}, {'paired' if paired else 'not paired'}"
        errors[name] = error, min(len(a), len(b)) - 1, how
    return errors
