"""Check a figure: that it draws, repeats and reads only, and what it makes of missing values and few rows."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from collapse.collection.features import collect_arrays
from collapse.errors import CollapseError, PluginError
from collapse.measurement.drawing import drawn
from collapse.measurement.results import Results
from collapse.plugin.figures import Drawing, declared_figure
from collapse.plugin.plugin_manager import plugins
from collapse.stores.store import Store
from collapse.testing.laws import Checked
from collapse.testing.samples import random_features, random_results

LAWS = ("drawing", "repeatable", "reads only", "missing values", "few rows", "few classes")
_ROWS = 12
_GAPS = 2  # columns that are tested with a missing value, and without any value


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
    declared = declared_figure(function)
    given: Any = results if results is not None else random_results(_ROWS, sorted(plugins().measurements()))
    if declared.of != "results":
        samples = [_store(20, "a"), _store(12, "b")] if declared.of == "stores" else _parts(3)
        given = list(stores) if stores is not None else samples
    with Checked(LAWS, without) as checked:

        def draw(law: str, given: Any) -> Drawing | None:
            """Return the drawing, or None if the figure refuses what is given with an error of its own."""
            try:
                return drawn(declared, given)
            except PluginError as error:
                checked.breach(law, declared.name, str(error))
            except CollapseError as error:
                if law in ("drawing", "repeatable"):
                    checked.breach(law, declared.name, f"it refuses what it is given: {error}")
            return None

        before = _content(given)
        first = draw("drawing", given)
        if first is None:
            return
        if _content(given) != before:
            checked.breach("reads only", declared.name, "it changes what it is given")
        again = draw("repeatable", given)
        if again is not None and again != first:
            checked.breach("repeatable", declared.name, "called twice, the drawing differs: name every parameter")
        for law, fewer in _fewer(declared.of, given):
            draw(law, fewer)


def _fewer(of: str, given: Any) -> list[tuple[str, Any]]:
    """Return what else the figure must draw or refuse, with the law."""
    if of == "stores":
        one = _store(6, "one")
        return [("few classes", each) for each in ([_store(1, "few")], [_store(2, "few")], [one, one])]
    if of == "parts":
        first, second = _parts(2)
        return [("few rows", [first]), ("few rows", [second, first]), ("few classes", _parts(2, classes=1))]
    frame = given.frame()
    numbers = [name for name in frame.columns if "." in str(name) or name == "val_loss"]
    frames = [frame[[name for name in frame if name not in numbers]]]
    for name in [each for each in ["val_loss", *numbers[:_GAPS]] if each in frame]:
        frames.append(frame.assign(**{name: frame[name].where(frame.index > 0)}))
        frames.append(frame.assign(**{name: frame[name].iloc[0]}))
    gaps = [("missing values", Results.from_frame(each)) for each in frames]
    return gaps + [("few rows", Results.from_frame(frame.iloc[:count])) for count in (0, 1, 2)]


def _parts(count: int, classes: int = 12) -> list[Store]:
    """Return the parts of one collection, in memory: random features, which pass for slices of one text."""
    stores = [_store(classes, "parts", seed=seed) for seed in range(count)]
    about = {**stores[0].manifest}
    return [
        Store({**about, "files": each.manifest["files"], "coverage": _slice(at, count)}, None, each._files)
        for at, each in enumerate(stores)
    ]


def _slice(at: int, count: int) -> dict[str, Any]:
    return {"train": {"slices": count, "done": [[at, at + 1]]}, "validation": None}


def _store(classes: int, name: str, seed: int = 0) -> Store:
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
    tensors = [vars(each.statistics(part=True))[name] for each in given for name in ("counts", "means", "variances")]
    return [each.tolist() for each in tensors]
