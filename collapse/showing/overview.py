"""What stands out, in sentences computed from the rows."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from collapse.errors import counted, shortened
from collapse.measurement.cells import number
from collapse.measurement.comparing import corpora_of, mixed
from collapse.measurement.model_names import with_parts
from collapse.measurement.table import Table
from collapse.plugin.metrics import limits_of
from collapse.plugin.plugin_manager import plugins
from collapse.showing.association import Associations

if TYPE_CHECKING:
    import pandas as pd

LOSS = "val_loss"
_LONGEST = 60  # characters of a name
_FEW = 20  # models, below which one R² says little
_SURE = "an interval that excludes 0 and p ≤ 0.05 by Holm"


def findings(frame: "pd.DataFrame", tests: Associations) -> list[str]:
    """Return what stands out in a table, a sentence or two each.

    Args:
        frame: The rows.
        tests: What goes with validation loss.
    """
    said = [_how_many(frame), *_losses(frame)]
    tested = tests.over.get("correlation")
    if tested is not None:
        columns = [name for name in (LOSS, *(each["column"] for each in tested.records())) if name in frame]
        rows = frame[frame[columns].notna().all(axis=1)]  # of which the test is
        said += [*_by_size(tested, tests, rows), *_over_all(_of_collapse(tested), len(rows))]
    elif len(frame) < 3:
        there = "is 1" if len(frame) == 1 else f"are {len(frame)}"
        said.append(f"What goes with loss can be said of 3 models or more; there {there}.")
    if len(frame) == 1:
        said += _of_one(frame.iloc[0])
    elif len(frame) == 2:
        said += _of_two(frame)
    return said


def warnings(frame: "pd.DataFrame") -> list[str]:
    """Return what forbids to compare the rows, or makes them hard to tell apart."""
    said = [f"{remark[:1].upper()}{remark[1:]}." for remark in mixed(frame.to_dict("records"))]
    times = frame["model"].value_counts() if "model" in frame else {}
    twice = [f"{called(name)} ({many} rows)" for name, many in times.items() if many > 1]
    if twice:
        said.append(f"Rows share a model's name: {_listed(twice, 3)}.")
    if LOSS not in frame or frame[LOSS].isna().all():
        said.append("No row has a validation loss: nothing is said about generalization.")
    return said


def _how_many(frame: "pd.DataFrame") -> str:
    made = counted(len(frame), "row")
    if "model" in frame:
        models = frame["model"].nunique()
        made = counted(models, "model") + (f" in {made}" if models != len(frame) else "")
    measured = [name for name in frame if _is_collapse(str(name)) and frame[name].notna().any()]
    corpora = [called(each) for each in corpora_of(frame)]
    return f"{made}{f', on {_listed(corpora)}' if corpora else ''}, with {counted(len(measured), 'measurement')}."


def _losses(frame: "pd.DataFrame") -> Iterator[str]:
    if LOSS not in frame or frame[LOSS].isna().all():
        return
    rows = frame[frame[LOSS].notna()].sort_values(LOSS)
    best, worst = rows.iloc[0], rows.iloc[-1]
    if rows[LOSS].nunique() == 1:  # one row, or one store with several --min-count
        value = float(best[LOSS])
        perplexity = f", a perplexity of {_number(math.exp(value))}" if value < 700 else ""
        everywhere = f" in all {len(rows):,} rows with one" if len(rows) > 1 else ""
        yield f"Validation loss is {_number(value)} nats a token{everywhere}{perplexity}."
        return
    yield (
        f"Validation loss is lowest, {_number(best[LOSS])} nats, in {_name(best)}, and highest, "
        f"{_number(worst[LOSS])}, in {_name(worst)}; the median is {_number(rows[LOSS].median())}."
    )


def _over_all(records: Sequence[Mapping[str, Any]], rows: int) -> Iterator[str]:
    """Say what goes most with loss over all rows, and which correlations have another sign than is predicted."""
    if all(each["p"] is None for each in records):  # between a few sizes, whatever differs has a large R²
        return
    first, *others = sorted(records, key=lambda each: -each["R2"])
    said = f"Over all rows, {first['column']} has the largest R² with validation loss, {first['R2']:.3f}"
    said += f" (r = {_signed(first['r'])})"
    for each in others[:1]:
        said += f"; {each['column']} comes next, {each['R2']:.3f}; whether two R² differ is not tested"
    yield f"{said}."
    if rows < _FEW:
        yield f"With {counted(rows, 'row')}, such an R² can come by chance: see the p-values below."
    signed = [each for each in records if each["predicted"] and _is_sure(each)]
    against = [
        f"{each['column']} (r = {_signed(each['r'])}, predicted {each['predicted']})"
        for each in signed
        if not each["agrees"]
    ]
    if against:
        yield f"Against the sign that collapse predicts, over all rows and with {_SURE}: {_listed(against)}."
    elif signed:
        rest = "has the sign that collapse predicts, where it predicts one"
        yield f"Every correlation over all rows with {_SURE} {rest}."


def _by_size(tested: Table, tests: Associations, frame: "pd.DataFrame") -> Iterator[str]:
    """Say how many sizes there are, and which correlations hold or reverse within them (Simpson's paradox)."""
    if tests.size is None:
        return
    sizes = with_parts(frame)[tests.size].value_counts()
    rows = f"{sizes.max():,} rows each"
    if sizes.nunique() > 1:
        rows = f"{sizes.min():,} to {rows} (median {sizes.median():g})"
    none = all(each["p"] is None for each in tested.records())
    yield (
        f"The rows have {counted(len(sizes), 'value')} of {tests.size}, with {rows}."
        f"{' So few groups support no p-value over all rows.' if none else ''}"
        " Size may drive every correlation over all rows."
    )
    within = tests.within.get("correlation")
    if within is None:
        return
    records = _of_collapse(within)
    among, of, inside, logged = f"Among models of equal {tests.size}", "validation loss", records, {}
    if tests.trained is not None:
        among = f"Without the main effects of {tests.size} and {tests.trained} (size can act by their interaction)"
        of = f"{of}, and with its logarithm too,"
        again = tests.within.get("correlation-log", within)
        logged = {each["column"]: each["r"] for each in again.records() if _is_sure(each)}
        inside = [each for each in records if each["r"] * logged.get(each["column"], 0) > 0]
    sure = {each["column"]: each for each in inside if _is_sure(each)}
    said = f"{among}, {len(sure)} of {counted(len(records), 'correlation')} with {of} have {_SURE}"
    if sure:
        first = max(sure.values(), key=lambda each: each["R2"])
        both = f" and {logged[first['column']] ** 2:.3f}" if logged else ""
        said += f"; {first['column']} has the largest R² of them, {first['R2']:.3f}{both}"
    said += "."
    if permuted := tests.within.get("permutation"):
        low = [each["column"] for each in _of_collapse(permuted) if each["max_t_p"] <= 0.05]
        said += f" The permutation test gives p ≤ 0.05, corrected by max-T, for {_listed(low) or 'none of them'}."
    yield said + (f" With {counted(len(frame), 'row')}, a test can miss a correlation." if len(frame) < _FEW else "")
    turned = [
        f"{each['column']} ({_signed(each['r'])}, then {_signed(other['r'])})"
        for each in _of_collapse(tested)
        if _is_sure(each) and (other := sure.get(each["column"])) and each["r"] * other["r"] < 0
    ]
    if turned:
        yield f"The correlation reverses there, both times with {_SURE}: {_listed(turned)}."


def _is_sure(record: Mapping[str, Any]) -> bool:
    """Whether the interval of r excludes 0, and p is at most 0.05 after Holm's correction for all columns."""
    low, high, p = (record[name] for name in ("r_low", "r_high", "holm"))
    return low is not None and p is not None and low * high > 0 and p <= 0.05


def _of_collapse(tested: Table) -> list[dict[str, Any]]:
    return [each for each in tested.records() if _is_collapse(each["column"])]


def _is_collapse(column: str) -> bool:
    """Whether a column is a measurement of collapse, or its logarithm: accuracy goes with loss by definition."""
    name, known = column.removeprefix("log(").removesuffix(")"), plugins().measurements()
    return name in known and known[name][0].property_of(name).lower() != "generalization"


def _of_one(row: "pd.Series") -> Iterator[str]:
    """Say how far the headline measurements of one model are from full collapse."""
    noise = False
    for name, value, towards, reachable in _headlines(row):
        ends = [f"{_number(towards)} at full collapse"] if towards is not None else []
        if reachable is not None and reachable != towards:
            by = plugins().measurements()[name][1].reached_by or "the best of all means"
            ends.append(f"{_number(reachable)} for {by} of {row['classes']:,} classes in {row['dim']:,} dimensions")
            noise = True
        if ends:
            yield f"{name} is {_number(value)}; it would be {' and '.join(ends)}."
    if noise:
        yield (
            "The value of random points is no sign of collapse, and no bound. Compare with a null, the same "
            "measurement of the untrained model (collapse measure --null)."
        )


def _of_two(frame: "pd.DataFrame") -> Iterator[str]:
    """Say in which of two models the headline measurements are nearer to full collapse."""
    if LOSS not in frame or frame[LOSS].isna().any() or frame[LOSS].nunique() < 2:
        return
    better, worse = (frame.sort_values(LOSS).iloc[at] for at in (0, 1))
    others = {name: abs(value - end) for name, value, end, _ in _headlines(worse) if end is not None}
    nearer: dict[bool, list[str]] = {True: [], False: []}
    for name, value, end, _ in _headlines(better):
        if end is not None and name in others:
            nearer[abs(value - end) < others[name]].append(name)
    parts = [f"nearer to full collapse in {_listed(nearer[True])}"] if nearer[True] else []
    parts += [f"farther from it in {_listed(nearer[False])}"] if nearer[False] else []
    if parts:
        yield f"{_name(better)}, which has the lower loss, is {' and '.join(parts)}."


def _headlines(row: "pd.Series") -> Iterator[tuple[str, float, float | None, float | None]]:
    """Yield the headline measurements of a row that have a value, with both of their limits."""
    import pandas as pd

    shaped = all(name in row and pd.notna(row[name]) for name in ("classes", "dim"))
    for name in plugins().headlines():
        if name not in row or pd.isna(row[name]) or not math.isfinite(row[name]):
            continue
        limits: Mapping[str, float | None] = {"towards": None, "reachable": None}
        if shaped:
            limits, _ = limits_of(*plugins().measurements()[name], int(row["classes"]), int(row["dim"]))
        yield name, float(row[name]), limits["towards"], limits["reachable"]


def called(name: object) -> str:
    """Return a name as sentences and headings have it: of one line at most; tables have the whole name."""
    return shortened(str(name), _LONGEST)


def _name(row: "pd.Series") -> str:
    return called(row["model"]) if "model" in row else f"row {row.name + 1}"


def _number(value: float) -> str:
    return number(float(value)).replace("-", "−")


def _signed(r: float) -> str:
    return f"{r:+.3f}".replace("-", "−")


def _listed(names: Sequence[str], most: int = 6) -> str:
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else ""
