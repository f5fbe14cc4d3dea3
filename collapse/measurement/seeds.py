"""The yardstick of a difference: how much measurements vary between models that differ in their seed only."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collapse.errors import CollapseError, PluginError, UsageError, near_names
from collapse.measurement.comparing import mixed
from collapse.measurement.results import Results
from collapse.plugin.guarding import Guest, described
from collapse.plugin.plugin_manager import plugins

PAPER = "paper"
"""Name of the published seeds, which the zoo offers; without it there is no yardstick by default."""


@dataclass(frozen=True)
class Spread:
    """Standard deviations over models that differ in their seed only.

    Attributes:
        deviations: Standard deviation (n − 1) by measurement.
        notes: What the models are, and why they may be no yardstick.
    """

    deviations: Mapping[str, float]
    notes: list[str]


def spread_of_seeds(seeds: Results | str | Path | None) -> Spread | None:
    """Return the spread of the measurements in a table of seeds.

    Args:
        seeds: The table, its file, or a name that a plugin offers (``collapse_seeds``); None for none.

    Raises:
        UsageError: There is no such name or file.
        CollapseError: The table has fewer than two rows, or cannot be read.
    """
    if seeds is None:
        return None
    offered = dict(reversed([pair for plugin in plugins().seeds for pair in _offered(*plugin)]))
    if isinstance(seeds, str) and seeds in offered:
        called, frame = offered[seeds]
    elif seeds == PAPER:
        return None
    elif isinstance(seeds, str | Path):
        if isinstance(seeds, str) and not Path(seeds).suffix:
            names = near_names(seeds, offered) if offered else "no plugin offers one"
            raise UsageError(f"no table of seeds is called {seeds!r}; {names}; or give a .csv, .json or .parquet file")
        called, frame = str(seeds), Results.read(seeds).frame()
    else:
        called, frame = "the table given", (seeds if isinstance(seeds, Results) else Results(seeds)).frame()
    if len(frame) < 2:
        raise CollapseError(f"the seeds of {called} are {len(frame)} row: a spread needs two models or more")
    deviations = {name: float(frame[name].std()) for name in plugins().measurements() if _is_numeric(frame, name)}
    note = f"seeds_sd: standard deviation over {len(frame)} models that differ in their seed only ({called})"
    remarks = [f"seeds: {remark}" for remark in mixed(frame.to_dict("records"))]
    return Spread({name: each for name, each in deviations.items() if math.isfinite(each)}, [note, *remarks])


def _is_numeric(frame: Any, name: str) -> bool:
    return name in frame and frame[name].dtype.kind in "iuf"


def _offered(plugin: str, hook: Any) -> list[tuple[str, tuple[str, Any]]]:
    """Return the tables that a plugin offers, by name, each with its description."""
    try:
        with Guest():
            return [
                (name, ((make.__doc__ or name).split("\n")[0].rstrip("."), make())) for name, make in hook().items()
            ]
    except Exception as error:
        raise PluginError(f"plugin {plugin}: collapse_seeds() raised {described(error)}") from error
