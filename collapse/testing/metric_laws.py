"""Check a metric against the laws that the built-in metrics obey.

Each law compares the metric's measurements of random features with those of the same features after a change: all
embeddings scaled, translated or rotated, classes given other ids, rare classes excluded. If a metric does not declare
an invariance, it must really change, so that tables and docs state every invariance.
"""

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from collapse.errors import CollapseError
from collapse.plugin.guarding import described
from collapse.plugin.metrics import Metric, declaration, limit_at
from collapse.testing.changed_features import (
    FACTOR,
    Features,
    degenerate,
    draw,
    moved,
    relabelled,
    rotated,
    scaled,
    simplex,
    unseen_label,
)
from collapse.testing.laws import Checked, close, shown
from collapse.testing.measured import Measured
from collapse.testing.merge_law import check_merging
from collapse.testing.samples import value

LAWS = (
    "value",
    "symmetry",
    "merge",
    "scale",
    "translation",
    "rotation",
    "class order",
    "left-out classes",
    "tile size",
    "float32",
    "simplex",
    "degenerate classes",
)
_DRAWS = ((15, 8, 400), (7, 9, 200))  # classes, dimensions, samples
_SIMPLICES = ((7, 7), (5, 9))  # classes, dimensions
_FLOAT32 = 2e-3  # an accurate metric changes by less than this when embeddings are rounded to float32

Values = dict[str, float | None]


def check_metric(function: Callable[..., Any], *, without: Collection[str] = ()) -> None:
    """Check that a declared metric obeys every law of the built-in metrics.

    Args:
        function: Decorated with ``@metric``, ``@class_metric`` or ``@pair_metric``.
        without: Names of laws that are not checked.

    Raises:
        LawBroken: Which laws are broken, by which measurement, and with which numbers. If the metric fails or gives no
            number, only this is reported.
        CollapseError: The function is not declared.
    """
    metric = declaration(function)
    if not isinstance(metric, Metric):
        raise CollapseError(f"{function.__name__} is no metric: use check_analysis for an analysis")
    of = Measured(metric)
    draws = [draw(*shape, seed=seed) for seed, shape in enumerate(_DRAWS)]
    with Checked(LAWS, without) as checked:
        _check_symmetry(checked, of, draws[0])
        if checked.broken:
            return  # the other laws would report the same
        before = [of.values(features, checked, "value") for features in draws]
        _check_value(checked, of, draws, before)
        if checked.broken:
            return  # as above
        check_merging(checked, of, draws[0])
        for law, change in (
            ("scale", scaled),
            ("translation", moved),
            ("rotation", rotated),
            ("class order", relabelled),
        ):
            after = [of.values(change(features), checked, law) for features in draws]
            for name in of.names:
                pairs = [(a.get(name), b.get(name)) for a, b in zip(before, after, strict=True)]
                if law == "scale":
                    _compare_scaled(checked, name, pairs, of.exponents[name])
                else:
                    _compare(checked, law, name, pairs, holds=law != "translation" or metric.translation)
        _check_left_out(checked, of, draws)
        _check_tiles(checked, of, draws)
        _check_float32(checked, of, draws, before)
        _check_simplex(checked, of)
        _check_degenerate(checked, of, draws[0], before[0])


def _check_symmetry(checked: Checked, of: Measured, features: Features) -> None:
    """Check that a pair metric gives the same value for a pair in both orders."""
    if of.metric.kind != "pair":
        return
    try:
        tile = value(of.metric.function, of.statistics(features))
    except CollapseError as error:
        checked.breach("value", of.names[0], str(error))
        return
    apart = ~torch.isclose(tile, tile.T, rtol=1e-5, atol=0, equal_nan=True)
    if bool(apart.any()):
        i, j = apart.nonzero()[0].tolist()
        said = f"{float(tile[i, j]):.6g} for a pair, {float(tile[j, i]):.6g} for the same pair in the other order"
        for name in of.names:
            checked.breach("symmetry", name, said)


def _check_value(checked: Checked, of: Measured, draws: Sequence[Features], before: Sequence[Values]) -> None:
    for name in of.names:
        if not any(values.get(name) is not None for values in before):
            checked.breach("value", name, f"it gives no number of random features: {of.reason(name)}")
    if of.metric.vector is None:
        return
    try:
        ids, values = value(of.metric.vector, of.statistics(draws[0]))
        if ids.dim() != 1 or ids.shape != values.shape:
            checked.breach("value", of.names[0], "its vector= gives no ids and values, two tensors of one shape (n,)")
    except Exception as error:  # a plugin's function
        checked.breach("value", of.names[0], f"its vector= fails: {described(error)}")


def _compare_scaled(
    checked: Checked, name: str, pairs: Sequence[tuple[float | None, float | None]], exponent: float | None
) -> None:
    """Compare a measurement of s·h with the power of s that it declares."""
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    powers = {round(math.log(b / a, FACTOR), 6) if a and b / a > 0 else None for a, b in known}
    power = powers.pop() if len(powers) == 1 else None
    if exponent is None:
        if power is not None and len(known) > 1 and not _is_counted(known):
            said = "it does not change" if power == 0 else f"it is multiplied by s**{power:g}"
            checked.breach("scale", name, f"{said} when h is multiplied by s: declare scale={power + 0.0}, not None")
        return
    remedy = f"scale={power:g}" if power is not None else "scale=None, if it follows no power of s"
    for a, b in pairs:
        expected = None if a is None else a * FACTOR**exponent
        if not close(expected, b):
            said = f"{shown(a)} becomes {shown(b)} with {FACTOR:g}·h, and scale={exponent:g} says {shown(expected)}"
            checked.breach("scale", name, f"{said}: declare {remedy}")
            return


def _compare(
    checked: Checked, law: str, name: str, pairs: Sequence[tuple[float | None, float | None]], *, holds: bool
) -> None:
    """Compare a measurement before and after a change; a law that does not hold must be broken."""
    if holds:
        changed = [f"{shown(a)} becomes {shown(b)}" for a, b in pairs if not close(a, b)]
        if changed:
            meant = f"; if that is meant, declare {law}=False" if law == "translation" else ""
            checked.breach(law, name, changed[0] + meant)
        return
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    if known and all(close(a, b, rel=1e-6) for a, b in known) and not _is_counted(known):
        checked.breach(law, name, f"it stays {shown(known[0][0])}: declare {law}=True, not False")


def _is_counted(pairs: Sequence[tuple[float, float]]) -> bool:
    """Whether these are integers, such as counts, or all equal: then they may be unchanged by chance."""
    return all(a == round(a) for a, _ in pairs) or len({a for a, _ in pairs}) == 1


def _check_left_out(checked: Checked, of: Measured, draws: Sequence[Features]) -> None:
    """Check that excluding rare classes gives the numbers of features without these classes."""
    pooled = any(not kind.per_class for kind in of.kinds)  # then --min-count gives null
    if "validation" in of.metric.needs or pooled or not checked.looks_at("left-out classes"):
        return
    for features in draws:
        counts = torch.bincount(features["train_labels"])
        least = int(counts.sort().values[len(counts) // 3]) + 1
        kept = counts[features["train_labels"]] >= least
        few = {name: tensor for name, tensor in features.items() if not name.startswith("validation")}
        few |= {name: few[name][kept] for name in ("train_features", "train_labels")}
        before = of.values(few, checked, "left-out classes")
        after, failed = of.measured(of.statistics(features).keep(least))
        for name in of.names:
            if name in failed or not close(before.get(name), after.get(name)):
                given = failed.get(name) or shown(after.get(name))
                said = f"{shown(before.get(name))} of features without rare classes; with --min-count {given}"
                checked.breach("left-out classes", name, said)


def _check_tiles(checked: Checked, of: Measured, draws: Sequence[Features]) -> None:
    if of.metric.kind != "pair" or not checked.looks_at("tile size"):
        return
    for features in draws:
        s = of.statistics(features)
        whole = of.swept(s)
        for tile in (2, 5):
            cut = of.swept(s, tile=tile)
            for name in of.names:
                if not close(whole.get(name), cut.get(name)):
                    said = f"{shown(whole.get(name))} in one tile, {shown(cut.get(name))} in tiles of {tile} classes"
                    checked.breach("tile size", name, said)


def _check_float32(checked: Checked, of: Measured, draws: Sequence[Features], before: Sequence[Values]) -> None:
    """Check that float32 embeddings, and a sweep in float32, give the same number as float64."""
    for features, values in zip(draws, before, strict=True):
        rounded = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in features.items()}
        found = [("of float32 embeddings", of.values(rounded, checked, "float32"))]
        if of.metric.kind == "pair":
            found.append(("in a float32 sweep", of.swept(of.statistics(features), dtype=torch.float32)))
        for what, after in found:
            for name in of.names:
                a, b = values.get(name), after.get(name)
                if not close(a, b, rel=_FLOAT32, least=_FLOAT32 * 1e-2):
                    checked.breach("float32", name, f"{shown(a)} in float64, {shown(b)} {what}")


def _check_simplex(checked: Checked, of: Measured) -> None:
    for classes, dim in _SIMPLICES:
        values = of.values(simplex(classes, dim), checked, "simplex")
        for measure in of.metric.measures:
            towards = limit_at(measure.towards, classes, dim)
            if towards is None or math.isinf(towards):  # no number reaches an infinite limit
                continue
            if not close(towards, values.get(measure.name), rel=0.0, least=1e-7):
                at = f"at an exact simplex of {classes} classes in {dim} dimensions"
                said = f"{shown(values.get(measure.name))} {at}, and towards= says {shown(towards)}"
                checked.breach("simplex", measure.name, said)


def _check_degenerate(checked: Checked, of: Measured, features: Features, before: Values) -> None:
    for what, changed in degenerate().items():
        of.values(changed, checked, "degenerate classes", f"{what}: ")
    after = of.values(unseen_label(features), checked, "degenerate classes", "a label that training lacks: ")
    for name in of.names:
        if before.get(name) is not None and after.get(name) is None:
            said = f"a label that training lacks: it gives no number: {of.reason(name)}"
            checked.breach("degenerate classes", name, said)
