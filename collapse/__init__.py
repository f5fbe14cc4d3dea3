"""collapse: measure neural collapse in causal language models.

The names below are public. Each is imported on first access, so that ``import collapse`` is fast and imports neither
torch nor transformers.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapse.version import VERSION

__version__ = VERSION

if TYPE_CHECKING:
    from collapse.collection.arrays import collect_arrays as collect_arrays
    from collapse.collection.collecting import collect as collect
    from collapse.collection.measuring_any import measure as measure
    from collapse.collection.measuring_layers import measure_layers as measure_layers
    from collapse.collection.measuring_layers import trajectory as trajectory
    from collapse.collection.null_baselines import measure_with_nulls as measure_with_nulls
    from collapse.errors import CollapseError as CollapseError
    from collapse.hub.opening import load as load
    from collapse.hub.sharing import pull as pull
    from collapse.hub.sharing import push as push
    from collapse.inputs.packing_once import pack as pack
    from collapse.inputs.samples import Samples as Samples
    from collapse.inputs.source import Phase as Phase
    from collapse.inputs.source import Source as Source
    from collapse.measurement.analyzing import analyze as analyze
    from collapse.measurement.comparing import compare as compare
    from collapse.measurement.converging import convergence as convergence
    from collapse.measurement.drawing import draw as draw
    from collapse.measurement.drawing import plot as plot
    from collapse.measurement.listing import metrics as metrics
    from collapse.measurement.measuring import vectors as vectors
    from collapse.measurement.results import Note as Note
    from collapse.measurement.results import Results as Results
    from collapse.measurement.results import Row as Row
    from collapse.measurement.results import join as join
    from collapse.measurement.table import Table as Table
    from collapse.monitoring.lightning_callback import lightning_callback as lightning_callback
    from collapse.monitoring.monitor import Monitor as Monitor
    from collapse.monitoring.trainer_callback import CollapseCallback as CollapseCallback
    from collapse.numerics.statistics import EmbeddingStatistics as EmbeddingStatistics
    from collapse.numerics.statistics import ValidationStatistics as ValidationStatistics
    from collapse.numerics.statistics import cov as cov
    from collapse.numerics.statistics import row_cosine as row_cosine
    from collapse.numerics.validation_totals import ValidationTotals as ValidationTotals
    from collapse.plugin.figures import Drawing as Drawing
    from collapse.plugin.figures import figure as figure
    from collapse.plugin.hookspecs import hookimpl as hookimpl
    from collapse.plugin.measures import CoV as CoV
    from collapse.plugin.measures import LogMeanExp as LogMeanExp
    from collapse.plugin.measures import Max as Max
    from collapse.plugin.measures import Mean as Mean
    from collapse.plugin.measures import MeanLog as MeanLog
    from collapse.plugin.measures import Measure as Measure
    from collapse.plugin.measures import Min as Min
    from collapse.plugin.measures import Std as Std
    from collapse.plugin.metrics import Noted as Noted
    from collapse.plugin.metrics import analysis as analysis
    from collapse.plugin.metrics import class_metric as class_metric
    from collapse.plugin.metrics import derived as derived
    from collapse.plugin.metrics import metric as metric
    from collapse.plugin.metrics import pair_derived as pair_derived
    from collapse.plugin.metrics import pair_metric as pair_metric
    from collapse.plugin.statistic import Batch as Batch
    from collapse.plugin.statistic import State as State
    from collapse.plugin.statistic import Statistic as Statistic
    from collapse.plugin.statistic import ValidationBatch as ValidationBatch
    from collapse.plugin.statistic import ValidationStatistic as ValidationStatistic
    from collapse.showing.report import report as report
    from collapse.showing.saving import SavedFigure as SavedFigure
    from collapse.showing.saving import save_figures as save_figures
    from collapse.stores.merging import merge as merge
    from collapse.stores.shards import Part as Part
    from collapse.stores.store import Store as Store
    from collapse.vocabulary.confusable import confusable_pairs as confusable_pairs
    from collapse.vocabulary.confusable import neighbours as neighbours
    from collapse.vocabulary.groups import measure_groups as measure_groups
    from collapse.vocabulary.matching import frequency_matched as frequency_matched
    from collapse.vocabulary.token_table import tokens as tokens


def _modules() -> dict[str, str]:
    """Return the module of each public name, read from the imports above, which only type checkers run."""
    block = next(each for each in ast.parse(Path(__file__).read_text("utf-8")).body if isinstance(each, ast.If))
    imports = [each for each in block.body if isinstance(each, ast.ImportFrom)]
    return {alias.name: str(each.module) for each in imports for alias in each.names}


_MODULES = _modules()
if not TYPE_CHECKING:
    __all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'collapse' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_MODULES)
