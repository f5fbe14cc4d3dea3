"""Measure one metric on features, in the same way as ``collapse.measure`` measures a store."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from collapse.collection.features import collect_arrays
from collapse.errors import near_names
from collapse.measurement.evaluating import Found
from collapse.numerics.lending import Lender, copied, tensors_of
from collapse.numerics.pairs import sweep
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.plugin.guarding import Wrote
from collapse.plugin.metrics import Metric
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.registry import COLLECTED
from collapse.plugin.statistic import Statistic
from collapse.testing.changed_features import Features
from collapse.testing.contents import contents, differing
from collapse.testing.laws import Checked

_N_PARAMS = 1000


@dataclass
class Measured:
    """One metric, measured on features."""

    metric: Metric
    kinds: Sequence[type[Statistic]]

    def __post_init__(self) -> None:
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

    def lent(self, s: EmbeddingStatistics) -> Lender:
        """Return a lender of the statistics: a plugin gets copies, and writes to them are detected."""
        return Lender(lambda: copied(s), self.metric.needs)

    def measured(self, s: EmbeddingStatistics) -> tuple[dict[str, float | None], dict[str, str]]:
        """Return values by measurement, and failures by measurement."""
        lender = self.lent(s)
        found, before = Found(lender), contents(tensors_of(lender.s, self.metric.needs))
        missing = [need for need in self.metric.needs if not s.has(need)]
        near = near_names(missing[0], {*COLLECTED, *plugins().statistics}) if missing else ""
        lacking = f"nothing gives {missing[0]} ({near}): pass a statistic as statistics=[…]" if missing else None
        found.measure([(self.metric, self.metric.measures)], {id(self.metric): lacking}, None)
        if written := differing(before, tensors_of(lender.s, self.metric.needs)):
            found.failed(self.metric, self.metric.measures, Wrote(written))
        self._reasons |= {note.measurement: note.text for note in found.notes}
        values = {name: None if value is None else float(value) for name, value in found.values.items()}
        return values, {note.measurement: note.text for note in found.notes if note.kind == "error"}

    def values(self, features: Features, checked: Checked, law: str, about: str = "") -> dict[str, float | None]:
        """Return values by measurement; a failure is a breach of the given law."""
        values, failed = self.measured(self.statistics(features))
        for name, text in failed.items():
            checked.breach(law, name, about + text)
        return values

    def swept(self, s: EmbeddingStatistics, **options: Any) -> dict[str, float | None]:
        """Return the values of a pair metric from one sweep, without the factors of ``times``."""
        (swept,) = sweep(s, [(self.metric, self.metric.measures)], **options).metrics
        return {} if isinstance(swept, Exception) else {name: swept.taken.number(name) for name in swept.taken.numbers}
