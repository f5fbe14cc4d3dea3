"""Check a figure's specification and its handling of missing values, few rows and few classes."""

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from collapse.core.extras import missing_package
from collapse.errors import CollapseError, PluginError
from collapse.measurement.drawing import drawn
from collapse.measurement.results import Results
from collapse.plugin.figures import Drawing, Figure, numbers_of
from collapse.plugin.metrics import declaration
from collapse.plugin.plugin_manager import plugins
from collapse.showing.images import svg_of
from collapse.stores.shards import Part, Shard
from collapse.stores.store import Store
from collapse.testing.laws import Checked
from collapse.testing.samples import random_features, random_results

LAWS = ("drawing", "repeatable", "reads only", "size", "rendering", "missing values", "few rows", "few classes")
_ROWS = 12
_GAPS = 2  # columns that are tested with a missing value, and without any value
_MOST_ROWS = 5_000  # of data of stores, however many classes they have


def check_figure(
    function: Callable[..., Any],
    *,
    results: Results | None = None,
    stores: Sequence[Store] | None = None,
    without: Collection[str] = (),
) -> None:
    """Check that a declared figure obeys every law of figures.

    Args:
        function: Decorated with ``@figure``.
        results: Rows that it can draw; None for 12 rows of random numbers, with one column for each installed
            measurement.
        stores: For a figure of stores or of parts, those that it can draw; None for some of random features.
        without: Names of laws that are not checked.

    Raises:
        LawBroken: Which laws are broken, and what was found.
        CollapseError: The function is not declared.
    """
    declared = declaration(function)
    given: Any = results if results is not None else random_results(_ROWS, sorted(plugins().measurements()))
    if declared.of != "results":
        samples = [_store(20, "a"), _store(12, "b")] if declared.of == "stores" else _parts(3)
        given = list(stores) if stores is not None else samples
    with Checked(LAWS, without) as checked:
        before = _content(given)
        first = _draw(checked, declared, "drawing", given)
        if first is None:
            return
        if _content(given) != before:
            checked.breach("reads only", declared.name, "it changes what it is given")
        again = _draw(checked, declared, "repeatable", given)
        if again is not None and again != first:
            checked.breach("repeatable", declared.name, "called twice, the drawing differs: name every parameter")
        _check_drawing(checked, declared, first)
        for law, little in {"results": _gaps, "stores": _few_classes, "parts": _few_parts}[declared.of](given):
            _draw(checked, declared, law, little)


def _draw(checked: Checked, declared: Figure, law: str, given: Any) -> Drawing | None:
    """Return the drawing, or None if the figure refuses what is given with an error of its own."""
    try:
        return drawn(declared, given)
    except PluginError as error:
        checked.breach(law, declared.name, str(error))
    except CollapseError as error:
        if law in ("drawing", "repeatable"):
            checked.breach(law, declared.name, f"it refuses what it is given: {error}")
    return None


def _check_drawing(checked: Checked, declared: Figure, drawing: Drawing) -> None:
    rows = len(numbers_of(drawing.spec))
    if not rows or (declared.of != "results" and rows > _MOST_ROWS):
        checked.breach("size", declared.name, f"its data have {rows:,} rows: draw some, or bin or sample the classes")
    try:
        svg_of(drawing.spec)
    except CollapseError as error:
        if not missing_package(error.__cause__ or error):
            checked.breach("rendering", declared.name, str(error))


def _gaps(results: Results) -> Iterator[tuple[str, Any]]:
    """Yield the results with values missing, and of few rows."""
    frame = results.frame()
    numbers = [name for name in frame.columns if "." in str(name) or name == "val_loss"]
    some = [frame[[name for name in frame if name not in numbers]], frame.assign(model="the same")]
    for name in ["val_loss", *numbers[:_GAPS]]:
        if name in frame:
            some += [frame.assign(**{name: frame[name].where(frame.index > 0)}), frame.drop(columns=[name])]
            some += [frame.assign(**{name: frame[name].iloc[0]})]
    yield from (("missing values", Results.from_frame(each)) for each in some)
    yield from (("few rows", Results.from_frame(frame.iloc[:count])) for count in (0, 1, 2))


def _few_classes(_: Any) -> Iterator[tuple[str, Any]]:
    for classes in (1, 2, 3):
        yield "few classes", [_store(classes, "few")]
    yield "few classes", [_store(6, "one")] * 2


def _few_parts(_: Any) -> Iterator[tuple[str, Any]]:
    first, second = _parts(2)
    yield from (("few rows", each) for each in ([first], [first, first], [second, first]))
    yield "few classes", _parts(2, classes=1)


def _parts(count: int, classes: int = 12) -> list[Part]:
    """Return the parts of one collection, in memory: random features, which pass for slices of one text."""
    stores = [_store(classes, "parts", seed=seed) for seed in range(count)]
    manifest = stores[0].manifest
    about = {name: manifest[name] for name in ("identity", "model", "corpus")}
    about |= {"coverage": {"slices": count}, "statistics": {}, "statistics_by": {}}
    return [Part(Path(str(at)), [_shard(store, at, about)]) for at, store in enumerate(stores)]


def _shard(store: Store, at: int, about: dict[str, Any]) -> Shard:
    train = store.tensors("train")
    squares = train.pop("variances") * train["counts"]
    return Shard("train", at, at + 1, about, held={**train, **store.tensors("classifier"), "squares": squares})


def _store(classes: int, name: str, seed: int = 0) -> Store:
    from collapse.collection.arrays import collect_arrays

    features = random_features(classes, 4, 20 * classes, seed=seed)
    return collect_arrays(
        features["train_features"],
        features["train_labels"],
        features["classifier"],
        validation_features=features["validation_features"],
        validation_labels=features["validation_labels"],
        name=name,
    )


def _content(given: Any) -> Any:
    if isinstance(given, Results):
        return given.frame().to_json(), [row.to_dict() for row in given.rows]
    held = [each.shards[0].tensors() if isinstance(each, Part) else each.tensors("train") for each in given]
    return [each[name].tolist() for each in held for name in ("counts", "means")]
