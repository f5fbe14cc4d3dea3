"""collapse: neural collapse in causal language models, measured.

The names below are the public ones; each is loaded when first asked for, so that ``import collapse`` is instant and
loads neither torch nor transformers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from collapse.errors import CollapseError
from collapse.hookspecs import hookimpl
from collapse.metrics import (
    CoV,
    LogMeanExp,
    Mean,
    MeanLog,
    Measure,
    Noted,
    Std,
    analysis,
    class_metric,
    metric,
    pair_metric,
)

if TYPE_CHECKING:
    from collapse.accumulate import Batch, Side, Statistic
    from collapse.collecting import collect
    from collapse.measuring import measure, vectors
    from collapse.merging import merge
    from collapse.results import Note, Results, Row, Table
    from collapse.statistics import EmbeddingStatistics, ValidationStatistics, cosine, cov
    from collapse.store import Store, load
    from collapse.tiles import Pair

__version__ = "0.1.0"

_LAZY = {
    "Batch": "accumulate",
    "EmbeddingStatistics": "statistics",
    "Note": "results",
    "Pair": "tiles",
    "Results": "results",
    "Row": "results",
    "Side": "accumulate",
    "Statistic": "accumulate",
    "Store": "store",
    "Table": "results",
    "ValidationStatistics": "statistics",
    "collect": "collecting",
    "cosine": "statistics",
    "cov": "statistics",
    "load": "store",
    "measure": "measuring",
    "merge": "merging",
    "vectors": "measuring",
}

__all__ = [
    "Batch",
    "CoV",
    "CollapseError",
    "EmbeddingStatistics",
    "LogMeanExp",
    "Mean",
    "MeanLog",
    "Measure",
    "Note",
    "Noted",
    "Pair",
    "Results",
    "Row",
    "Side",
    "Statistic",
    "Std",
    "Store",
    "Table",
    "ValidationStatistics",
    "analysis",
    "class_metric",
    "collect",
    "cosine",
    "cov",
    "hookimpl",
    "load",
    "measure",
    "merge",
    "metric",
    "pair_metric",
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
