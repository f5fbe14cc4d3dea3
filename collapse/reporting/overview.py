"""What stands out, in sentences computed from the rows."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from collapse.errors import counted, shortened
from collapse.measurement.cells import number
from collapse.measurement.comparing import corpora_of, mixed
from collapse.measurement.model_names import with_parts
from collapse.measurement.table import Table
from collapse.plugin.metrics import limits_of
from collapse.plugin.plugin_manager import plugins
from collapse.reporting.tables import Associations

if TYPE_CHECKING:
    import pandas as pd

LOSS = "val_loss"
_LONGEST = 60  # characters of a name
_FEW = 20  # models, below which one R² says little
_GENERALIZATION = "generalization"
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
        said += _by_size(tested, tests, _tested_rows(tested, frame))
        said += _associations(tested, len(_tested_rows(tested, frame)))
    elif len(frame) < 3:
        said.append(f"What goes with loss can be said of 3 models or more; there {_are(len(frame))}.")
    if len(frame) == 1:
        said += _of_one(frame)
    elif len(frame) == 2:
        said += _of_two(frame)
    return said


def warnings(frame: "pd.DataFrame") -> list[str]:
    """Return what forbids to compare the rows, or makes them hard to tell apart."""
    said = [_sentence(remark) for remark in mixed(frame.to_dict("records"))]
    if "model" in frame:
        twice = frame["model"].value_counts()
        twice = twice[twice > 1]
        if len(twice):
            shown = ", ".join(f"{called(name)} ({times} rows)" for name, times in twice.head(3).items())
            more = f", and {len(twice) - 3} more" if len(twice) > 3 else ""
            said.append(f"Rows share a model's name: {shown}{more}.")
    if LOSS not in frame or frame[LOSS].notna().sum() == 0:
        said.append("No row has a validation loss: nothing is said about generalization.")
    return said


def _how_many(frame: "pd.DataFrame") -> str:
    made = counted(len(frame), "row")
    if "model" in frame:
        models = frame["model"].nunique()
        made = counted(models, "model") + (f" in {made}" if models != len(frame) else "")
    measured = [str(name) for name in frame if _is_collapse(str(name)) and frame[name].notna().any()]
    corpora = corpora_of(frame)
    on = f", on {_listed([called(each) for each in corpora])}" if corpora else ""
    return f"{made}{on}, with {counted(len(measured), 'measurement')}."


def _losses(frame: "pd.DataFrame") -> list[str]:
    if LOSS not in frame or frame[LOSS].notna().sum() == 0:
        return []
    rows = frame[frame[LOSS].notna()].sort_values(LOSS)
    best, worst = rows.iloc[0], rows.iloc[-1]
    if rows[LOSS].nunique() == 1:  # one row, or one store with several --min-count
        value = float(best[LOSS])
        perplexity = f", a perplexity of {_number(math.exp(value))}" if value < 700 else ""
        everywhere = f" in all {len(rows):,} rows with one" if len(rows) > 1 else ""
        return [f"Validation loss is {_number(value)} nats a token{everywhere}{perplexity}."]
    return [
        f"Validation loss is lowest, {_number(float(best[LOSS]))} nats, in {_name(best)}, and highest, "
        f"{_number(float(worst[LOSS]))}, in {_name(worst)}; the median is {_number(float(rows[LOSS].median()))}."
    ]


def _tested_rows(tested: Table, frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return the rows that a test is of: those with the loss and a value in every column tested."""
    columns = [name for name in (LOSS, *(each["column"] for each in tested.records())) if name in frame]
    return frame[frame[columns].notna().all(axis=1)]


def _associations(tested: Table, rows: int) -> list[str]:
    records = _of_collapse(tested)
    if all(each["p"] is None for each in records):  # between a few sizes, whatever differs has a large R²
        return []
    ranked = sorted(records, key=lambda each: -each["R2"])
    first = ranked[0]
    said = f"Over all rows, {first['column']} has the largest R² with validation loss, {first['R2']:.3f}"
    next_ = f"; {ranked[1]['column']} comes next, {ranked[1]['R2']:.3f}" if len(ranked) > 1 else ""
    next_ += "; whether two R² differ is not tested" if next_ else ""
    found = [f"{said} (r = {_signed(first['r'])}){next_}."]
    if rows < _FEW:
        found.append(f"With {counted(rows, 'row')}, such an R² can come by chance: see the p-values below.")
    signed = [each for each in records if each["predicted"] and _is_sure(each)]
    against = [each for each in signed if not each["agrees"]]
    if against:
        listed = _listed(
            [f"{each['column']} (r = {_signed(each['r'])}, predicted {each['predicted']})" for each in against]
        )
        found.append(f"Against the sign that collapse predicts, over all rows and with {_SURE}: {listed}.")
    elif signed:
        found.append(
            f"Every correlation over all rows with {_SURE} has the sign that collapse predicts, where it predicts one."
        )
    return found


def _by_size(tested: Table, tests: Associations, frame: "pd.DataFrame") -> list[str]:
    """Say how many sizes there are, and which correlations hold or reverse within them (Simpson's paradox)."""
    if tests.size is None:
        return []
    sizes = with_parts(frame)[tests.size].value_counts()
    rows = f"{sizes.max():,} rows each"
    if sizes.nunique() > 1:
        rows = f"{sizes.min():,} to {rows} (median {sizes.median():g})"
    said = [f"The rows have {counted(len(sizes), 'value')} of {tests.size}, with {rows}."]
    if all(each["p"] is None for each in tested.records()):
        said[0] += " So few groups support no p-value over all rows."
    said[0] += " Size may drive every correlation over all rows."
    within = tests.within.get("correlation")
    if within is None:
        return said
    among, of, again = f"Among models of equal {tests.size}", "validation loss", None
    inside = {each["column"]: each for each in _of_collapse(within)}
    if tests.trained is not None:
        among = f"Without the main effects of {tests.size} and {tests.trained} (size can act by their interaction)"
        of = f"{of}, and with its logarithm too,"
        logged = tests.within.get("correlation-log", within)
        again = {each["column"]: each["r"] for each in logged.records() if _is_sure(each)}
        inside = {name: each for name, each in inside.items() if each["r"] * again.get(name, 0) > 0}
    sure = [each for each in inside.values() if _is_sure(each)]
    many = counted(len(_of_collapse(within)), "correlation")
    said.append(f"{among}, {len(sure)} of {many} with {of} have {_SURE}")
    first = max(sure, key=lambda each: each["R2"], default=None)
    if first:
        logged_too = f" and {again[first['column']] ** 2:.3f}" if again else ""
        said[-1] += f"; {first['column']} has the largest R² of them, {first['R2']:.3f}{logged_too}"
    said[-1] += "."
    permuted = tests.within.get("permutation")
    if permuted is not None:
        low = [each["column"] for each in _of_collapse(permuted) if each["max_t_p"] <= 0.05]
        said[-1] += f" The permutation test gives p ≤ 0.05, corrected by max-T, for {_listed(low) or 'none of them'}."
    if len(frame) < _FEW:
        said[-1] += f" With {counted(len(frame), 'row')}, a test can miss a correlation."
    both = [(each, inside[each["column"]]) for each in _of_collapse(tested) if each["column"] in inside]
    turned = [pair for pair in both if all(map(_is_sure, pair)) and pair[0]["r"] * pair[1]["r"] < 0]
    if turned:
        listed = _listed([f"{one['column']} ({_signed(one['r'])}, then {_signed(two['r'])})" for one, two in turned])
        said.append(f"The correlation reverses there, both times with {_SURE}: {listed}.")
    return said


def _is_sure(record: Mapping[str, Any]) -> bool:
    """Whether the interval of r excludes 0, and p is at most 0.05 after Holm's correction for all columns."""
    low, high, p = (record[name] for name in ("r_low", "r_high", "holm"))
    return low is not None and p is not None and low * high > 0 and p <= 0.05


def _of_collapse(tested: Table) -> list[dict[str, Any]]:
    return [each for each in tested.records() if _is_collapse(each["column"])]


def _is_collapse(column: str) -> bool:
    """Whether a column is a measurement of collapse, or its logarithm: accuracy goes with loss by definition."""
    name, known = column.removeprefix("log(").removesuffix(")"), plugins().measurements()
    return name in known and known[name][0].property_of(name).lower() != _GENERALIZATION


def _of_one(frame: "pd.DataFrame") -> list[str]:
    """Say how far the headline measurements of one model are from full collapse."""
    row = frame.iloc[0]
    said = []
    noise = False
    for name, value, towards, reachable in _headlines(row):
        ends = [f"{_number(towards)} at full collapse"] if towards is not None else []
        if reachable is not None and reachable != towards:
            by = plugins().measurements()[name][1].reached_by or "the best of all means"
            ends.append(f"{_number(reachable)} for {by} of {row['classes']:,} classes in {row['dim']:,} dimensions")
            noise = True
        if ends:
            said.append(f"{name} is {_number(value)}; it would be {' and '.join(ends)}.")
    if noise:
        said.append(
            "The value of random points is no sign of collapse, and no bound. Compare with a null, the same "
            "measurement of the untrained model (collapse measure --null)."
        )
    return said


def _of_two(frame: "pd.DataFrame") -> list[str]:
    """Say in which of two models the headline measurements are nearer to full collapse."""
    if LOSS not in frame or frame[LOSS].isna().any() or frame[LOSS].nunique() < 2:
        return []
    better, worse = (frame.sort_values(LOSS).iloc[at] for at in (0, 1))
    others = {name: abs(value - end) for name, value, end, _ in _headlines(worse) if end is not None}
    nearer: dict[bool, list[str]] = {True: [], False: []}
    for name, value, end, _ in _headlines(better):
        if end is not None and name in others:
            nearer[abs(value - end) < others[name]].append(name)
    if not (nearer[True] or nearer[False]):
        return []
    parts = [f"nearer to full collapse in {_listed(nearer[True])}"] if nearer[True] else []
    parts += [f"farther from it in {_listed(nearer[False])}"] if nearer[False] else []
    return [f"{_name(better)}, which has the lower loss, is {' and '.join(parts)}."]


def _headlines(row: "pd.Series") -> list[tuple[str, float, float | None, float | None]]:
    """Return the headline measurements of a row that have a value, with both of their limits."""
    import pandas as pd

    known = plugins().measurements()
    found = []
    for name in plugins().headlines():
        if name not in row or pd.isna(row[name]) or not math.isfinite(row[name]):
            continue
        shaped = "classes" in row and "dim" in row and pd.notna(row["classes"]) and pd.notna(row["dim"])
        limits: dict[str, float | None] = {"towards": None, "reachable": None}
        if shaped:
            limits, _ = limits_of(*known[name], int(row["classes"]), int(row["dim"]))
        found.append((name, float(row[name]), limits["towards"], limits["reachable"]))
    return found


def called(name: object) -> str:
    """Return a name as sentences and headings have it: of one line at most; tables have the whole name."""
    return shortened(str(name), _LONGEST)


def _name(row: "pd.Series") -> str:
    return called(row["model"]) if "model" in row else f"row {row.name + 1}"


def _number(value: float) -> str:
    return number(value).replace("-", "−")


def _signed(r: float) -> str:
    return f"{r:+.3f}".replace("-", "−")


def _listed(names: Sequence[str], most: int = 6) -> str:
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else ""


def _are(n: int) -> str:
    return "is 1" if n == 1 else f"are {n}"


def _sentence(remark: str) -> str:
    return f"{remark[:1].upper()}{remark[1:]}."
