"""Check a metric against the laws that the built-in metrics obey.

Each law compares the metric's measurements of random features with those of the same features after a change: all
embeddings scaled, translated or rotated, classes given other ids, rare classes excluded. If a metric does not declare
an invariance, it must really change, so that tables and docs state every invariance.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import torch

from collapse.collection.arrays import collect_arrays
from collapse.errors import CollapseError
from collapse.measurement.noting import numbers_of
from collapse.numerics.evaluating import evaluate
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.numerics.values import values_of
from collapse.plugin.metrics import Metric, declaration, limit_at
from collapse.plugin.parameters import check, globals_of
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.statistic import Statistic
from collapse.testing import changed_features as change
from collapse.testing.changed_features import Features
from collapse.testing.laws import Checked, close, shown
from collapse.testing.samples import value

LAWS = (
    "value",
    "symmetry",
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
Pairs = list[tuple[float | None, float | None]]


def check_metric(function: Callable[..., Any], *, without: Collection[str] = ()) -> None:
    """Check that a declared metric obeys every law of the built-in metrics.

    Args:
        function: Decorated with ``@metric``, ``@class_metric`` or ``@pair_metric``.
        without: Names of laws that are not checked.

    Raises:
        LawBroken: Which laws are broken, by which measurement, and with which numbers. If the metric fails or gives no
            number, only this is reported.
        CollapseError: The function is not declared, or asks for something that it cannot get.
    """
    metric = declaration(function)
    if not isinstance(metric, Metric):
        raise CollapseError(f"{function.__name__} is not a metric: use check_analysis for an analysis")
    check(function, pairs=metric.kind == "pair", statistics={each.name for each in _statistics_for(metric)})
    with Checked(LAWS, without) as checked:
        laws = _Laws(metric, checked)
        laws.value()
        if not checked.broken:  # the other laws would report the same
            laws.changes()
            laws.left_out()
            laws.tiles()
            laws.simplex()
            laws.degenerate()


class _Laws:
    """The laws of one metric. Each method checks one law and records its violations."""

    def __init__(self, metric: Metric, checked: Checked) -> None:
        self.metric, self.checked = metric, checked
        self.names = [measure.name for measure in metric.measures]
        self.kinds = _statistics_for(metric)
        self.draws = [change.draw(*shape, seed=seed) for seed, shape in enumerate(_DRAWS)]
        self.reasons: dict[str, str] = {}

    def statistics(self, features: Features) -> EmbeddingStatistics:
        """Return the statistics of a store of features."""
        given: dict[str, Any] = dict(features)
        arrays = [given.pop(name) for name in ("train_features", "train_labels", "classifier")]
        s = collect_arrays(*arrays, bias=given.pop("classifier_bias", None), statistics=self.kinds, **given)
        return replace(s.statistics(fresh=True), n_params=1000)

    def numbers(self, law: str, s: EmbeddingStatistics | Features, about: str = "") -> Values:
        """Return values by measurement; a failure is a breach of the given law."""
        s = s if isinstance(s, EmbeddingStatistics) else self.statistics(s)
        found = evaluate(
            lambda: values_of(s), [(self.metric, self.metric.measures)], by_class=True
        )  # calls vector= too
        made = numbers_of(found)
        for note in made.notes:
            if note.kind == "error":
                self.checked.breach(law, note.measurement, about + note.text)
        self.reasons = {note.measurement: note.text for note in made.notes}
        return {name: None if number is None else float(number) for name, number in made.values.items()}

    def compare(self, law: str, before: Values, after: Values, said: str, **tolerance: float) -> None:
        """Record each measurement that differs; ``said`` tells both numbers."""
        for name in self.names:
            a, b = before.get(name), after.get(name)
            if not close(a, b, **tolerance):
                self.checked.breach(law, name, said.format(shown(a), shown(b)))

    def value(self) -> None:
        """Check that it gives numbers, and a pair the same value in both orders."""
        self.before = [self.numbers("value", features) for features in self.draws]
        for name in self.names:
            if all(values.get(name) is None for values in self.before):
                reason = self.reasons.get(name, "no reason is given")
                self.checked.breach("value", name, f"it gives no number of random features: {reason}")
        if self.metric.kind != "pair" or self.checked.broken:
            return
        tile = value(self.metric.function, self.statistics(self.draws[0]))
        for i, j in (~torch.isclose(tile, tile.T, rtol=1e-5, atol=0, equal_nan=True)).nonzero().tolist()[:1]:
            said = f"{float(tile[i, j]):.6g} for a pair, {float(tile[j, i]):.6g} for the same pair in the other order"
            for name in self.names:
                self.checked.breach("symmetry", name, said)

    def changes(self) -> None:
        """Compare the measurements with those of changed features."""
        for law, changed in (
            ("scale", change.scaled),
            ("translation", change.moved),
            ("rotation", change.rotated),
            ("class order", change.relabelled),
            ("float32", change.rounded),
        ):
            after = [self.numbers(law, changed(features)) for features in self.draws]
            for measure in self.metric.measures:
                pairs = [(a.get(measure.name), b.get(measure.name)) for a, b in zip(self.before, after, strict=True)]
                if law == "scale":
                    said = _wrong_scale(pairs, measure.scale_of(self.metric.scale))
                elif law == "translation":
                    said = _wrong_translation(pairs, self.metric.translation)
                else:
                    least = {"rel": _FLOAT32, "least": _FLOAT32 * 1e-2} if law == "float32" else {}
                    said = _first_changed(pairs, **least)
                if said:
                    self.checked.breach(law, measure.name, said)

    def left_out(self) -> None:
        """Check that excluding rare classes gives the numbers of features without these classes."""
        if "validation" in self.metric.needs or any(not kind.per_class for kind in self.kinds):
            return  # the latter are null with --min-count
        for features in self.draws:
            counts = torch.bincount(features["train_labels"])
            least = int(counts.sort().values[len(counts) // 3]) + 1
            few = change.without(features, counts[features["train_labels"]] < least)
            before = self.numbers("left-out classes", few)
            after = self.numbers("left-out classes", self.statistics(features).keep(least))
            said = "{} of features without rare classes; with --min-count {}"
            self.compare("left-out classes", before, after, said)

    def tiles(self) -> None:
        """Check that a pair metric does not depend on how the classes are cut into tiles."""
        for features in self.draws if self.metric.kind == "pair" else ():
            s = self.statistics(features)
            whole, *others = [self.swept(s, tile) for tile in (768, 2, 5)]
            for size, other in zip((2, 5), others, strict=True):
                self.compare("tile size", whole, other, f"{{}} in one tile, {{}} in tiles of {size} classes")

    def swept(self, s: EmbeddingStatistics, tile: int) -> Values:
        """Return the values of a pair metric from one sweep."""
        (swept,) = evaluate(lambda: values_of(s), [(self.metric, self.metric.measures)], tile=tile).metrics
        return {} if swept.failed else dict(swept.numbers)

    def simplex(self) -> None:
        """Check the declared limits at exact simplices."""
        for classes, dim in _SIMPLICES:
            limits = {measure.name: limit_at(measure.towards, classes, dim) for measure in self.metric.measures}
            # no number reaches an infinite limit
            limits = {name: limit for name, limit in limits.items() if limit is not None and math.isfinite(limit)}
            values = self.numbers("simplex", change.simplex(classes, dim))
            values = {name: values.get(name) for name in limits}
            said = f"towards= says {{}}, and it is {{}} at an exact simplex of {classes} classes in {dim} dimensions"
            self.compare("simplex", limits, values, said, rel=0.0, least=1e-7)

    def degenerate(self) -> None:
        """Check that degenerate features give numbers or nulls, and do not make the metric fail."""
        law = "degenerate classes"
        for what, features in change.degenerate().items():
            self.numbers(law, features, f"{what}: ")
        about = "a label that training lacks: "
        after = self.numbers(law, change.unseen_label(self.draws[0]), about)
        for name, number in self.before[0].items():
            if number is not None and after.get(name) is None:
                reason = self.reasons.get(name, "no reason is given")
                self.checked.breach(law, name, f"{about}it gives no number: {reason}")


def _statistics_for(metric: Metric) -> list[type[Statistic]]:
    """Return the statistics that a metric asks for: those of its own module, or installed ones."""
    own = [each for each in globals_of(metric.function).values() if isinstance(each, type)]
    known = plugins().statistics | {
        each.name: each for each in own if issubclass(each, Statistic) and hasattr(each, "name")
    }
    return [known[need] for need in metric.needs if need in known]


def _wrong_scale(pairs: Pairs, declared: float | None) -> str:
    """Say how measurements of s·h differ from the power of s that they declare; "" if they do not."""
    powers = {round(math.log(b / a, change.FACTOR), 6) if a and b and b / a > 0 else None for a, b in pairs}
    power = powers.pop() if len(powers) == 1 else None
    if declared is None:
        wrong = power is not None and not _by_chance(pairs)
    else:
        wrong = bool(_first_changed([(None if a is None else a * change.FACTOR**declared, b) for a, b in pairs]))
    if not wrong:
        return ""
    (a, b), found = pairs[0], None if power is None else power + 0.0
    return f"{shown(a)} becomes {shown(b)} with {change.FACTOR:g}·h: declare scale={found}, not {declared}"


def _wrong_translation(pairs: Pairs, declared: bool) -> str:
    changed = _first_changed(pairs)
    if declared:
        return f"{changed}: declare translation=False, if that is meant" if changed else ""
    stays = not _first_changed(pairs, rel=1e-6) and not _by_chance(pairs)
    return f"it stays {shown(pairs[0][0])}: declare translation=True, not False" if stays else ""


def _first_changed(pairs: Pairs, **tolerance: float) -> str:
    return next((f"{shown(a)} becomes {shown(b)}" for a, b in pairs if not close(a, b, **tolerance)), "")


def _by_chance(pairs: Pairs) -> bool:
    """Whether these are integers, such as counts, or all equal: then they may be unchanged by chance."""
    known = [a for a, b in pairs if a is not None and b is not None]
    return all(a == round(a) for a in known) or len(set(known)) == 1
