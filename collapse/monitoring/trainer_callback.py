"""The callback for the Trainer of transformers."""

import sys
from pathlib import Path
from types import FrameType
from typing import Any

from transformers.trainer_callback import CallbackHandler, TrainerCallback

from collapse.monitoring.monitor import Monitor
from collapse.monitoring.recorder import Recorder
from collapse.plugin.registry import Wanted


class CollapseCallback(TrainerCallback):
    """Measure neural collapse while the Trainer of transformers trains a classifier or a causal language model.

    It measures the same samples at step 0, every ``every`` steps and at the last step. The numbers go to the Trainer's
    loggers. Each measured step also adds a row to ``results.parquet`` in ``output_dir``; ``collapse figures`` and
    ``collapse report`` read this file. A resumed run continues the file.

    Args:
        every: Steps between measurements.
        dataset: The data set to measure, in the form of the training set; None to measure the training set.
        batches: Largest number of batches that each process measures, of the training and of the validation samples.
            The samples are random with a fixed seed; of an IterableDataset, they are the first samples.
        validation: A data set of validation samples, in the form of the training set. It adds NC4, the loss and
            ``val_nc1.…``. None to measure without validation.
        metrics: As for :class:`collapse.Monitor`; None means the headline measurements.
        classes: The number of classes; None if it is unknown, as for tokens.
        head: As for :meth:`collapse.Monitor.attach`.

    Raises:
        UsageError: A metric is unknown, or ``every`` or ``classes`` is not a positive integer.
    """

    def __init__(
        self,
        every: int = 500,
        dataset: Any = None,
        batches: int = 32,
        *,
        validation: Any = None,
        metrics: Wanted = None,
        classes: int | None = None,
        head: str | None = None,
    ) -> None:
        self._recorder = Recorder(every, dataset, batches, validation, Monitor(metrics, classes), head)

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Measure the model at step 0."""
        if state.global_step == 0:
            self._measure(args, state, control, **given)

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Measure the model every ``every`` steps and at the last step."""
        if state.global_step % self._recorder.every == 0 or state.global_step == state.max_steps:
            self._measure(args, state, control, **given)

    def _measure(self, args: Any, state: Any, control: Any, *, model: Any, train_dataloader: Any, **_: Any) -> None:
        logs = self._recorder.measure(model, train_dataloader, state.global_step, Path(args.output_dir))
        if logs:  # log them as Trainer.log() does
            logs["epoch"] = state.epoch or 0.0
            state.log_history.append({**logs, "step": state.global_step})
            should_log = control.should_log
            _handler().on_log(args, state, control, logs)
            control.should_log = should_log  # on_log() has reset it


def _handler() -> CallbackHandler:
    """Find the Trainer's CallbackHandler in the call stack; callbacks have no other access to the Trainer's loggers."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and not isinstance(frame.f_locals.get("self"), CallbackHandler):
        frame = frame.f_back
    assert frame is not None  # the handler has called the callback
    return frame.f_locals["self"]
