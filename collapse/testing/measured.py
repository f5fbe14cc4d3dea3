"""Measure one metric on features, in the same way as ``collapse.measure`` measures a store."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from collapse.collection.features import collect_arrays
from collapse.measurement.evaluating import Found
from collapse.numerics.pairs import sweep
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.numerics.values import Values, copied
from collapse.plugin.guarding import Failed, tensors_in
from collapse.plugin.metrics import Metric
from collapse.plugin.parameters import globals_of
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.statistic import Statistic
from collapse.testing.changed_features import Features
from collapse.testing.laws import Checked

_N_PARAMS = 1000

Numbers = dict[str, float | None]


def statistics_for(metric: Metric) -> list[type[Statistic]]:
    """Return the statistics that a metric asks for: installed ones, or those of its own module."""
    own = globals_of(metric.function).values()
    kinds = [each for each in own if isinstance(each, type) and issubclass(each, Statistic)]
    known = {each.name: each for each in [*kinds, *plugins().statistics.values()] if hasattr(each, "name")}
    return [known[need] for need in metric.needs if need in known]


@dataclass
class Measured:
    """One metric, measured on features."""

    metric: Metric

    def __post_init__(self) -> None:
        self.kinds = statistics_for(self.metric)
        self.names = [measure.name for measure in self.metric.measures]
        self.exponents = {measure.name: self.metric.scale_of(measure) for measure in self.metric.measures}
        self._reasons: dict[str, str] = {}
        self._made: dict[int, tuple[Features, EmbeddingStatistics]] = {}  # keeps the features alive, so ids stay unique

    def reason(self, name: str) -> str:
        """Return the last note on why a measurement had no number."""
        return self._reasons.get(name, "no reason is given")

    def statistics(self, features: Features) -> EmbeddingStatistics:
        """Return the statistics of a store of these features; cached, because several laws use the same features."""
        if id(features) not in self._made:
            s = collect_arrays(
                features["train_features"],
                features["train_labels"],
                features["classifier"],
                bias=features.get("classifier_bias"),
                validation_features=features.get("validation_features"),
                validation_labels=features.get("validation_labels"),
                statistics=self.kinds,
            ).statistics(fresh=True)
            extra = {name: dict(tensors) for name, tensors in s.extra.items()}
            self._made[id(features)] = features, replace(s, n_params=_N_PARAMS, extra=extra)
        return self._made[id(features)][1]

    def measured(self, s: EmbeddingStatistics) -> tuple[Numbers, dict[str, str]]:
        """Return values by measurement, and failures by measurement."""
        lent = Values(lambda: copied(s))
        found, before = Found(lent), contents(lent.s)
        missing = [need for need in self.metric.needs if not s.has(need)]
        lacking = f"nothing gives {missing[0]}" if missing else None
        found.measure([(self.metric, self.metric.measures)], {id(self.metric): lacking}, None)
        if written := differing(before, contents(lent.s)):
            error = Failed(self.metric.function, f"it wrote to {', '.join(written)}, which others read too")
            found.failed(self.metric, self.metric.measures, error)
        self._reasons |= {note.measurement: note.text for note in found.notes}
        values = {name: None if value is None else float(value) for name, value in found.values.items()}
        return values, {note.measurement: note.text for note in found.notes if note.kind == "error"}

    def values(self, features: Features, checked: Checked, law: str, about: str = "") -> Numbers:
        """Return values by measurement; a failure is a breach of the given law."""
        values, failed = self.measured(self.statistics(features))
        for name, text in failed.items():
            checked.breach(law, name, about + text)
        return values

    def swept(self, s: EmbeddingStatistics, **options: Any) -> Numbers:
        """Return the values of a pair metric from one sweep."""
        (swept,) = sweep(s, [(self.metric, self.metric.measures)], **options).metrics
        return {} if swept.failed else {name: swept.all.number(name) for name in self.names}


def contents(s: EmbeddingStatistics) -> dict[str, Tensor]:
    """Return copies of the tensors of statistics, which reveal what was written through NumPy."""
    return {name: tensor.detach().clone() for name, tensor in tensors_in("s", s)}


def differing(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> list[str]:
    """Return the names under which tensors differ; NaN equals NaN."""
    return [
        name for name, old in before.items() if not torch.equal(old.nan_to_num(0.123), after[name].nan_to_num(0.123))
    ]
