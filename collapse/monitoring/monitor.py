"""The monitor: collect class moments from the batches of a training loop, and measure them at any step.

Shapes: B samples of a batch, C classes, d dimensions, n validation samples.
"""

import math
from collections.abc import Generator, Iterable
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from collapse.errors import UsageError, at_least
from collapse.measurement.measuring import measure_store
from collapse.measurement.rows import Row
from collapse.monitoring.buffered_moments import BufferedMoments
from collapse.monitoring.model_head import LinearHead, ModelHead, pair
from collapse.monitoring.rank_states import merged, of_all_ranks
from collapse.monitoring.validating import validated, with_validation
from collapse.numerics.dense_moments import DenseMoments
from collapse.numerics.devices import float64_device
from collapse.numerics.finite import check_classifier
from collapse.plugin.guarding import outside_inference_mode
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.registry import Wanted
from collapse.plugin.statistic import Statistic

_ROWS = 8192
"""Number of validation embeddings in a batch."""


class Monitor:
    """Measure neural collapse of the embeddings that a training loop adds, batch by batch.

    ``update`` adds a batch, ``compute`` returns the measurements. Nothing is stored on disk. The monitor does not
    change the model, random generators or torch's settings. If ``classes`` is given and no metric reads a plugin
    statistic, ``update`` never waits for a GPU; otherwise it waits once every 8,192 samples. For this reason, errors
    for NaN and wrong labels are raised by ``compute``, not by ``update``.

    Args:
        metrics: Names or prefixes of measurements (``"nc1,nc3"``), or a function decorated as a metric, or a list of
            such names and functions. None means the headline measurements that read no plugin statistics, and
            ``val_accuracy``. Plugin statistics, such as the covariance of ``nc1.covariance_ratio``, are filled only if
            a chosen metric reads them.
        classes: C; labels are 0 to C − 1. None if C is unknown, as for tokens: labels are then any integers from 0 on.

    Raises:
        UsageError: A metric is unknown, or ``classes`` is not a positive integer.

    >>> monitor = Monitor("nc1.cdnv_ratio,nc3", classes=3)
    >>> y = torch.arange(60) % 3
    >>> monitor.update(torch.eye(3, 4)[y], y)
    >>> monitor.compute(classifier=torch.eye(3, 4))["nc1.cdnv_ratio"]
    0.0
    """

    def __init__(self, metrics: Wanted = None, classes: int | None = None) -> None:
        known = plugins()
        if metrics is None:
            every = known.measurements()
            shown = {*known.headlines(), "val_accuracy"}
            metrics = [name for name in every if name in shown and not every[name][0].reads & known.statistics.keys()]
        self.classes = None if classes is None else at_least(1, "classes", classes)
        self._wanted = known.chosen(metrics)
        reads = {name for metric, _ in self._wanted.values() for name in metric.reads}
        self._kinds = [kind for name, kind in known.statistics.items() if name in reads]
        self._head: ModelHead | None = None
        self.reset()

    def reset(self) -> None:
        """Forget all samples; an attached model stays attached."""
        self._moments: DenseMoments | BufferedMoments | None = None
        self._row: Row | None = None
        self._dim, self._dtype = 0, "float32"

    def attach(self, model: nn.Module, head: str | None = None) -> "Monitor":
        """Keep the input of a model's head at each forward pass, for :meth:`update`.

        ``compute`` then reads the weights of this head. Detach with :meth:`detach`, or use the monitor in a ``with``
        statement. Attach a compiled model before its first forward pass.

        Args:
            model: The model; DistributedDataParallel may wrap it.
            head: Name of the linear module that computes the logits, such as ``"fc"``; None for the output embedding of
                a transformers model or, if there is none, the last linear module.

        Raises:
            UsageError: There is no such module, or it is not linear.
        """
        self.detach()
        self._head = ModelHead(model, head)
        return self

    def detach(self) -> None:
        """Remove the hook of :meth:`attach`, if there is one."""
        if self._head is not None:
            self._head.remove()
            self._head = None

    def __enter__(self) -> "Monitor":
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def update(self, h: Any = None, y: Any = None) -> None:
        """Add a batch.

        Args:
            h: Embeddings of any float dtype, shape (B, d) or (…, d). None for an attached model, ``update(y=labels)``:
                the embeddings are then the input of the model's head in the last forward pass.
            y: Labels, integers of shape (B,) or (…). Samples with the label −100 are excluded.

        Raises:
            UsageError: There are no labels, shapes do not fit, labels are not integers, or ``h`` is None and no model
                is attached or the attached model did not run.
        """
        if y is None:
            raise UsageError("update() needs labels: call update(h, y), or update(y=labels) for an attached model")
        if h is None:
            h = self._attached().take()
        self._row = None
        with torch.inference_mode(False), torch.no_grad():
            h_Bd, y_B = _flat(h, y, self._dim)
            device = float64_device(h_Bd.device)
            if self._moments is None:
                self._moments, self._dim = self._new_moments(h_Bd.shape[1], device), h_Bd.shape[1]
            self._moments.add(h_Bd, y_B.to(device, non_blocking=True))
            self._dtype = str(h_Bd.dtype).removeprefix("torch.")

    def run(self, batches: Iterable[Any]) -> None:
        """Run the attached model on batches, in evaluation mode and without gradients, and add their samples.

        Thus all samples are measured with the same weights, and the model is left as it was. In distributed training,
        all ranks must call this; all of them use the buffers of rank 0.

        Args:
            batches: Pairs (inputs, labels), or mappings with ``labels`` for a transformers model. The labels of a
                causal language model are shifted to the next token.

        Raises:
            UsageError: No model is attached, or a batch has another form.
            CollapseError: The logits that the model returns are not W h + b of its head.
        """
        with closing(self._samples(batches)) as samples:
            for h, y in samples:
                self.update(h, y)

    @outside_inference_mode
    @torch.no_grad()
    def compute(self, validation: Any = None, *, classifier: Any = None, bias: Any = None) -> dict[str, float]:
        """Measure the samples so far.

        In distributed training, all ranks must call this; the samples of all ranks are measured together.

        Args:
            validation: Validation samples: embeddings and labels (h, y), or batches. Batches are as for :meth:`run` if
                a model is attached, otherwise pairs (h, y). Validation samples add NC4, ``val_loss`` and
                ``val_accuracy``. They also add the chosen NC1 measurements, computed from the class means of the
                validation samples and named ``val_nc1.…``. Each rank gives its share.
            classifier: Weights of the head, a row per class, shape (C, d); None for the head of the attached model.
            bias: The head's bias, shape (C,).

        Returns:
            A number per measurement, NaN if it is undefined. Measurements with a missing input are excluded, such as
            NC4 without validation samples; the notes of :meth:`to_row` say why.

        Raises:
            UsageError: There are no samples, only some ranks give validation samples, or the classifier has another
                number of dimensions than the embeddings.
            CollapseError: There are fewer than two classes, an embedding or the classifier is not finite, the attached
                head is not linear, or a label is out of range.
        """
        parts = of_all_ranks(lambda: (self._state(), validation is None))
        if len({lacking for _, lacking in parts}) > 1:
            raise UsageError("some ranks have no validation: give each rank its share, which can be an empty list")
        moments = merged((state for state, _ in parts), self._trained)
        s = replace(moments.statistics_so_far(), dtype=self._dtype)
        head = self._classifier(classifier, bias)
        device, of_validation = None, None
        if head is not None:
            s, device = head.added_to(s), str(head.weight.device)
        if validation is not None:
            with closing(self._validation_batches(validation)) as batches:
                s, of_validation = validated(s, head, batches, self._kinds)
        row = measure_store(s, metrics=self._wanted, device=device)
        nc1 = {name: each for name, each in self._wanted.items() if each[0].property_of(name) == "NC1"}
        if of_validation is not None and nc1:
            row = with_validation(row, measure_store(of_validation, metrics=nc1, device=device))
        self._row = row
        missing = {note.measurement for note in row.notes if note.kind == "missing"}
        return {name: math.nan if value is None else value for name, value in row.items() if name not in missing}

    def to_row(self, name: str = "model", step: int | None = None) -> Row:
        """Return the result of :meth:`compute` as a row of a table, ``collapse.Results([row, …])``.

        Args:
            name: Name of the model or run.
            step: The training step.

        Raises:
            UsageError: ``compute`` was not called, or samples were added since.
        """
        if self._row is None:
            raise UsageError(
                "to_row() needs the result of compute() for all samples added so far: call compute() first"
            )
        return replace(self._row, model=name, step=step)

    def merge(self, other: "Monitor") -> None:
        """Add the samples of another monitor with the same classes and metrics.

        Raises:
            UsageError: The monitors differ in ``classes``, dimensions, or the plugin statistics that metrics read.
        """
        dims = {self._dim, other._dim} - {0}
        if (other.classes, other._kinds) != (self.classes, self._kinds) or len(dims) > 1:
            raise UsageError(
                "merge() needs a monitor with the same classes, metrics and dimensions: give both the same arguments"
            )
        if other._moments is None:
            return
        self._row = None
        total = merged([self._state(), other._state()], self._trained)
        if self._moments is None:
            self._moments, self._dim = self._new_moments(total.dim, total.device), total.dim
            self._dtype = other._dtype
        self._moments.restore(total.state())

    @property
    def _trained(self) -> list[type[Statistic]]:
        """The types of the plugin statistics that training samples fill."""
        return [kind for kind in self._kinds if kind.phase == "train"]

    def _new_moments(self, dim: int, device: torch.device) -> DenseMoments | BufferedMoments:
        if self.classes is None or self._trained:
            return BufferedMoments(self.classes, dim, device, self._trained)
        return DenseMoments(self.classes, dim, device)

    def _state(self) -> dict[str, Tensor] | None:
        return None if self._moments is None else self._moments.state()

    def _attached(self) -> ModelHead:
        if self._head is None:
            raise UsageError("no model is attached: call attach(model) first, or give embeddings: update(h, y)")
        return self._head

    def _samples(self, batches: Iterable[Any]) -> Generator[tuple[Tensor, Tensor]]:
        """Yield the attached model's embeddings of each batch, and their labels."""
        head = self._attached()
        with head.running():
            for batch in batches:
                yield head.samples(batch)

    def _validation_batches(self, validation: Any) -> Generator[tuple[Tensor, Tensor, int]]:
        """Yield embeddings (n, d), labels (n,) and the number of sequences (or of samples, if without sequences)."""
        expected, batches = "a pair (h, y)", validation
        if isinstance(validation, tuple | list) and validation and isinstance(validation[0], Tensor | np.ndarray):
            h, y = (torch.as_tensor(each) for each in pair(validation, expected))
            units = max(1, _ROWS * len(y) // max(1, y.numel()))
            batches = zip(h.split(units), y.split(units), strict=True)
        elif self._head is not None:
            batches = self._samples(validation)
        for batch in batches:
            h, y = (torch.as_tensor(each) for each in pair(batch, expected))
            yield *_flat(h, y, self._dim), len(y) if y.dim() else 1

    def _classifier(self, weight: Any, bias: Any) -> LinearHead | None:
        """Return the given head or else the attached one, after a check that it is finite; None if there is none."""
        if weight is not None:
            head = LinearHead(torch.as_tensor(weight), None if bias is None else torch.as_tensor(bias))
        elif self._head is not None:
            head = self._head.classifier()
        else:
            return None
        check_classifier(head.weight, head.bias)
        return head


def _flat(h: Any, y: Any, dim: int) -> tuple[Tensor, Tensor]:
    """Return embeddings of shape (B, d), and their labels; ``dim`` is d, or 0 before the first batch.

    Raises:
        UsageError: Shapes do not fit, or labels are not integers.
    """
    h, y = torch.as_tensor(h).detach(), torch.as_tensor(y)
    if y.is_floating_point() or y.is_complex() or h.shape[:-1] != y.shape:
        raise UsageError(
            f"embeddings of shape {tuple(h.shape)} need integer labels of shape {tuple(h.shape[:-1])}, got {y.dtype} "
            f"of shape {tuple(y.shape)}"
        )
    if h.shape[-1] != (dim or h.shape[-1]):
        raise UsageError(
            f"embeddings have {h.shape[-1]:,} dimensions, but earlier embeddings have {dim:,}: check h, or call "
            "reset() first"
        )
    return h.reshape(-1, h.shape[-1]), y.reshape(-1).long()
