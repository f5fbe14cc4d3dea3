"""Check that analyses and figures obey the laws of the built-in ones, also with missing values or few rows."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from numbers import Real
from types import NoneType
from typing import Any

from collapse.collection.arrays import collect_arrays
from collapse.core.extras import missing_package
from collapse.core.images import svg_of
from collapse.errors import CollapseError, PluginError, UsageError
from collapse.measurement.analyzing import analyzed
from collapse.measurement.comparable import mixed
from collapse.measurement.drawing import drawn
from collapse.measurement.results import Results
from collapse.measurement.table import Table
from collapse.plugin.figures import Figure
from collapse.plugin.metrics import Analysis, declaration
from collapse.plugin.plugin_manager import plugins
from collapse.stores.shards import Part
from collapse.stores.store import Store
from collapse.testing.laws import Checked
from collapse.testing.samples import random_features, random_results

_ROWS = 12
_GAPS = 3  # number of measurements, besides val_loss, to test with a missing value and as a missing column
_CELLS = (str, Real, NoneType)  # includes numpy numbers
_OTHERS: dict[str, Any] = {"corpus_id": "e" * 64, "validation_id": "f" * 64, "dtype": "bfloat16", "chunk_length": 32}


def check_analysis(
    function: Callable[..., Any], *, results: Results | None = None, without: Collection[str] = (), **options: Any
) -> None:
    """Check that a declared analysis obeys every law of analyses.

    Args:
        function: A function decorated with ``@analysis``.
        results: Rows of models that can be compared; None for 12 rows of random numbers, with one column for each
            installed measurement.
        without: Names of laws to skip.
        options: Options for the analysis.

    Raises:
        LawBroken: A law is broken; the message says which, and what was found.
        CollapseError: The function is not declared.
    """
    declared: Analysis = declaration(function)
    given = _random_results() if results is None else results
    with Checked(without) as checked:
        trial = _Trial(checked, declared.name, "table", lambda table: _table_of(declared, table, options))
        table = trial.check(given, _gaps(given))
        if table is None:
            return
        if odd := [value for row in table.rows for value in row if not isinstance(value, _CELLS)]:
            checked.breach(
                "table", declared.name, f"a value has the type {type(odd[0]).__name__}: use texts, numbers or None"
            )
        for field, other in _OTHERS.items():
            rows = [replace(each, **{field: other}) for each in given.rows[::2]] + list(given.rows[1::2])
            found = trial.run("mixed rows", Results(rows))
            for remark in set() if found is None else {*mixed(rows)} - {*found.notes}:
                remedy = "add collapse.measurement.comparable.mixed(…) for the rows that it uses"
                checked.breach("mixed rows", declared.name, f"its notes do not say that {remark}: {remedy}")


def check_figure(
    function: Callable[..., Any],
    *,
    results: Results | None = None,
    stores: Sequence[Store | Part] | None = None,
    without: Collection[str] = (),
) -> None:
    """Check that a declared figure obeys every law of figures.

    Args:
        function: A function decorated with ``@figure``.
        results: Rows that it can draw; None for 12 rows of random numbers, with one column for each installed
            measurement.
        stores: For a figure of stores, stores that it can draw; None for random features. For a figure of parts
            (``of="parts"``), two or more :class:`collapse.Part` that it can draw.
        without: Names of laws to skip.

    Raises:
        LawBroken: A law is broken; the message says which, and what was found.
        CollapseError: The function is not declared.
        UsageError: It is a figure of parts, and no parts are given.
    """
    declared: Figure = declaration(function)
    given: Any
    if declared.of == "results":
        given = _random_results() if results is None else results
        little = _gaps(given)
    elif declared.of == "stores":
        given, little = stores or [_store(20, "a"), _store(12, "b")], _few_classes()
    elif stores:
        given, little = stores, iter([("few rows", stores[:1]), ("few rows", [stores[0], stores[0]])])
    else:
        raise UsageError(
            f"figure {declared.name} draws parts of a collection: pass stores= with two or more collapse.Part objects "
            "that it can draw"
        )
    with Checked(without) as checked:
        drawing = _Trial(checked, declared.name, "drawing", lambda source: drawn(declared, source)).check(given, little)
        if drawing is None:
            return
        try:
            svg_of(drawing.spec)
        except CollapseError as error:
            if not missing_package(error.__cause__ or error):
                checked.breach("rendering", declared.name, str(error))


class _Trial:
    """An analysis or a figure under test.

    Args:
        checked: Where breaches are recorded.
        name: The name of the analysis or figure.
        law: The name of the law about the return value.
        make: Function that calls the analysis or figure on an input, and checks the return value.
    """

    def __init__(self, checked: Checked, name: str, law: str, make: Callable[[Any], Any]) -> None:
        self._checked, self._name, self._law, self._make = checked, name, law, make

    def run(self, law: str, given: Any) -> Any:
        """Return the result of ``make``; None if it fails, or rejects its input with a CollapseError."""
        try:
            return self._make(given)
        except PluginError as error:
            self._checked.breach(law, self._name, str(error))
        except CollapseError as error:
            if law in (self._law, "repeatable"):
                self._checked.breach(law, self._name, f"it rejects valid input: {error}")
        return None

    def check(self, given: Any, little: Iterator[tuple[str, Any]]) -> Any:
        """Call ``make`` twice on an input, and once on each input in ``little``; return the first result.

        The laws: the analysis or figure accepts the input, does not change the input ("reads only"), and returns the
        same result twice ("repeatable"). ``little`` yields the names of further laws, such as "few rows", each with an
        input that is small or has missing values. A CollapseError that rejects such an input is not a breach.
        """
        before = _content(given)
        first = self.run(self._law, given)
        if first is None:
            return None
        if _content(given) != before:
            self._checked.breach("reads only", self._name, "it changes its input")
        again = self.run("repeatable", given)
        if again is not None and repr(vars(again)) != repr(vars(first)):
            self._checked.breach("repeatable", self._name, "a second call returns another result")
        for law, less in little:
            self.run(law, less)
        return first


def _table_of(declared: Analysis, results: Results, options: dict[str, Any]) -> Table:
    made = analyzed(declared, results, **options)
    if not isinstance(made, Table):
        raise PluginError(f"it returned {type(made).__name__}, not a collapse.Table")
    if any(len(row) != len(made.columns) for row in made.rows):
        raise PluginError("it returned a table in which a row has more or fewer values than there are columns")
    return made


def _random_results() -> Results:
    return random_results(_ROWS, sorted(plugins().measurements()))


def _gaps(results: Results) -> Iterator[tuple[str, Any]]:
    """Yield labelled variants of the results: some with missing values or columns, some with at most two rows."""
    frame = results.frame()
    numbers = [name for name in frame.columns if "." in str(name) or name == "val_loss"]
    some = [frame[[name for name in frame if name not in numbers]], frame.assign(model="the same")]
    for name in dict.fromkeys(["val_loss", *numbers[:_GAPS]]):
        if name in frame:
            some += [frame.assign(**{name: frame[name].where(frame.index > 0)}), frame.drop(columns=[name])]
            some += [frame.assign(**{name: frame[name].iloc[0]})]
    yield from (("missing values", Results.from_frame(each)) for each in some)
    yield from (("few rows", each) for each in (Results(), *(Results.from_frame(frame.iloc[:n]) for n in (1, 2))))


def _few_classes() -> Iterator[tuple[str, Any]]:
    for classes in (1, 2, 3):
        yield "few classes", [_store(classes, "few")]
    yield "few classes", [_store(6, "one")] * 2


def _store(classes: int, name: str) -> Store:
    made = random_features(classes, 4, 20 * classes)
    return collect_arrays(
        made["train_features"],
        made["train_labels"],
        made["classifier"],
        validation_features=made["validation_features"],
        validation_labels=made["validation_labels"],
        name=name,
    )


def _content(given: Any) -> Any:
    if isinstance(given, Results):
        return given.frame().to_json(), [row.to_dict() for row in given.rows]
    held = [each.shards[0].tensors() if isinstance(each, Part) else each.tensors("train") for each in given]
    return [each[name].tolist() for each in held for name in ("counts", "means")]
