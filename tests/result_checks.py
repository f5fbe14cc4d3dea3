"""Check an analysis or a figure on an input, and on inputs with missing values, few rows or few classes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from collapse import CollapseError, Results, Row, Store, collect_arrays
from collapse.errors import PluginError
from collapse.testing import random_features

GAPS = 3
"""Number of measurements, besides val_loss, that are missing in turn."""


def check_made(make: Callable[[Any], Any], given: Any, less: Iterable[Any]) -> None:
    """Check that ``make`` returns equal results for one input, does not change it, and accepts or rejects ``less``.

    ``less`` are inputs that ``make`` may reject with a CollapseError, but with which it must not fail.
    """
    before = given.frame() if isinstance(given, Results) else None
    assert repr(vars(make(given))) == repr(vars(make(given)))
    assert before is None or given.frame().equals(before)
    for each in less:
        try:
            make(each)
        except PluginError:
            raise
        except CollapseError:
            pass


def with_gaps(results: Results) -> Iterator[Results]:
    """Tables with missing values or columns, with equal values, and with at most two rows."""
    frame = results.frame()
    numbers = [name for name in frame.columns if "." in str(name) or name == "val_loss"]
    yield Results.from_frame(frame[[name for name in frame if name not in numbers]])
    yield Results.from_frame(frame.assign(model="the same"))
    for name in dict.fromkeys(["val_loss", *numbers[:GAPS]]):
        if name in frame:
            yield Results.from_frame(frame.assign(**{name: frame[name].where(frame.index > 0)}))
            yield Results.from_frame(frame.assign(**{name: frame[name].iloc[0]}))
            yield Results.from_frame(frame.drop(columns=[name]))
    yield Results()
    yield Results.from_frame(frame.iloc[:1])
    yield Results.from_frame(frame.iloc[:2])


def store_of(classes: int, name: str) -> Store:
    """A store of random features."""
    arrays = random_features(classes, 4, 20 * classes)
    names = {"features": "train_features", "labels": "train_labels", "classifier": "classifier"}
    names |= {name: name for name in ("validation_features", "validation_labels")}
    return collect_arrays(**{key: arrays[each] for key, each in names.items()}, name=name)


def random_rows(rows: int, measurements: Sequence[str]) -> list[Row]:
    """Rows of models that can be compared, with positive random numbers and ``val_loss``."""
    names = list(dict.fromkeys([*measurements, "val_loss"]))
    values = torch.rand(rows, len(names), generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.5
    same: dict[str, Any] = {"min_count": 1, "dim": 8, "validation": "validation text", "chunk_length": 16}
    same |= {"dtype": "float32", "corpus_id": "c" * 64, "validation_id": "d" * 64, "revision": None, "corpus": "text"}
    return [
        Row(
            model=f"models/{index}",
            store=f"{index:064x}",
            classes=50 + index,
            samples=1000 + index,
            measurements=dict(zip(names, values[index].tolist(), strict=True)),
            versions=dict.fromkeys(names, 1),
            **same,
        )
        for index in range(rows)
    ]
