"""Check a metric against the laws that the built-in metrics obey.

Most laws compare the metric's measurements before and after a change of random features: all embeddings scaled,
translated or rotated, other class ids, numbers rounded to float32, or rare classes excluded. If a metric is not
declared invariant, its measurements must change, so that tables and docs never miss an invariance.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import torch

from collapse.collection.arrays import collect_arrays
from collapse.measurement.row_numbers import numbers_of
from collapse.numerics.evaluating_metrics import evaluate
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.numerics.values import values_of
from collapse.plugin.metrics import Measure, Metric, declaration, limit_at
from collapse.plugin.parameters import check, globals_of
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.statistic import Statistic
from collapse.testing import changed_features as change
from collapse.testing.changed_features import Features
from collapse.testing.laws import Checked
from collapse.testing.sample_data import statistics_of, value

_DRAWS = ((15, 8, 400), (7, 9, 200))  # classes, dimensions, samples
_SIMPLICES = ((7, 7), (5, 9))  # classes, dimensions
_TILES = (2, 5)  # classes per side; a tile of the default size holds all classes
_FLOAT32 = 2e-3  # an accurate metric changes by less than this when embeddings are rounded to float32

Values = dict[str, float | None]
Pairs = list[tuple[float | None, float | None]]


def check_metric(function: Callable[..., Any], *, without: Collection[str] = ()) -> None:
    """Check that a declared metric obeys every law of the built-in metrics.

    Args:
        function: A function decorated with ``@metric``, ``@class_metric`` or ``@pair_metric``.
        without: Names of laws to skip.

    Raises:
        LawBroken: A law is broken. The message names the law, the measurement that breaks it, and the numbers. If the
            metric fails or gives no number, the message says only this, and no other law is checked.
        CollapseError: The function is not declared, or has a parameter for a value that it cannot get.
    """
    metric: Metric = declaration(function)
    check(function, pairs=metric.kind == "pair", statistics={each.name for each in _statistics_for(metric)})
    with Checked(without) as checked:
        laws = _Laws(metric, checked)
        laws.value()
        if checked.broken:
            return  # the other laws would report the same
        for law, changed, wrong in _CHANGES:
            laws.compare(law, laws.before, [laws.numbers(law, changed(features)) for features in laws.draws], wrong)
        laws.left_out()
        laws.tiles()
        laws.simplex()
        laws.degenerate()


class _Laws:
    """The laws for one metric; breaches are recorded in ``checked``."""

    def __init__(self, metric: Metric, checked: Checked) -> None:
        self.metric, self.checked = metric, checked
        self.statistic_types = _statistics_for(metric)
        self.draws = [change.draw(*shape, seed=seed) for seed, shape in enumerate(_DRAWS)]
        self.before: list[Values] = []
        self.reasons: dict[str, str] = {}

    def statistics(self, features: Features) -> EmbeddingStatistics:
        """Collect features, and return their statistics with ``n_params``, ``previous`` and ``ood``."""
        given: dict[str, Any] = dict(features)
        ood = given.pop("ood_features")
        arrays = [given.pop(name) for name in ("train_features", "train_labels", "classifier")]
        s = collect_arrays(*arrays, bias=given.pop("classifier_bias", None), statistics=self.statistic_types, **given)
        found = replace(s.statistics(), n_params=1000)
        assert found.classifier is not None
        before = replace(found, means=found.classifier)  # in place of the previous checkpoint
        return replace(found, previous=before, ood=statistics_of(ood.mean(dim=0, keepdim=True)))

    def numbers(
        self, law: str, given: EmbeddingStatistics | Features, *, about: str = "", tile_side: int | None = None
    ) -> Values:
        """Measure ``given``, and return the value of each measurement; record a failure as a breach of ``law``.

        The description of the breach starts with ``about``. A tile has ``tile_side`` classes per side; None for the
        default size.
        """
        s = given if isinstance(given, EmbeddingStatistics) else self.statistics(given)
        chosen = [(self.metric, self.metric.measures)]
        # by_class=True also calls the metric's vector=
        found = evaluate(lambda: values_of(s), chosen, by_class=True, tile_side=tile_side)
        made = numbers_of(found)
        self.reasons = {note.measurement: note.text for note in made.notes}
        for note in made.notes:
            if note.kind == "error":
                self.checked.breach(law, note.measurement, about + note.text)
        return {name: None if number is None else float(number) for name, number in made.values.items()}

    def compare(self, law: str, before: Sequence[Values], after: Sequence[Values], wrong: "Wrong") -> None:
        """Record each measurement whose numbers before and after a change break ``law``.

        The function ``wrong`` describes what is wrong with the numbers of one measurement.
        """
        for measure in self.metric.measures:
            pairs = [(a.get(measure.name), b.get(measure.name)) for a, b in zip(before, after, strict=True)]
            if said := wrong(pairs, self.metric, measure):
                self.checked.breach(law, measure.name, said)

    def value(self) -> None:
        """Check that the metric gives numbers, and that a pair has the same value if its two classes are swapped."""
        self.before = [self.numbers("value", features) for features in self.draws]
        names = [measure.name for measure in self.metric.measures]
        for name in names:
            if all(values.get(name) is None for values in self.before):
                self.checked.breach("value", name, f"it gives no number for random features: {self.reasons.get(name)}")
        if self.metric.kind != "pair" or self.checked.broken:
            return
        tile = value(self.metric.function, self.statistics(self.draws[0]))
        for i, j in (~torch.isclose(tile, tile.T, rtol=1e-5, atol=0, equal_nan=True)).nonzero().tolist()[:1]:
            said = f"{float(tile[i, j]):.6g} for a pair, {float(tile[j, i]):.6g} for the same pair in the other order"
            for name in names:
                self.checked.breach("symmetry", name, said)

    def left_out(self) -> None:
        """Check that excluding rare classes gives the same numbers as features without these classes."""
        law = "left-out classes"
        if "validation" in self.metric.needs or any(not kind.per_class for kind in self.statistic_types):
            return  # validation counts include all classes; a metric of a statistic that is not per class gives None
        for features in self.draws:
            counts = torch.bincount(features["train_labels"])
            least = int(counts.sort().values[len(counts) // 3]) + 1
            few = change.without(features, counts[features["train_labels"]] < least)
            kept = self.statistics(features).keep(least)
            self.compare(law, [self.numbers(law, few)], [self.numbers(law, kept)], _changed)

    def tiles(self) -> None:
        """Check that a pair metric does not depend on how the classes are cut into tiles."""
        for size in _TILES if self.metric.kind == "pair" else ():
            cut = [self.numbers("tile size", features, tile_side=size) for features in self.draws]
            self.compare("tile size", self.before, cut, _changed)

    def simplex(self) -> None:
        """Check the declared limits at exact simplices."""
        for classes, dim in _SIMPLICES:
            limits = {measure.name: limit_at(measure.towards, classes, dim) for measure in self.metric.measures}
            values = self.numbers("simplex", change.simplex(classes, dim))
            self.compare("simplex", [limits], [values], _off_limit)

    def degenerate(self) -> None:
        """Check that the metric gives numbers or None for degenerate features, and does not fail."""
        law = "degenerate classes"
        for what, features in change.degenerate().items():
            self.numbers(law, features, about=f"{what}: ")
        about = "a label that is not in training: "
        after = self.numbers(law, change.unseen_label(self.draws[0]), about=about)
        for name, number in self.before[0].items():
            if number is not None and after.get(name) is None:
                self.checked.breach(law, name, f"{about}it gives no number: {self.reasons.get(name)}")


def _statistics_for(metric: Metric) -> list[type[Statistic]]:
    """Return the statistics that a metric has as parameters, from its own module or from installed plugins."""
    own = [each for each in globals_of(metric.function).values() if isinstance(each, type)]
    known = plugins().statistics | {
        each.name: each for each in own if issubclass(each, Statistic) and hasattr(each, "name")
    }
    return [known[need] for need in metric.needs if need in known]


def _first_apart(pairs: Pairs, *, rel: float = 1e-8, least: float = 1e-11) -> str:
    """Describe the first pair whose numbers differ, or of which only one is None; "" if there is none.

    Numbers are equal if they differ by at most a relative tolerance ``rel`` or an absolute tolerance ``least``.
    """
    for a, b in pairs:
        same = a is b if a is None or b is None else math.isclose(a, b, rel_tol=rel, abs_tol=least)
        if not same:
            return f"{_shown(a)} becomes {_shown(b)}"
    return ""


def _changed(pairs: Pairs, *_: Any) -> str:
    return _first_apart(pairs)


def _changed_by_rounding(pairs: Pairs, *_: Any) -> str:
    return _first_apart(pairs, rel=_FLOAT32, least=_FLOAT32 * 1e-2)


def _off_limit(pairs: Pairs, *_: Any) -> str:
    """Describe the first pair whose number differs from the declared limit; "" if there is none.

    A pair is the limit that a measurement declares for a simplex, and its number at this simplex. Pairs without a
    finite limit are skipped.
    """
    for limit, number in pairs:
        if limit is not None and math.isfinite(limit) and _first_apart([(limit, number)], rel=0, least=1e-7):
            return f"towards= is {_shown(limit)}, but the number at an exact simplex is {_shown(number)}"
    return ""


def _wrong_scale(pairs: Pairs, metric: Metric, measure: Measure) -> str:
    """Describe how a measurement scales with the embeddings, if this contradicts its declaration; otherwise return "".

    A pair is the number before and after all embeddings are multiplied by ``change.FACTOR``.
    """
    declared = metric.scale_of(measure)
    powers = {round(math.log(b / a, change.FACTOR), 6) if a and b and b / a > 0 else None for a, b in pairs}
    power = powers.pop() if len(powers) == 1 else None
    if declared is None:
        wrong = power is not None and not _by_chance(pairs)
    else:
        wrong = bool(_first_apart([(None if a is None else a * change.FACTOR**declared, b) for a, b in pairs]))
    if not wrong:
        return ""
    (a, b), found = pairs[0], None if power is None else power + 0.0
    return f"{_shown(a)} becomes {_shown(b)} with {change.FACTOR:g}·h: declare scale={found}, not {declared}"


def _wrong_translation(pairs: Pairs, metric: Metric, _: Measure) -> str:
    changed = _first_apart(pairs)
    if metric.translation:
        return f"{changed}: declare translation=False if this is intended" if changed else ""
    stays = not _first_apart(pairs, rel=1e-6) and not _by_chance(pairs)
    return f"it stays {_shown(pairs[0][0])}: declare translation=True, not False" if stays else ""


def _by_chance(pairs: Pairs) -> bool:
    """Whether numbers may obey a law only by chance: all are integers, such as counts, or all are equal."""
    known = [a for a, b in pairs if a is not None and b is not None]
    return all(a == round(a) for a in known) or len(set(known)) == 1


def _shown(number: float | None) -> str:
    return "nothing" if number is None else f"{number:.10g}"


Wrong = Callable[[Pairs, Metric, Measure], str]
"""A function that gets numbers before and after a change. It returns what is wrong with them, or "" if nothing is."""

_CHANGES: tuple[tuple[str, Callable[[Features], Features], Wrong], ...] = (
    ("scale", change.scaled, _wrong_scale),
    ("translation", change.moved, _wrong_translation),
    ("rotation", change.rotated, _changed),
    ("class order", change.relabelled, _changed),
    ("float32", change.rounded, _changed_by_rounding),
)
"""For each law about changed features: its name, the change, and the function that describes what is wrong."""
