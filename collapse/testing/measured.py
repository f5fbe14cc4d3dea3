"""One metric measured of features, as ``collapse.measure`` measures all of them of a store."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from collapse.accumulate import Statistic
from collapse.errors import near_names
from collapse.features import collect_features
from collapse.found import Found
from collapse.lending import Lender, copied
from collapse.metrics import Metric
from collapse.pairs import sweep
from collapse.plugin_manager import COLLECTED, plugins
from collapse.statistics import EmbeddingStatistics
from collapse.testing.changed_features import Features
from collapse.testing.laws import Checked

_N_PARAMS = 1000


@dataclass
class Measured:
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

    def lent(self, s: EmbeddingStatistics) -> Lender:
        """The statistics as plugins are lent them: what one writes to is a copy, and found."""
        return Lender(lambda: copied(s), self.metric.needs)

    def measured(self, s: EmbeddingStatistics) -> tuple[dict[str, float | None], dict[str, str]]:
        """Values by measurement, and what failed by measurement."""
        found = Found(self.lent(s), closely=True)
        missing = [need for need in self.metric.needs if not s.has(need)]
        near = near_names(missing[0], {*COLLECTED, *plugins().statistics}) if missing else ""
        lacking = f"nothing gives {missing[0]} ({near}): pass a statistic as statistics=[…]" if missing else None
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
