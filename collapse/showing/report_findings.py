"""Make the findings of a report: correlations with validation loss, and sentences about what stands out in the rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from collapse.core.steps import run_and_step
from collapse.errors import CollapseError, counted, shortened, some
from collapse.measurement.analyzing import analyze
from collapse.measurement.cells import number
from collapse.measurement.model_names import training_of, with_parts
from collapse.measurement.prepared import SIZES, remarks_on
from collapse.measurement.results import Results
from collapse.measurement.row_tables import by_property
from collapse.measurement.table import Table
from collapse.plugin.metrics import limits_of
from collapse.plugin.parameter_names import OF_OTHERS
from collapse.plugin.plugin_manager import plugins
from collapse.stores.layer_names import TOP

if TYPE_CHECKING:
    import pandas as pd

LOSS = "val_loss"
_MOST = 6  # names in a sentence
_COLLAPSE = (
    "At full collapse, all embeddings before a token are equal to their class mean (NC1), the class means have equal "
    "norms and spread evenly (NC2, GNC2), the classifier's rows align with them (NC3; UNC3: all equally well), and the "
    "nearest class mean decides (NC4)."
)
_SURE = "an interval that excludes 0 and p ≤ 0.05 after Holm's correction"


@dataclass(frozen=True)
class Associations:
    """Correlation of measurements with validation loss.

    Attributes:
        tables: Tables of analyses by name. ``correlation`` and ``permutation`` are over all rows. Names that end in
            ``-within`` are within models of one size; ``correlation-log-within`` uses log(val_loss).
        size: The column with the models' sizes, or None if sizes do not repeat.
        trained: The first of the columns ``recipe``, ``checkpoint`` and ``step`` whose values differ between models of
            one size; None if there is no such column.
        lacking: Reasons why analyses are not shown.
    """

    tables: Mapping[str, Table]
    size: str | None = None
    trained: str | None = None
    lacking: Sequence[str] = ()


def associations(results: Results) -> Associations:
    """Run the variants of the analyses ``permutation`` and ``correlation`` that are valid for the rows.

    ``correlation`` is always run. If the rows do not form several groups of models of one size, ``permutation`` is run
    too, unless the models were trained differently (checkpoints).

    If the rows form such groups, they are not exchangeable. ``correlation`` then treats each size as a cluster, and
    ``correlation-within`` subtracts the effect of size. The other analyses depend on the training:

    - If the models of a size were trained alike, ``permutation-within`` permutes rows only within a size.
    - Otherwise, ``correlation-within`` also subtracts the effect of training. Its p-values come from permuting the
      sizes (all rows of a size move together). ``correlation-log-within`` does the same for log(val_loss).
    """
    named = with_parts(results.frame())
    size = next((name for name in SIZES if _repeats(named, name)), None)
    trained = training_of(named, size or (lambda _: 0))
    names, end = [name for name in (size, trained) if name is not None], "-within" if size else ""
    tables, lacking = dict[str, Table](), list[str]()
    runs: dict[str, dict[str, Any]] = {"correlation": {"cluster": size}}
    if size:
        runs["correlation-within"] = {"within": names}
    if trained and not size:
        lacking.append(f"permutation: rows that differ in {trained} are not exchangeable")
    elif trained:
        runs["correlation-log-within"] = {"within": names, "against": "log(val_loss)"}
    else:
        runs[f"permutation{end}"] = {"within": names or None, "n": 9_999}
    for name, options in runs.items():
        try:
            tables[name] = analyze(name.partition("-")[0], Results.from_frame(named), **options)
        except CollapseError as error:
            lacking.append(f"{name}: {error}")
    return Associations(tables, size, trained, lacking)


def _repeats(frame: "pd.DataFrame", column: str) -> bool:
    """Return whether a column divides the rows into several groups, most of them with more than two rows."""
    if column not in frame:
        return False
    sizes = frame[column].value_counts()
    return len(sizes) > 1 and bool((sizes > 2).mean() > 0.5)


def findings(frame: "pd.DataFrame", tests: Associations, *, has_nulls: bool = False) -> list[str]:
    """Return what stands out in a table and in the correlations ``tests``, as items of one or two sentences.

    ``has_nulls`` says whether rows have a null baseline; if so, the advice to measure one is omitted.
    """
    said = [_how_many(frame), *_losses(frame), *_in_training(frame)]
    if tested := tests.tables.get("correlation"):
        return [*said, *_by_size(frame, tests, tested), *_over_all(tested)]
    if len(frame) < 3:
        said.append("Correlation with loss needs at least 3 models.")
    if len(frame) < 3 and not has_nulls:
        said.append(
            "Compare the numbers with those of an untrained model (collapse measure --null): random weights also give "
            "numbers."
        )
    return said


def warnings(frame: "pd.DataFrame") -> list[str]:
    """Return warnings: rows with different texts or settings, repeated names of models, no validation loss."""
    said = [f"{remark[:1].upper()}{remark[1:]}." for remark in remarks_on(frame)]
    if LOSS not in frame or frame[LOSS].isna().all():
        said.append("No row has a validation loss, so the report says nothing about generalization.")
    return said


def _how_many(frame: "pd.DataFrame") -> str:
    made = counted(len(frame), "row")
    if "model" in frame:
        models = frame["model"].nunique()
        runs = {run_and_step(str(model))[0] for model in frame["model"]}
        of = f"checkpoints of {shortened(runs.pop())}" if len(runs) == 1 < models else None
        made = (f"{models} {of}" if of else counted(models, "model")) + (f" in {made}" if models != len(frame) else "")
    if layers := sorted({*frame["layer"].dropna().astype(str)} - {TOP}) if "layer" in frame else []:
        made += f" of layer {some(layers, _MOST)}"
    measured = [name for name in frame if _is_collapse(str(name)) and frame[name].notna().any()]
    corpora = sorted({shortened(each) for each in frame["corpus"].dropna() if each}) if "corpus" in frame else []
    return f"{made}{f', on {some(corpora, _MOST)}' if corpora else ''}, with {counted(len(measured), 'measurement')}."


def _losses(frame: "pd.DataFrame") -> Iterator[str]:
    if LOSS not in frame or frame[LOSS].isna().all():
        return
    rows = frame[frame[LOSS].notna()].sort_values(LOSS)
    names = [shortened(str(name)) for name in rows.get("model", rows.index)]
    lowest, highest, median = (_number(each) for each in (rows[LOSS].iloc[0], rows[LOSS].iloc[-1], rows[LOSS].median()))
    if lowest == highest:  # one row, or one store with several --min-count
        yield f"Validation loss is {lowest} nats."
    else:
        yield (
            f"Validation loss is lowest, {lowest} nats, in {names[0]}, and highest, {highest}, in {names[-1]}; "
            f"the median is {median}."
        )


def _in_training(frame: "pd.DataFrame") -> Iterator[str]:
    """Define full collapse, and say how the headline measurements moved from the first to the last checkpoint."""
    frame = with_parts(frame)
    along = next((name for name in ("step", "checkpoint") if name in frame and frame[name].notna().all()), None)
    if along is None or not {"model", "classes", "dim"} <= set(frame):
        return
    if len({run_and_step(str(model))[0] for model in frame["model"]}) != 1 or not frame[along].is_unique:
        return
    first, last = (frame.sort_values(along).iloc[at] for at in (0, -1))
    moved: dict[str, list[str]] = {}
    for name in by_property(
        each for each in plugins().headlines(OF_OTHERS) if each in frame and frame[each].notna().all()
    ):
        limit = limits_of(*plugins().measurements()[name], int(last["classes"]), int(last["dim"]))[0]["towards"]
        if limit is not None and first[name] != last[name]:
            where = "nearer to" if abs(last[name] - limit) < abs(first[name] - limit) else "farther from"
            values = f"{name} ({_number(first[name])} → {_number(last[name])})"
            moved.setdefault(f"{where} {_number(limit)}", []).append(values)
    if moved:
        yield _COLLAPSE
    for where, names in moved.items():
        ends = f"From {along} {first[along]:,.0f} to {last[along]:,.0f}"
        yield f"{ends}, these moved {where}, the value at full collapse: {', '.join(names)}."


def _over_all(tested: Table) -> Iterator[str]:
    """Describe the largest correlation with loss over all rows, and correlations with another sign than predicted.

    ``tested`` is the table ``correlation`` of :class:`Associations`.
    """
    records = _of_collapse(tested)
    if all(each["p"] is None for each in records):  # too few sizes: every column that varies with size has a large R²
        return
    first = max(records, key=lambda each: each["R2"])
    yield (
        f"Over all {counted(first['rows'], 'row')}, {first['column']} has the largest R² with validation loss, "
        f"{first['R2']:.3f} (r = {_signed(first['r'])})."
    )
    against = [
        f"{each['column']} (r = {_signed(each['r'])}, predicted {each['predicted']})"
        for each in records
        if each["predicted"] and _is_sure(each) and not each["agrees"]
    ]
    if against:
        yield f"Over all rows, the sign is opposite to the prediction, with {_SURE}: {some(against, _MOST)}."


def _by_size(frame: "pd.DataFrame", tests: Associations, tested: Table) -> Iterator[str]:
    """Describe how many sizes there are, and which correlations hold or reverse within a size (Simpson's paradox).

    ``tested`` is the table ``correlation`` of ``tests``.
    """
    if tests.size is None:
        return
    sizes = with_parts(frame)[tests.size].value_counts()
    rows = f"{sizes.max():,}" if sizes.nunique() == 1 else f"{sizes.min():,} to {sizes.max():,}"
    few = " These are too few groups for a p-value over all rows." if tested.records()[0]["p"] is None else ""
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
        among = f"With the effects of {tests.size} and {tests.trained} subtracted (not their interaction)"
        of = "validation loss, and with its logarithm too,"
        logged = tests.tables.get("correlation-log-within", within).records()
        signs = {each["column"]: each["r"] for each in logged if _is_sure(each)}
        sure = {name: each for name, each in sure.items() if each["r"] * signs.get(name, 0) > 0}
    first = max(sure.values(), key=lambda each: each["R2"], default=None)
    largest = f"; {first['column']} has the largest R² of them, {first['R2']:.3f}" if first else ""
    yield f"{among}, {len(sure)} of {counted(len(records), 'correlation')} with {of} have {_SURE}{largest}."
    turned = [
        f"{each['column']} ({_signed(each['r'])}, then {_signed(other['r'])})"
        for each in _of_collapse(tested)
        if _is_sure(each) and (other := sure.get(each["column"])) and each["r"] * other["r"] < 0
    ]
    if turned:
        yield f"Compared with all rows, the correlation reverses, both times with {_SURE}: {some(turned, _MOST)}."


def _is_sure(record: Mapping[str, Any]) -> bool:
    """Return whether the interval of r excludes 0, and p is at most 0.05 after Holm's correction for all columns."""
    low, high, p = (record[name] for name in ("r_low", "r_high", "holm"))
    return low is not None and p is not None and low * high > 0 and p <= 0.05


def _of_collapse(tested: Table) -> list[dict[str, Any]]:
    return [each for each in tested.records() if _is_collapse(each["column"])]


def _is_collapse(column: str) -> bool:
    """Return whether a column is a measurement (or its logarithm) of another property than generalization."""
    name, known = column.removeprefix("log(").removesuffix(")"), plugins().measurements()
    return name in known and known[name][0].property_of(name).lower() != "generalization"


def _number(value: float) -> str:
    return number(float(value)).replace("-", "−")


def _signed(r: float) -> str:
    return f"{r:+.3f}".replace("-", "−")
