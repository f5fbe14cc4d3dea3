"""The callback for Lightning."""

from typing import Any

from collapse.core.extras import missing_package
from collapse.errors import CollapseError
from collapse.monitoring.monitor import Monitor
from collapse.monitoring.recorder import Recorder
from collapse.plugin.registry import Wanted


class _Measuring:
    """The hooks, without Lightning's base class, so that this module can be imported without Lightning."""

    recorder: Recorder
    last_step = -1

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == 0:
            self._measure(trainer, pl_module)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        step = trainer.global_step
        if step % self.recorder.every == 0 or step == trainer.estimated_stepping_batches:
            self._measure(trainer, pl_module)

    def _measure(self, trainer: Any, pl_module: Any) -> None:
        if (step := trainer.global_step) == self.last_step:  # several batches share a step if gradients are accumulated
            return
        self.last_step = step
        with trainer.precision_plugin.forward_context():
            values = self.recorder.measure(pl_module, trainer.train_dataloader, step, trainer.default_root_dir)
        if values:
            pl_module.log_dict(values, on_step=True, on_epoch=False, rank_zero_only=True)


def lightning_callback(
    every: int = 500,
    dataset: Any = None,
    batches: int = 32,
    *,
    validation: Any = None,
    metrics: Wanted = None,
    classes: int | None = None,
    head: str | None = None,
) -> Any:
    """Return a callback for the Trainer of Lightning that measures neural collapse while a classifier is trained.

    It is like :class:`collapse.CollapseCallback`. The numbers are logged with ``pl_module.log_dict``, so ``every`` must
    be a multiple of ``log_every_n_steps``. The rows are in ``results.parquet`` of ``default_root_dir``. Batches must be
    pairs (inputs, labels), and ``forward`` of the module must take the inputs.

    Args:
        every, dataset, batches, validation, metrics, classes, head: As for :class:`collapse.CollapseCallback`.

    Raises:
        UsageError: A metric is unknown, or ``every`` or ``classes`` is not a positive integer.
        CollapseError: Lightning is not installed.
    """
    try:
        from lightning.pytorch import Callback
    except ImportError as error:
        raise CollapseError(missing_package(error) or str(error)) from error
    made = type("CollapseCallback", (_Measuring, Callback), {})()
    made.recorder = Recorder(every, dataset, batches, validation, Monitor(metrics, classes), head)
    return made
