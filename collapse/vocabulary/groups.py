"""Measure groups of classes, which are formed by count, by regular expressions for token texts, or by a file.

Shapes: C classes.
"""

import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from collapse.core.paths import expanded
from collapse.core.progress import Report, shows_progress
from collapse.errors import CollapseError, UsageError, counted
from collapse.measurement.measuring import Measurable, measure_store, open_measurable
from collapse.measurement.output import RESULTS
from collapse.measurement.results import Results
from collapse.plugin.registry import Wanted
from collapse.stores.layer_names import TOP
from collapse.stores.store import Store
from collapse.vocabulary.chosen_classes import Chosen, choose

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger("collapse")

_BINS = 4


@shows_progress
def measure_groups(
    store: Measurable,
    by: str | Path | Iterable[str] = "count",
    *,
    layer: str = TOP,
    metrics: Wanted = None,
    min_count: int = 1,
    tokenizer: Any = None,
    progress: Report | None = None,
    **options: Any,
) -> Results:
    """Measure groups of a store's classes, as ``collapse measure --group-by`` does.

    A group is measured like a store that has only these classes: μ̄ is the mean over the group. Validation measurements
    use the samples whose label is in the group, and have no standard error.

    Args:
        store: A store or its folder, or an :class:`collapse.EmbeddingStatistics`.
        by: ``"count"`` for up to four groups of about equally many classes, from the rarest to the most frequent. Or
            one or more regular expressions; each makes a group of the classes whose text contains a match. Or a .csv,
            .json or .parquet file with the columns ``id`` and ``group``.
        layer: The layer of a store.
        metrics, min_count: As in :func:`collapse.measure`.
        tokenizer: As in :func:`collapse.tokens`; only for regular expressions.
        progress: Called as progress(what, done, total[, note]).
        **options: ``classes_of`` and ``device``, as in :func:`collapse.measure`.

    Returns:
        A row per group, with its name in the column ``group``.

    Raises:
        UsageError: A regular expression is invalid, the texts of tokens are unknown, a file lacks a column, or no group
            has two classes. (If only some groups have fewer than two classes, they are skipped with a warning.)
        CollapseError: As in :func:`collapse.measure`.

    >>> from collapse.testing import statistics_of
    >>> rows = measure_groups(statistics_of([[1.0], [2.0], [4.0], [7.0]]), metrics="nc2.norm").rows
    >>> [(row.group, row.classes) for row in rows]  # all counts are equal, so there is one group
    [('N_c = 1', 4)]
    """
    patterns, opened = grouping(by), open_measurable(store)
    s = (opened.statistics() if isinstance(opened, Store) else opened).keep(min_count)
    if patterns is None:
        groups = _by_count(s.classes, s.counts)
    elif isinstance(patterns, list):
        groups = _by_text(patterns, choose(opened, tokenizer=tokenizer, min_count=min_count, every=True))
    else:
        known, of_group = s.classes.cpu().numpy(), patterns.groupby("group", sort=False)["id"]
        groups = {str(name): s.classes[torch.from_numpy(np.isin(known, ids.to_numpy()))] for name, ids in of_group}
    for name, ids in [*groups.items()]:
        if len(ids) < 2:
            few = f"the group {name} has {counted(len(ids), 'class')}, but a measurement needs two"
            del groups[name]
            if not groups:
                raise UsageError(f"{few}: give another --group-by")
            log.warning("%s: it is skipped", few)
    how = {"layer": layer, "metrics": metrics, "min_count": min_count, "progress": progress, **options}
    return Results(measure_store(opened, group=each, **how) for each in groups.items())


def grouping(by: str | Path | Iterable[str]) -> "pd.DataFrame | list[re.Pattern[str]] | None":
    """Read ``--group-by``. Return the table in a file, a list of regular expressions, or None for ``count``.

    Raises:
        UsageError: A file lacks a column, a regular expression is invalid, or ``count`` or a file is combined with
            another value.
        CollapseError: A file cannot be read.
    """
    names = [str(by)] if isinstance(by, str | Path) else list(by)
    alone = [each for each in names if each == "count" or Path(each).suffix.lower() in RESULTS]
    if alone and len(names) > 1:
        raise UsageError(
            f"--group-by {alone[0]} cannot be combined with another --group-by: give it alone, or give only "
            "regular expressions"
        )
    if alone == ["count"]:
        return None
    if alone:
        if not expanded(alone[0]).exists():
            raise CollapseError(
                f"there is no file {alone[0]}: write it with collapse tokens STORE --top 100000 --output "
                f"{alone[0]}, and add the column named group"
            )
        frame = Results.read(expanded(alone[0])).frame()
        for name in ("id", "group"):
            if name not in frame:
                raise UsageError(
                    f"{names[0]} has no column {name!r}: write the file with collapse tokens STORE --output FILE, and "
                    "add the column group"
                )
        return frame
    try:
        return [re.compile(each) for each in names]
    except re.error as error:
        raise UsageError(
            f"{error.pattern!r} is not a regular expression: {error}. Correct it, or escape special characters with a "
            "backslash"
        ) from error


def _by_count(ids: Tensor, counts: Tensor) -> dict[str, Tensor]:
    """Split classes at the quartiles of their counts, and name each group by its counts.

    Classes of equal count are in the same group. A group has at least two classes.
    """
    rising = counts.sort().values
    borders = rising[torch.arange(1, _BINS) * len(rising) // _BINS - 1].unique()
    groups, last = {}, 0
    for border in [*borders[borders < rising[-2]], rising[-1]]:
        inside = (counts > last) & (counts <= border)
        if inside.sum() > 1:
            least, most = (f"{int(each):,}" for each in counts[inside].aminmax())
            groups[f"N_c = {least}" if least == most else f"N_c = {least}–{most}"] = ids[inside]
            last = border
    return groups


def _by_text(patterns: list[re.Pattern[str]], chosen: Chosen) -> dict[str, Tensor]:
    texts = {each: chosen.texts.text(each) for each in chosen.texts.classes}
    if None in texts.values():
        raise UsageError(
            f"--group-by needs the texts of tokens, and they are unknown ({'; '.join(chosen.notes)}): give --tokenizer"
        )
    found = {each.pattern: [token for token, text in texts.items() if each.search(text or "")] for each in patterns}
    return {pattern: torch.tensor(tokens, dtype=torch.int64) for pattern, tokens in found.items()}
