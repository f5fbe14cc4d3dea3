"""Two stores of one text side by side: each measurement, the difference, and its standard error."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from collapse.core.precision import exact_arithmetic
from collapse.core.progress import Report, shows_progress
from collapse.errors import CollapseError, UsageError, counted
from collapse.measurement.comparing import OWN_LIMIT, distinct, has_own_limit, limit_of_validation, mixed
from collapse.measurement.measuring import Classes, measured
from collapse.measurement.part_errors import Parts, exceeded, measured_parts
from collapse.measurement.results import Results, Row
from collapse.measurement.row_tables import by_property, headings_of, notes_of
from collapse.measurement.seeds import Spread, spread_of_seeds
from collapse.measurement.table import Table
from collapse.numerics.standard_errors import standard_error
from collapse.plugin.guarding import outside_inference_mode
from collapse.plugin.plugin_manager import plugins
from collapse.stores.described import about
from collapse.stores.store import Store

_ONE_TEXT = {  # fields of a row, what they are, and the field of the name if it is a hash
    "corpus_id": ("training text", "corpus"),
    "validation_id": ("validation text", "validation"),
    "tokenizer": ("tokenizer", None),
    "chunk_length": ("chunk length", None),
    "max_chunks": ("limit of --max-chunks", None),
    OWN_LIMIT: ("limit of --max-validation-chunks", None),
}
_PER_TOKEN = "their tokenizer"
_BEGIN_OF_HASH, _BEGIN = 12, 19  # characters shown of a hash, and of one after sha256:
_COLUMNS = ["measurement", "A", "B", "difference", "standard_error", "t"]
_SHOWN = {"difference": "B−A", "standard_error": "± error", "seeds_sd": "seeds' sd"}
"""Headings for people, short enough for a line of 80 characters; keys of JSON and CSV stay."""


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
    parts: Sequence[Any] | None = None,
    seeds: "Results | str | Path | None" = None,
    anyway: bool = False,
    device: str | None = None,
    progress: Report | None = None,
) -> Table:
    """Compare two stores of one text: each measurement of A and of B, B − A, and its standard error.

    Measurements of the validation text have a standard error over its blocks (runs of whole texts with at least a
    chunk's tokens), which are paired: what a block adds to both models cancels. Those of the training text have one if
    both collections were also made in ``parts``: the jackknife over d = B − A without each of the K parts in turn.

    Args:
        a, b: Stores or their folders.
        metrics: Measurement names or prefixes, as in :func:`collapse.measure`; None means all.
        min_count: Keep the classes with at least this many samples, also in each part.
        classes_of: Keep the classes that this store, or each of several, has, and A and B both have.
        parts: All parts (``--part 1/K`` to ``K/K``) of the training text of A, and those of B.
        seeds: Results table with models that differ in their seed only, its file, or its name, such as "paper" for
            the 21 published models of 2 layers and width 768; None for no column.
        anyway: Compare stores of different texts too; their blocks are not paired.
        device: As in :func:`collapse.measure`.
        progress: Called as progress(what, done, total).

    Returns:
        A row per measurement: its name, A, B, difference (B − A), standard_error, t (difference ÷ standard error), and
        seeds_sd, the standard deviation over ``seeds``. What is not available is None; the notes say why.

    Raises:
        UsageError: An unknown name, or parts that are not those of A and B.
        CollapseError: The stores are of different texts, or one is incomplete or was altered.
    """
    for each in (a, b):
        if not isinstance(each, Store | str | Path):
            raise UsageError(f"there is a {type(each).__name__} where a store or its folder is needed")
    if not isinstance(anyway, bool):
        raise UsageError(f"anyway is {anyway!r:.40}: give True or False")
    stores = [each if isinstance(each, Store) else Store.load(each) for each in (a, b)]
    different = _differences(about(stores[0]), about(stores[1]))
    if different and not anyway:
        raise CollapseError(
            f"{stores[0]} and {stores[1]} differ in {'; '.join(different)}: compare stores of one text, or add "
            "--anyway (anyway=True)"
        )
    spread = spread_of_seeds(seeds, min_count=min_count)
    others = [classes_of] if isinstance(classes_of, Store | str | Path) else list(classes_of or ())
    common = [*others, *stores] if others else []
    given: dict[str, Any] = {"metrics": metrics, "min_count": min_count, "classes_of": common}
    given |= {"device": device, "progress": progress}
    made_of = [measured(each, **given) for each in stores]
    rows, influences = [row for row, _ in made_of], [found.influences for _, found in made_of]
    blocks = [_samples_of_blocks(each) for each in stores]
    paired = not different and blocks[0] == blocks[1]  # of one text, with the same tokens
    found = None if parts is None else measured_parts(stores, parts, paired=not different, **given)
    errors = {**_of_blocks(influences, paired=paired), **(found.errors if found else {})}
    made: list[list[object]] = []
    for name in by_property(rows[0].measurements):
        values = [row.measurements[name] for row in rows]
        difference, error = _difference(*values), errors.get(name)
        times = difference / error if difference is not None and error else None
        made.append([name, *values, difference, error, times])
        if spread:
            made[-1].append(spread.deviations.get(name))
    counts = [len(each) for each in blocks]
    notes = [f"A and B differ in {each}" for each in different]
    if any(each.startswith(_PER_TOKEN) for each in different):
        notes.append("losses and perplexities are per token: of other tokens, they cannot be compared")
    notes += _said_of_losses(stores)
    notes += [*_said_of_errors(made, influences, counts, paired, found), *(spread.notes if spread else [])]
    return _table(stores, rows, made, notes, spread)


def _table(
    stores: Sequence[Store], rows: Sequence[Row], made: list[list[object]], notes: list[str], spread: Spread | None
) -> Table:
    first, second = distinct(rows)
    shown = [str(row[0]) for row in made]
    about_each = [f"{side} = {''.join(heading)}" for side, heading in zip("AB", headings_of(rows), strict=True)]
    same = ["A and B are the same store"] if stores[0].digest == stores[1].digest else []
    remarks = [*about_each, *same, *notes, *notes_of(rows, shown), *mixed(rows, apart=_ONE_TEXT)]
    columns = [*_COLUMNS, *(["seeds_sd"] if spread else [])]
    shown_as = Table("", [_SHOWN.get(name, name) for name in columns], made)
    return Table(f"{first} (A) and {second} (B); difference = B − A", columns, made, remarks, shown_as)


def _differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Say what shows that two stores are of different texts, or cut otherwise."""
    found = []
    for field, (what, name) in _ONE_TEXT.items():
        both, unknown = [a[field], b[field]], [a[field], b[field]]
        # a features file has no texts, a trained store perhaps no validation; no limit means whole texts
        if field == "max_chunks":
            unknown = [a["chunk_length"], b["chunk_length"]]
        if field == OWN_LIMIT:
            if not (has_own_limit(a) or has_own_limit(b)):
                continue
            both, unknown = [limit_of_validation(a), limit_of_validation(b)], [a["validation_id"], b["validation_id"]]
        if both[0] == both[1] or None in unknown:
            continue
        length = _BEGIN if name is None else _BEGIN_OF_HASH
        shown = ["none" if each is None else str(each)[:length] for each in both]
        if name:
            shown = [f"{each[name]} ({value})" for each, value in zip((a, b), shown, strict=True)]
        found.append(f"their {what}: {shown[0]} and {shown[1]}")
    return found


def _said_of_losses(stores: Sequence[Store]) -> list[str]:
    """Say that one loss was summed in float64 and the other was not; those of features files always are."""
    exact = [bool(each.identity.get("exact_loss")) or "features" in each.identity for each in stores]
    if exact[0] == exact[1] or any(each.state != "complete" for each in stores):
        return []
    of = "A" if exact[0] else "B"
    text = f"the loss of {of} is summed in float64 (--exact-loss), the other's in float32"
    return [f"{text}: what is below a millionth of it is rounding, whatever its t"]


def _samples_of_blocks(store: Store) -> list[list[float]]:
    """Return the samples and number of each validation block, none without a whole validation."""
    return store.tensors("validation")["block_totals"][:, [0, 4]].tolist() if store.state == "complete" else []


def _difference(a: float | int | None, b: float | int | None) -> float | int | None:
    made = None if a is None or b is None else b - a
    return made if made is not None and math.isfinite(made) else None


def _of_blocks(influences: Sequence[Mapping[str, Tensor]], *, paired: bool) -> dict[str, float]:
    """Return the standard errors of the differences of validation measurements."""
    errors = {}
    for name in influences[0].keys() & influences[1].keys():
        a, b = (each[name] for each in influences)
        apart = math.hypot(standard_error(a), standard_error(b))
        errors[name] = standard_error(b - a) if paired and a.shape == b.shape else apart
    return errors


def _said_of_errors(
    made: Sequence[Sequence[object]],
    influences: Sequence[Mapping[str, Tensor]],
    blocks: Sequence[int],
    paired: bool,
    parts: Parts | None,
) -> list[str]:
    """Say where standard errors come from, and of which measurements there is none."""
    known = plugins().measurements()
    without: dict[str, list[str]] = {}
    over: dict[tuple[str, int], list[str]] = {}
    for name, _, _, difference, error, *_ in made:
        metric, _ = known[str(name)]
        if str(name) in influences[0] and error is not None:
            units = [len(each[str(name)]) for each in influences]
            called = [_units(each, of) for each, of in zip(units, blocks, strict=True)]
            said = called[0] if called[0] == called[1] else f"{called[0]} of A and {called[1]} of B"
            over.setdefault((said, min(units)), []).append(str(name))
        if difference is None or error is not None or set(metric.needs) == {"n_params"}:
            continue
        if metric.standard_error:
            reason = "the validation text is one block"
        elif "validation" in metric.needs:
            reason = "stores do not keep its counts by block"
        else:
            reason = "not every part has it" if parts else "of the training text, it needs parts (--parts)"
        without.setdefault(reason, []).append(str(name))
    notes = []
    for (said, fewest), names in over.items():
        often = exceeded(fewest - 1)
        notes.append(f"standard error of {', '.join(names)}: over {said}, {'' if paired else 'not '}paired{often}")
    if parts:
        notes.append(parts.note)
    for reason, names in without.items():
        shown = ", ".join(names) if len(names) <= 4 else counted(len(names), "measurement")
        notes.append(f"no standard error for {shown}: {reason}")
    return notes


def _units(units: int, blocks: int) -> str:
    return counted(units, "block") if units == blocks else f"{units:,} groups of blocks"
