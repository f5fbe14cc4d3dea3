"""Measure the same samples of a data set at several steps, and keep a row per step, for the callbacks of trainers."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, Subset

from collapse.core.steps import folder_name
from collapse.errors import CollapseError, UsageError, at_least
from collapse.measurement.results import Results, join
from collapse.measurement.rows import Row
from collapse.monitoring.monitor import Monitor
from collapse.monitoring.rank_states import rank_and_size

log = logging.getLogger("collapse")

RESULTS = "results.parquet"


@dataclass(frozen=True)
class Recorder:
    """Measure a model on the same samples at each call; see :class:`collapse.CollapseCallback` for the fields."""

    every: int
    dataset: Any
    batches: int
    validation: Any
    monitor: Monitor
    head: str | None

    def __post_init__(self) -> None:
        at_least(1, "every", self.every)

    def measure(self, model: nn.Module, loader: Any, step: int, folder: str | Path) -> dict[str, float]:
        """Measure a model, add the row to the folder's results, and return the measurements.

        If the model cannot be measured, for example because training has diverged, log a warning and return {}.

        Args:
            model: The model.
            loader: The trainer's loader. Its batch size and its collate function are used. Its data set is measured if
                the field ``dataset`` is None.
            step: The training step.
            folder: The run's folder.

        Raises:
            UsageError: The field ``head`` names no linear module, or a batch has another form than
                :meth:`Monitor.run` expects.
        """
        self.monitor.reset()
        try:
            with self.monitor.attach(model, self.head) as monitor:
                monitor.run(self._batches(loader, loader.dataset if self.dataset is None else self.dataset))
                values = monitor.compute(None if self.validation is None else self._batches(loader, self.validation))
        except UsageError:
            raise
        except CollapseError as error:
            log.warning("step %s is not measured: %s", f"{step:,}", error)
            return {}
        if rank_and_size()[0] == 0:
            add_row(Path(folder) / RESULTS, self.monitor.to_row(folder_name(Path(folder)), step))
        return values

    def _batches(self, loader: Any, dataset: Any) -> Iterator[Any]:
        """Yield this rank's share of the batches to measure, the same at each call.

        The samples are random, because many data sets are sorted by class. For an IterableDataset, they are the
        first samples.
        """
        (rank, ranks), size = rank_and_size(), loader.batch_size or loader.batch_sampler.batch_size
        trained = getattr(loader.dataset, "column_names", None)  # the columns that the Trainer has kept
        if trained and hasattr(dataset, "select_columns"):
            dataset = dataset.select_columns([name for name in dataset.column_names if name in trained])
        first, step = rank, ranks
        if not isinstance(dataset, IterableDataset):
            order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(0)).split(size)
            # all ranks get equally many batches, because FSDP waits for all ranks at each forward pass
            each = min(self.batches, max(1, len(order) // ranks))
            own = [int(at) for share in order[rank : each * ranks : ranks] for at in share]
            dataset, first, step = Subset(dataset, own), 0, 1
        # without a generator of its own, the loader would draw a seed from torch's global generator
        alike = DataLoader(dataset, size, collate_fn=loader.collate_fn, generator=torch.Generator())
        return islice(alike, first, self.batches * step, step)


def add_row(file: Path, row: Row) -> None:
    """Add a row to a results file. First remove rows of the same step and of later steps: an earlier run wrote them."""
    tables = [Results([row])]
    if file.exists():
        frame = Results.read(file).frame()
        tables.insert(0, Results.from_frame(frame[frame["step"] < row.step]))
    join(tables).write(file)
