"""Check a metric against the laws that the built-in metrics are held to.

Each law compares the metric's measurements of random features with those of the same features after a change: all
embeddings scaled, moved or rotated, classes given other ids, rare classes left out. A law that a metric does not
declare must really be broken, so that tables and docs say no less than what is true.
"""

import math
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from collapse.accumulate import Statistic
from collapse.errors import CollapseError
from collapse.features import collect_features
from collapse.found import Found
from collapse.lending import Lender, copied
from collapse.metrics import Metric, declaration, limit_at
from collapse.pairs import sweep
from collapse.plugin_manager import plugins
from collapse.statistics import EmbeddingStatistics
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
)
from collapse.testing.laws import Checked, close, shown

LAWS = (
    "value",
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
_N_PARAMS = 1000
_FLOAT32 = 2e-3  # numbers of a metric that loses no digits move by less when embeddings are rounded to float32


def check_metric(
    function: Callable[..., Any],
    *,
    statistics: Sequence[type[Statistic]] = (),
    without: Collection[str] = (),
) -> None:
    """Check a declared metric against every law that the built-in metrics are held to.

    Args:
        function: Decorated with ``@metric``, ``@class_metric`` or ``@pair_metric``.
        statistics: Plugin statistics that it needs and that are not installed.
        without: Names of laws that are not looked at.

    Raises:
        LawBroken: Which laws are broken, by which measurement, and with which numbers.
        CollapseError: The function is not declared, or needs what no statistic gives.
    """
    metric = declaration(function)
    if not isinstance(metric, Metric):
        raise CollapseError(f"{metric.name} is an analysis: use check_analysis")
    known = {each.name: each for each in [*plugins().statistics.values(), *statistics]}
    of = _Measured(metric, [known[need] for need in metric.needs if need in known])
    draws = [draw(*shape, seed=seed) for seed, shape in enumerate(_DRAWS)]
    with Checked(LAWS, without) as checked:
        before = [of.values(features, checked, "value") for features in draws]
        for name in of.names:
            if not any(values.get(name) is not None for values in before):
                checked.breach("value", name, f"it gives no number of random features: {of.reason(name)}")
        for law, change, declared in (
            ("scale", scaled, True),
            ("translation", moved, metric.translation),
            ("rotation", rotated, metric.rotation),
            ("class order", relabelled, True),
        ):
            after = [of.values(change(features), checked, law) for features in draws]
            for name in of.names:
                pairs = [(a.get(name), b.get(name)) for a, b in zip(before, after, strict=True)]
                _compare(
                    checked, law, name, pairs, exponent=of.exponents[name] if law == "scale" else 0.0, holds=declared
                )
        _check_left_out(checked, of, draws)
        _check_tiles(checked, of, draws)
        _check_float32(checked, of, draws, before)
        _check_simplex(checked, of)
        for name, features in degenerate().items():
            of.values(features, checked, "degenerate classes", f"{name}: ")


def _compare(
    checked: Checked,
    law: str,
    name: str,
    pairs: Sequence[tuple[float | None, float | None]],
    *,
    exponent: float | None,
    holds: bool,
) -> None:
    """Compare a measurement before and after a change with what is declared of it."""
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    if exponent is None or not holds:
        powers = {round(math.log(b / a, FACTOR), 6) if a and b / a > 0 else None for a, b in known}
        moved = [(a, b) for a, b in known if not close(a, b, rel=1e-6)]
        if known and not moved:
            said = "0.0" if law == "scale" else "True"
            checked.breach(law, name, f"it stays {shown(known[0][0])}, which is more than it declares: {law}={said}")
        elif law == "scale" and len(known) > 1 and len(powers) == 1 and None not in powers:
            checked.breach(law, name, f"it follows a power of the scale, and declares none: scale={powers.pop()}")
        return
    factor = FACTOR**exponent
    for a, b in pairs:
        expected = None if a is None else a * factor
        if not close(expected, b):
            change = f"{shown(a)} becomes {shown(b)}"
            wanted = f", and scale={exponent:g} says {shown(expected)}" if law == "scale" else ""
            checked.breach(law, name, change + wanted)
            return


def _check_left_out(checked: Checked, of: "_Measured", draws: Sequence[Features]) -> None:
    """Leaving rare classes out must give the numbers of features that never had them."""
    if "validation" in of.metric.needs or of.kinds or not checked.looks_at("left-out classes"):
        return  # statistics of plugins are sums over all classes, and validation counts stay as they are
    for features in draws:
        counts = torch.bincount(features["train_labels"])
        least = int(counts.sort().values[len(counts) // 3]) + 1
        kept = counts[features["train_labels"]] >= least
        few = {name: tensor for name, tensor in features.items() if not name.startswith("validation")}
        few |= {name: few[name][kept] for name in ("train_features", "train_labels")}
        after, before = of.measured(of.statistics(features).keep(least))[0], of.values(few, checked, "left-out classes")
        for name in of.names:
            if not close(before.get(name), after.get(name)):
                said = (
                    f"{shown(before.get(name))} without rare classes, {shown(after.get(name))} where they are left out"
                )
                checked.breach("left-out classes", name, said)


def _check_tiles(checked: Checked, of: "_Measured", draws: Sequence[Features]) -> None:
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


def _check_float32(
    checked: Checked, of: "_Measured", draws: Sequence[Features], before: Sequence[dict[str, float | None]]
) -> None:
    """Embeddings rounded to float32, and the sweep in float32, must give the number that float64 gives."""
    for features, values in zip(draws, before, strict=True):
        rounded = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in features.items()}
        found = [("of float32 embeddings", of.values(rounded, checked, "float32"))]
        if of.metric.kind == "pair" and not any(measure.times for measure in of.metric.measures):
            found.append(("in a float32 sweep", of.swept(of.statistics(features), dtype=torch.float32)))
        for what, after in found:
            for name in of.names:
                a, b = values.get(name), after.get(name)
                if not close(a, b, rel=_FLOAT32, least=_FLOAT32 * 1e-2):
                    checked.breach("float32", name, f"{shown(a)} in float64, {shown(b)} {what}")


def _check_simplex(checked: Checked, of: "_Measured") -> None:
    classes = dim = 7
    values = of.values(simplex(classes), checked, "simplex")
    for measure in of.metric.measures:
        towards = limit_at(measure.towards, classes, dim)
        if towards is None or math.isinf(towards):  # an infinite limit is reached by no number
            continue
        if not close(towards, values.get(measure.name), rel=0.0, least=1e-7):
            said = f"{shown(values.get(measure.name))} at an exact simplex, and towards= says {shown(towards)}"
            checked.breach("simplex", measure.name, said)


@dataclass
class _Measured:
    """One metric, measured of features."""

    metric: Metric
    kinds: Sequence[type[Statistic]]

    def __post_init__(self) -> None:
        self.names = [measure.name for measure in self.metric.measures]
        self.exponents = {measure.name: self.metric.scale_of(measure) for measure in self.metric.measures}
        self._reasons: dict[str, str] = {}
        self._made: dict[int, tuple[Features, EmbeddingStatistics]] = {}  # the features too: an id is of what lives

    def reason(self, name: str) -> str:
        """Why a measurement had no number, as the last note says."""
        return self._reasons.get(name, "no reason is given")

    def statistics(self, features: Features) -> EmbeddingStatistics:
        """What a store of these features gives to metrics; kept, since several laws look at the same features."""
        if id(features) not in self._made:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "features.safetensors"
                save_file({name: tensor.contiguous().clone() for name, tensor in features.items()}, file)
                s = collect_features(file, kinds=self.kinds).statistics(fresh=True)
            extra = {name: dict(tensors) for name, tensors in s.extra.items()}
            self._made[id(features)] = features, replace(s, n_params=_N_PARAMS, extra=extra)
        return self._made[id(features)][1]

    def measured(self, s: EmbeddingStatistics) -> tuple[dict[str, float | None], dict[str, str]]:
        """Values by measurement, and what failed by measurement."""
        found = Found(Lender(lambda: copied(s), self.metric.needs), closely=True)
        missing = [need for need in self.metric.needs if not s.has(need)]
        lacking = f"nothing gives {', '.join(missing)}: pass the statistic as statistics=[…]" if missing else None
        found.measure([(self.metric, self.metric.measures)], {id(self.metric): lacking}, None)
        self._reasons |= {note.measurement: note.text for note in found.notes}
        values = {name: None if value is None else float(value) for name, value in found.values.items()}
        return values, {note.measurement: note.text for note in found.notes if note.kind == "error"}

    def values(self, features: Features, checked: Checked, law: str, about: str = "") -> dict[str, float | None]:
        """Values by measurement; a failure is a breach of the law that is looked at."""
        values, failed = self.measured(self.statistics(features))
        for name, text in failed.items():
            checked.breach(law, name, about + text)
        return values

    def swept(self, s: EmbeddingStatistics, **options: Any) -> dict[str, float | None]:
        """Values of a pair metric from one sweep, without the factors of ``times``."""
        (swept,) = sweep(s, [(self.metric, self.metric.measures)], **options).metrics
        return {} if isinstance(swept, Exception) else dict(swept.values)
