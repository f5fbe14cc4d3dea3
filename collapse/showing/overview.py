"""What stands out, in sentences computed from the rows."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from collapse.errors import counted, shortened
from collapse.measurement.cells import number
from collapse.measurement.comparing import corpora_of
from collapse.measurement.model_names import with_parts
from collapse.measurement.prepared import remarks_on
from collapse.measurement.table import Table
from collapse.plugin.metrics import limits_of
from collapse.plugin.plugin_manager import plugins
from collapse.showing.associations import Associations

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
        tests: Correlations with validation loss.
    """
    said = [_how_many(frame), *_losses(frame)]
    if tested := tests.tables.get("correlation"):
        said += [*_by_size(frame, tests, tested), *_over_all(_of_collapse(tested))]
    elif len(frame) < 3:
        there = "is 1" if len(frame) == 1 else f"are {len(frame)}"
        said.append(f"Correlation with loss needs at least 3 models; there {there}.")
    return [*said, *(_of_one(frame.iloc[0]) if len(frame) == 1 else ())]


def warnings(frame: "pd.DataFrame") -> list[str]:
    """Return what forbids to compare the rows, or makes them hard to tell apart."""
    said = [f"{remark[:1].upper()}{remark[1:]}." for remark in remarks_on(frame)]
    if LOSS not in frame or frame[LOSS].isna().all():
        said.append("No row has a validation loss: nothing is said about generalization.")
    return said


def called(name: object) -> str:
    """Return a name as sentences and headings have it: of one line at most; tables have the whole name."""
    return shortened(str(name), _LONGEST)


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
    names = [called(name) for name in rows["model"]] if "model" in rows else [f"row {at + 1}" for at in rows.index]
    lowest, highest = float(rows[LOSS].iloc[0]), float(rows[LOSS].iloc[-1])
    if lowest == highest:  # one row, or one store with several --min-count
        yield f"Validation loss is {_number(lowest)} nats per token."
    else:
        yield (
            f"Validation loss is lowest, {_number(lowest)} nats, in {names[0]}, and highest, {_number(highest)}, in "
            f"{names[-1]}; the median is {_number(rows[LOSS].median())}."
        )


def _over_all(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Say what goes most with loss over all rows, and which correlations have another sign than is predicted."""
    if all(each["p"] is None for each in records):  # between a few sizes, whatever differs has a large R²
        return
    first = max(records, key=lambda each: each["R2"])
    said = f"Over all rows, {first['column']} has the largest R² with validation loss, {first['R2']:.3f}"
    yield f"{said} (r = {_signed(first['r'])})."
    if first["rows"] < _FEW:
        yield f"With {counted(first['rows'], 'row')}, such an R² can come by chance: see the p-values below."
    signed = [each for each in records if each["predicted"] and _is_sure(each)]
    against = [
        f"{each['column']} (r = {_signed(each['r'])}, predicted {each['predicted']})"
        for each in signed
        if not each["agrees"]
    ]
    if against:
        yield f"Against the sign that collapse predicts, over all rows and with {_SURE}: {_listed(against)}."
    elif signed:
        yield f"Every correlation over all rows with {_SURE} has the sign that collapse predicts, if it predicts one."


def _by_size(frame: "pd.DataFrame", tests: Associations, tested: Table) -> Iterator[str]:
    """Say how many sizes there are, and which correlations hold or reverse within them (Simpson's paradox)."""
    if tests.size is None:
        return
    sizes = with_parts(frame)[tests.size].value_counts()
    rows = f"{sizes.max():,}" if sizes.nunique() == 1 else f"{sizes.min():,} to {sizes.max():,}"
    few = " So few groups support no p-value over all rows." if tested.records()[0]["p"] is None else ""
    yield (
        f"The rows have {counted(len(sizes), 'value')} of {tests.size}, with {rows} rows each.{few} "
        "Size may drive every correlation over all rows."
    )
    within = tests.tables.get("correlation-within")
    if within is None:
        return
    records, among, of = _of_collapse(within), f"Among models of equal {tests.size}", "validation loss"
    sure = {each["column"]: each for each in records if _is_sure(each)}
    if tests.trained is not None:
        among = f"Without the main effects of {tests.size} and {tests.trained} (size can act by their interaction)"
        of = "validation loss, and with its logarithm too,"
        logged = tests.tables.get("correlation-log-within", within).records()
        signs = {each["column"]: each["r"] for each in logged if _is_sure(each)}
        sure = {name: each for name, each in sure.items() if each["r"] * signs.get(name, 0) > 0}
    said = f"{among}, {len(sure)} of {counted(len(records), 'correlation')} with {of} have {_SURE}"
    if sure:
        first = max(sure.values(), key=lambda each: each["R2"])
        said += f"; {first['column']} has the largest R² of them, {first['R2']:.3f}"
    yield f"{said}."
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
    """Whether a column is a measurement of collapse, or its logarithm: accuracy correlates with loss by definition."""
    name, known = column.removeprefix("log(").removesuffix(")"), plugins().measurements()
    return name in known and known[name][0].property_of(name).lower() != "generalization"


def _of_one(row: "pd.Series") -> Iterator[str]:
    """Say how far the headline measurements of one model are from full collapse, and from what noise reaches."""
    import pandas as pd

    noise = False
    shaped = all(name in row and pd.notna(row[name]) for name in ("classes", "dim"))
    for name in plugins().headlines():
        if not shaped or name not in row or pd.isna(row[name]) or not math.isfinite(row[name]):
            continue
        metric, measure = plugins().measurements()[name]
        limits, _ = limits_of(metric, measure, int(row["classes"]), int(row["dim"]))
        towards, reachable = limits["towards"], limits["reachable"]
        ends = [f"{_number(towards)} at full collapse"] if towards is not None else []
        if reachable is not None and reachable != towards:
            by = measure.reached_by or "the best of all means"
            ends.append(f"{_number(reachable)} for {by} of {row['classes']:,} classes in {row['dim']:,} dimensions")
            noise = True
        if ends:
            yield f"{name} is {_number(row[name])}; it would be {' and '.join(ends)}."
    if noise:
        yield (
            "The value of random points is no sign of collapse, and no bound. Compare with a null, the same "
            "measurement of the untrained model (collapse measure --null)."
        )


def _number(value: float) -> str:
    return number(float(value)).replace("-", "−")


def _signed(r: float) -> str:
    return f"{r:+.3f}".replace("-", "−")


def _listed(names: Sequence[str], most: int = 6) -> str:
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
