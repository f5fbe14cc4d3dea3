"""collapse: measure neural collapse in causal language models.

The names below are public. Each is imported on first access, so that ``import collapse`` is fast and imports neither
torch nor transformers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from collapse.errors import CollapseError
from collapse.plugin.figures import Drawing, figure
from collapse.plugin.hookspecs import API, hookimpl
from collapse.plugin.metrics import (
    CoV,
    LogMeanExp,
    Max,
    Mean,
    MeanLog,
    Measure,
    Min,
    Noted,
    Std,
    analysis,
    class_metric,
    derived,
    metric,
    pair_derived,
    pair_metric,
)
from collapse.version import VERSION

if TYPE_CHECKING:
    from collapse.collection.arrays import collect_arrays
    from collapse.collection.collecting import collect
    from collapse.collection.loaded import collect_loaded
    from collapse.collection.measuring_arrays import measure
    from collapse.collection.nulls import measure_with_nulls
    from collapse.hub.opening import load
    from collapse.hub.sharing import pull, push, push_to_hub
    from collapse.measurement.analyzing import analyze, permutation
    from collapse.measurement.class_values import vectors
    from collapse.measurement.converging import convergence
    from collapse.measurement.drawing import draw
    from collapse.measurement.results import Note, Results, Row, join
    from collapse.measurement.side_by_side import compare
    from collapse.measurement.table import Table
    from collapse.numerics.statistics import EmbeddingStatistics, ValidationStatistics, cov, row_cosine
    from collapse.numerics.values import ValidationTotals
    from collapse.plugin.batch import Batch, ValidationBatch
    from collapse.plugin.statistic import State, Statistic, ValidationStatistic
    from collapse.showing.report import report
    from collapse.showing.saving import SavedFigure, save_figures
    from collapse.stores.merging import merge
    from collapse.stores.shards import Part
    from collapse.stores.store import Store
    from collapse.vocabulary.confusable import confusable_pairs, neighbours
    from collapse.vocabulary.matching import frequency_matched
    from collapse.vocabulary.token_table import tokens

__version__ = VERSION

_LAZY = {
    "Batch": "plugin.batch",
    "EmbeddingStatistics": "numerics.statistics",
    "Note": "measurement.results",
    "Part": "stores.shards",
    "Results": "measurement.results",
    "Row": "measurement.results",
    "SavedFigure": "showing.saving",
    "State": "plugin.statistic",
    "Statistic": "plugin.statistic",
    "Store": "stores.store",
    "Table": "measurement.table",
    "analyze": "measurement.analyzing",
    "permutation": "measurement.analyzing",
    "ValidationBatch": "plugin.batch",
    "ValidationStatistic": "plugin.statistic",
    "ValidationStatistics": "numerics.statistics",
    "ValidationTotals": "numerics.values",
    "collect": "collection.collecting",
    "collect_arrays": "collection.arrays",
    "collect_loaded": "collection.loaded",
    "compare": "measurement.side_by_side",
    "confusable_pairs": "vocabulary.confusable",
    "convergence": "measurement.converging",
    "cov": "numerics.statistics",
    "draw": "measurement.drawing",
    "frequency_matched": "vocabulary.matching",
    "join": "measurement.results",
    "load": "hub.opening",
    "measure": "collection.measuring_arrays",
    "measure_with_nulls": "collection.nulls",
    "merge": "stores.merging",
    "neighbours": "vocabulary.confusable",
    "pull": "hub.sharing",
    "push": "hub.sharing",
    "push_to_hub": "hub.sharing",
    "report": "showing.report",
    "row_cosine": "numerics.statistics",
    "save_figures": "showing.saving",
    "tokens": "vocabulary.token_table",
    "vectors": "measurement.class_values",
}

__all__ = [
    "API",
    "Batch",
    "CoV",
    "CollapseError",
    "Drawing",
    "EmbeddingStatistics",
    "LogMeanExp",
    "Max",
    "Mean",
    "MeanLog",
    "Measure",
    "Min",
    "Note",
    "Noted",
    "Part",
    "Results",
    "Row",
    "SavedFigure",
    "State",
    "Statistic",
    "Std",
    "Store",
    "Table",
    "ValidationBatch",
    "ValidationStatistic",
    "ValidationStatistics",
    "ValidationTotals",
    "analysis",
    "analyze",
    "class_metric",
    "collect",
    "collect_arrays",
    "collect_loaded",
    "compare",
    "confusable_pairs",
    "convergence",
    "cov",
    "derived",
    "draw",
    "figure",
    "frequency_matched",
    "hookimpl",
    "join",
    "load",
    "measure",
    "measure_with_nulls",
    "merge",
    "metric",
    "neighbours",
    "pair_derived",
    "pair_metric",
    "permutation",
    "pull",
    "push",
    "push_to_hub",
    "report",
    "row_cosine",
    "save_figures",
    "tokens",
    "vectors",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'collapse' has no attribute {name!r}")
    value = getattr(import_module(f"collapse.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
