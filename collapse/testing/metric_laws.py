"""Check a metric against the laws that the built-in metrics obey.

Each law compares the metric's measurements of random features with those of the same features after a change: all
embeddings scaled, translated or rotated, classes given other ids, rare classes excluded. If a metric does not declare
an invariance, it must really change, so that tables and docs state every invariance.
"""

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any

import torch

from collapse.collection.features import collect_arrays
from collapse.errors import CollapseError
from collapse.measurement.evaluating import Found
from collapse.numerics.pairs import sweep
from collapse.numerics.reducing import Tally
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.numerics.values import values_of
from collapse.plugin.metrics import Metric, declaration, limit_at
from collapse.plugin.parameters import globals_of
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.statistic import Statistic
from collapse.testing import changed_features as change
from collapse.testing.changed_features import Features
from collapse.testing.laws import Checked, close, shown
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
Pairs = list[tuple[float | None, float | None]]


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
    with Checked(LAWS, without) as checked:
        laws = _Laws(metric, checked)
        for law in (laws.value, laws.merge, laws.changes, laws.left_out, laws.tiles, laws.simplex, laws.degenerate):
            law()
            if law == laws.value and checked.broken:
                return  # the other laws would report the same


class _Laws:
    """The laws of one metric. Each records what breaks it."""

    def __init__(self, metric: Metric, checked: Checked) -> None:
        self.metric, self.checked = metric, checked
        self.names = [measure.name for measure in metric.measures]
        self.kinds = _statistics_for(metric)
        self.draws = [change.draw(*shape, seed=seed) for seed, shape in enumerate(_DRAWS)]

    def statistics(self, features: Features) -> EmbeddingStatistics:
        """Return the statistics of a store of features."""
        s = collect_arrays(
            features["train_features"],
            features["train_labels"],
            features["classifier"],
            bias=features.get("classifier_bias"),
            validation_features=features.get("validation_features"),
            validation_labels=features.get("validation_labels"),
            statistics=self.kinds,
        ).statistics(fresh=True)
        return replace(s, n_params=1000)

    def numbers(self, law: str, s: EmbeddingStatistics | Features, about: str = "") -> Values:
        """Return values by measurement; a failure is a breach of the given law."""
        s = s if isinstance(s, EmbeddingStatistics) else self.statistics(s)
        missing = next((f"nothing gives {need}" for need in self.metric.needs if not s.has(need)), None)
        found = Found(values_of(s), by_class=self.metric.kind == "scalar")  # calls vector= too
        found.measure([(self.metric, self.metric.measures)], {id(self.metric): missing}, None)
        for note in found.notes:
            if note.kind == "error":
                self.checked.breach(law, note.measurement, about + note.text)
        self.reasons = {note.measurement: note.text for note in found.notes}
        return {name: None if number is None else float(number) for name, number in found.values.items()}

    def swept(self, s: EmbeddingStatistics, **options: Any) -> Values:
        """Return the values of a pair metric from one sweep."""
        (swept,) = sweep(s, [(self.metric, self.metric.measures)], **options).metrics
        return {} if swept.failed else {name: swept.all.number(name) for name in self.names}

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

    def merge(self) -> None:
        """Check that the measures of a part of the values, merged in any order, give the number of all."""
        if self.metric.kind == "scalar":
            return
        s = self.statistics(self.draws[0])
        values = value(self.metric.function, s)
        if self.metric.kind == "pair":
            values = values[torch.ones_like(values, dtype=torch.bool).triu(1)]
        values_1n = values[values.isfinite()].double().unsqueeze(0)
        parts = values_1n.tensor_split(3, dim=1)
        for measure in self.metric.measures:
            here = measure.at(s.n_classes, s.dim)
            whole = float(here.result(here.state(values_1n, values_1n.sum(dim=1))))
            for order in (parts, parts[::-1]):
                tally = Tally([measure], s.n_classes, s.dim)
                for part in order:
                    tally.add(part)
                merged = tally.number(measure.name)
                if not close(whole, merged):
                    said = f"{shown(whole)} of all values, {shown(merged)} merged of parts"
                    self.checked.breach("merge", measure.name, said)

    def changes(self) -> None:
        """Compare the measurements with those of changed features."""
        after = {
            law: [self.numbers(law, changed(features)) for features in self.draws]
            for law, changed in (
                ("scale", change.scaled),
                ("translation", change.moved),
                ("rotation", change.rotated),
                ("class order", change.relabelled),
                ("float32", change.rounded),
            )
        }
        for measure in self.metric.measures:
            for law, found in after.items():
                name = measure.name
                pairs = [(a.get(name), b.get(name)) for a, b in zip(self.before, found, strict=True)]
                if law == "scale":
                    said = _scaled(pairs, self.metric.scale_of(measure))
                elif law == "float32":
                    said = _first_changed(pairs, rel=_FLOAT32, least=_FLOAT32 * 1e-2)
                elif law == "translation" and not self.metric.translation:
                    said = f"it stays {shown(pairs[0][0])}: declare translation=True, not False" if _kept(pairs) else ""
                else:
                    said = _first_changed(pairs)
                    said += "; if that is meant, declare translation=False" if said and law == "translation" else ""
                if said:
                    self.checked.breach(law, name, said)

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
            for name in self.names:
                if not close(before.get(name), after.get(name)):
                    said = f"{shown(before.get(name))} of features without rare classes"
                    said += f"; with --min-count {shown(after.get(name))}"
                    self.checked.breach("left-out classes", name, said)

    def tiles(self) -> None:
        """Check that a pair metric does not depend on the tiles, and little on the sweep's dtype."""
        for features in self.draws if self.metric.kind == "pair" else ():
            s = self.statistics(features)
            whole = self.swept(s)
            for law, what, rel, options in (
                ("tile size", "in tiles of 2 classes", 1e-8, {"tile": 2}),
                ("tile size", "in tiles of 5 classes", 1e-8, {"tile": 5}),
                ("float32", "in a float32 sweep", _FLOAT32, {"dtype": torch.float32}),
            ):
                other = self.swept(s, **options)
                for name in self.names:
                    if not close(whole.get(name), other.get(name), rel=rel, least=max(1e-11, rel * 1e-2)):
                        said = f"{shown(whole.get(name))} in one tile, {shown(other.get(name))} {what}"
                        self.checked.breach(law, name, said)

    def simplex(self) -> None:
        """Check the declared limits at exact simplices."""
        for classes, dim in _SIMPLICES:
            values = self.numbers("simplex", change.simplex(classes, dim))
            for measure in self.metric.measures:
                towards = limit_at(measure.towards, classes, dim)
                if towards is None or math.isinf(towards):  # no number reaches an infinite limit
                    continue
                if not close(towards, values.get(measure.name), rel=0.0, least=1e-7):
                    at = f"at an exact simplex of {classes} classes in {dim} dimensions"
                    said = f"{shown(values.get(measure.name))} {at}, and towards= says {shown(towards)}"
                    self.checked.breach("simplex", measure.name, said)

    def degenerate(self) -> None:
        """Check that degenerate features give numbers or nulls, and do not make the metric fail."""
        for what, features in change.degenerate().items():
            self.numbers("degenerate classes", features, f"{what}: ")
        about = "a label that training lacks: "
        after = self.numbers("degenerate classes", change.unseen_label(self.draws[0]), about)
        for name in self.names:
            if self.before[0].get(name) is not None and after.get(name) is None:
                said = f"{about}it gives no number: {self.reasons.get(name, 'no reason is given')}"
                self.checked.breach("degenerate classes", name, said)


def _statistics_for(metric: Metric) -> list[type[Statistic]]:
    """Return the statistics that a metric asks for: those of its own module, or installed ones."""
    own = globals_of(metric.function).values()
    known = dict(plugins().statistics)
    known |= {
        each.name: each
        for each in own
        if isinstance(each, type) and issubclass(each, Statistic) and hasattr(each, "name")
    }
    return [known[need] for need in metric.needs if need in known]


def _scaled(pairs: Pairs, exponent: float | None) -> str:
    """Say how measurements of s·h differ from the power of s that they declare; "" if they do not."""
    powers = {round(math.log(b / a, change.FACTOR), 6) if a and b / a > 0 else None for a, b in _known(pairs)}
    power = powers.pop() if len(powers) == 1 else None
    if exponent is None:
        if power is None or _counted(pairs):
            return ""
        what = "it does not change" if power == 0 else f"it is multiplied by s**{power:g}"
        return f"{what} when h is multiplied by s: declare scale={power + 0.0}, not None"
    remedy = "scale=None, if it follows no power of s" if power is None else f"scale={power:g}"
    for a, b in pairs:
        expected = None if a is None else a * change.FACTOR**exponent
        if not close(expected, b):
            said = f"{shown(a)} becomes {shown(b)} with {change.FACTOR:g}·h, and scale={exponent:g} says"
            return f"{said} {shown(expected)}: declare {remedy}"
    return ""


def _first_changed(pairs: Pairs, **tolerance: float) -> str:
    return next((f"{shown(a)} becomes {shown(b)}" for a, b in pairs if not close(a, b, **tolerance)), "")


def _kept(pairs: Pairs) -> bool:
    """Whether all values stay as they are, and not by chance."""
    return not _counted(pairs) and all(close(a, b, rel=1e-6) for a, b in _known(pairs))


def _counted(pairs: Pairs) -> bool:
    """Whether these are integers, such as counts, or all equal: then they may be unchanged by chance."""
    known = [a for a, _ in _known(pairs)]
    return all(a == round(a) for a in known) or len(set(known)) == 1


def _known(pairs: Pairs) -> Iterator[tuple[float, float]]:
    return ((a, b) for a, b in pairs if a is not None and b is not None)
