"""Open or collect the store of an out-of-distribution text.

NC5 compares this text with the text of another store of the same model.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collapse.collection.collecting import collect
from collapse.core.paths import near_folders
from collapse.core.progress import Report
from collapse.errors import UsageError
from collapse.hub.corpus import find_corpus
from collapse.hub.textfiles import KINDS, text_names
from collapse.inputs.features import is_features_file
from collapse.inputs.tasks import TASKS
from collapse.measurement.measuring import open_measurable
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.stores.manifest import is_store, shape_of
from collapse.stores.store import Store

_OF_ONE_TEXT = (
    *("text", "split", "validation_text", "validation_split", "max_validation_chunks"),
    *("data", "validation_data", "recollect"),
)
"""Options of a collection that do not apply to the out-of-distribution text."""


def check_ood(model: Any, ood_text: Any, options: Mapping[str, Any]) -> None:
    """Check that an out-of-distribution text exists, before a collection; for arguments see :func:`open_ood`.

    Raises:
        UsageError: There is no such file.
        CollapseError: The Hub cannot be reached.
    """
    names = _names(ood_text)
    is_model = isinstance(model, str | Path) and not is_store(model) and not is_features_file(model)
    if names and is_model and not is_store(names[0]) and not is_features_file(names[0]):
        find_corpus(names, known=TASKS[options["task"]].known if options.get("task") else KINDS)


def open_ood(
    store: Store | EmbeddingStatistics, model: Any, ood_text: Any, options: Mapping[str, Any], report: Report | None
) -> Store | EmbeddingStatistics | None:
    """Open the store of an out-of-distribution text, or collect such a store; return None if no text is given.

    Args:
        store: The store to compare with.
        model: The model of ``store``; :func:`check_ood` has accepted it.
        ood_text: A text, as for ``--text``. With ``--task``: data, as for ``--data``; their labels are not read. For a
            model that is a features file: another features file. For every model: a store or statistics.
        options: The given options of the collection of ``store``.
        report: Progress callback, or None.

    Raises:
        UsageError: ``ood_text`` is a store of another model, or it is a text but the model takes no texts.
        CollapseError: As in :func:`collapse.collect`.
    """
    if ood_text is None or ood_text == ():
        return None
    names = _names(ood_text)
    if len(names) == 1 and is_store(names[0]):
        other = open_measurable(names[0])
    elif not names:
        other = open_measurable(ood_text)
    elif is_features_file(names[0]):
        other = collect(names[0], progress=report)
    elif not isinstance(store, Store) or not {"chunk_length", "task"} & store.identity.keys():
        raise UsageError(
            f"--ood-text {names[0]} is neither a store nor a features file, and the measured embeddings are not of a "
            f"text: give --ood-text a store or a features file{f'; {near}' if (near := near_folders(names[0])) else ''}"
        )
    elif isinstance(model, Store) or (isinstance(model, str | Path) and is_store(model)):
        raise UsageError(
            f"{store} is a store, so its model cannot be run on {names[0]}: give the model instead, or a store of "
            f"{names[0]}"
        )
    else:
        given = {name: each for name, each in options.items() if name not in _OF_ONE_TEXT}
        if store.identity.get("chunk_length"):
            given.setdefault("chunk_length", store.identity["chunk_length"])
        if task := given.get("task"):
            columns = given.get("columns") or TASKS[task].columns
            given |= {"data": names, "columns": re.sub(",[^,]*$", ",", columns)}  # its labels are not read
        else:
            given["text"] = names
        other = collect(model, progress=report, **given)
    weights = [each.identity.get("weights") if isinstance(each, Store) else None for each in (store, other)]
    widths = [shape_of(each.manifest)[1] if isinstance(each, Store) else each.dim for each in (store, other)]
    if widths[0] != widths[1] or (None not in weights and weights[0] != weights[1]):
        raise UsageError(
            f"{names[0] if names else 'ood_text'} is of another model: give a text, or a store or features of the "
            "measured model"
        )
    return other


def _names(ood_text: Any) -> tuple[str, ...]:
    return tuple(text_names(ood_text)) if isinstance(ood_text, str | Path | list | tuple) else ()
