"""Define a source: labelled embeddings with their classifier.

Every source goes through the same two passes, training and validation.

Shapes: n samples, d dimensions, V rows of the classifier.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from collapse.errors import CollapseError, UsageError, first_line
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.permuted_labels import permuted
from collapse.numerics.logits import LINEAR, Logits
from collapse.stores.layer_names import TOP
from collapse.stores.request import Request


class Phase(ABC):
    """The samples of one pass, training or validation.

    The samples are grouped into units, such as chunks of a text or blocks of rows. Methods with ``start`` and ``stop``
    are for the units start to stop − 1.

    Attributes:
        name: "train" or "validation".
        units: Number of units; all but the last one have the same size.
        slice_units: Number of units per slice; it does not depend on the batch size. A run resumes, and a part
            begins, only at the start of a slice.
        unit_samples: Samples per unit; the last unit may have fewer.
        n_samples: Number of samples in all units, including excluded samples.
        unit: Name of a unit for messages, such as "chunk".
        is_text: Whether the units are chunks of a text.
        out_of_memory: Advice for the message if one unit does not fit into memory.
        shuffled: Whether :meth:`labels` permutes the labels that :meth:`labels_at` returns, so that embeddings are
            independent of labels.
        ignored: Samples with these labels are excluded; None to exclude no sample.
    """

    name: str
    units: int
    slice_units: int
    unit_samples: int
    n_samples: int
    unit: str
    out_of_memory: str
    is_text: bool = False
    shuffled: bool = False
    ignored: Int[Tensor, " I"] | None = None

    @abstractmethod
    def embeddings(self, start: int, stop: int, layers: Sequence[str]) -> dict[str, Float[Tensor, "n d"]]:
        """Return, for each layer, the embeddings of units ``start`` to ``stop − 1``: a row per sample, in order."""

    @abstractmethod
    def labels_at(self, places: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
        """Return the labels of samples by position (0 to ``n_samples − 1``), before :meth:`labels` permutes them."""

    @abstractmethod
    def not_finite(self, start: int, row: int, wrong: str) -> str:
        """Return the error message for an embedding that is not finite.

        ``row`` is the sample's number, counted from the first sample of unit ``start``. ``wrong`` says what is wrong,
        such as "NaN or infinite".
        """

    @abstractmethod
    def batch_units(self, asked: int | str) -> int:
        """Return the initial number of units per batch.

        ``asked`` is the ``batch_size`` of :func:`collapse.collect`. Return 1 if the last unit is shorter: a batch must
        not mix units of different lengths.
        """

    def samples(
        self, start: int, stop: int, layers: Sequence[str] = (TOP,)
    ) -> tuple[dict[str, Float[Tensor, "n d"]], Int[Tensor, " n"]]:
        """Return the embeddings of each layer, and the labels, of the units' samples that are not excluded."""
        found, y_n, kept_n = self.embeddings(start, stop, layers), self.labels(start, stop), self.kept(start, stop)
        if kept_n is None:
            return found, y_n
        return {layer: h_nd[kept_n.to(h_nd.device)] for layer, h_nd in found.items()}, y_n[kept_n]

    def kept(self, start: int, stop: int) -> Bool[Tensor, " n"] | None:
        """Return a mask of the units' samples, True for those that are not excluded; None if ``ignored`` is None."""
        return None if self.ignored is None else ~torch.isin(self.labels(start, stop), self.ignored)

    def labels(self, start: int, stop: int) -> Int[Tensor, " n"]:
        """Return the labels of all samples of the units, including excluded samples; permuted if ``shuffled``."""
        places = self._places(start, stop)
        return self.labels_at(permuted(places, self.n_samples) if self.shuffled else places)

    def blocks(self, start: int, stop: int) -> Int[Tensor, " n"]:
        """Return the id of each sample's block, for standard errors over blocks; by default a unit is a block."""
        return self._places(start, stop) // self.unit_samples

    def _places(self, start: int, stop: int) -> Int[Tensor, " n"]:
        return torch.arange(start * self.unit_samples, min(stop * self.unit_samples, self.n_samples))

    def check(self) -> None:  # noqa: B027  # most sources have nothing to check
        """Raise CollapseError if the first unit shows that the model cannot be measured; by default, do nothing."""

    def check_labels(self, rows: int, dim: int) -> None:  # noqa: B027  # as above
        """Raise CollapseError if a label has no row in the classifier's weight, of shape (``rows``, ``dim``)."""

    def coverage(self) -> dict[str, Any]:
        """Return the manifest's entry for the phase: the number of units, units per slice, and number of slices."""
        slices = -(-self.units // self.slice_units)
        return {"chunks": self.units, "slice_chunks": self.slice_units, "slices": slices}

    def provenance(self) -> dict[str, Any]:
        """Return what the manifest's provenance records about the samples, as JSON."""
        return {}


@dataclass
class Source:
    """Labelled embeddings and their classifier.

    Attributes:
        identity: Everything that affects a stored number, except the choice of statistics: options, and hashes or
            versions of the weights, the training data (``corpus``) and the validation data (``validation``). The
            dictionary must be valid JSON.
        model, corpus: Two entries of the manifest. ``model`` has the model's ``name`` and, if known, ``n_params`` and
            the names of its ``classes``, a list or a dictionary by number. ``corpus`` has the ``name`` of the training
            data and, as ``validation``, the name of the validation data if it differs.
        weight: Weight of the output embedding, with rows w, shape (V, d); the classifier's rows are ``logits.scale``
            times these rows.
        bias: The bias of the output embedding, shape (V,), or None.
        train: The training samples; None if a store already holds their statistics.
        validation: The validation samples, or None.
        layers: The layers to collect, in order of depth; the last one is top.
        lens: Function from the embeddings of an inner layer to inputs of the classifier, or None if there is none.
        command: A command line that repeats the collection, for the provenance.
        logits: How the model makes logits from ⟨w, h⟩ + b.
        exact_loss: Whether all logits of the loss are computed in float64; for texts, this is ``--exact-loss``.

    Raises:
        UsageError: The identity is empty, a name is missing, or the weight, the bias or ``classes`` have a wrong shape.
        CollapseError: A label has no row in the weight.
    """

    identity: dict[str, Any]
    model: dict[str, Any]
    corpus: dict[str, Any]
    weight: Float[Tensor, "V d"]
    bias: Float[Tensor, " V"] | None = None
    train: Phase | None = None
    validation: Phase | None = None
    layers: Sequence[str] = (TOP,)
    lens: Callable[[Tensor], Tensor] | None = None
    command: str | None = None
    logits: Logits = LINEAR
    exact_loss: bool = True

    def __post_init__(self) -> None:
        if all(each in (None, "", {}) for each in self.identity.values()):
            raise UsageError("the source's identity is empty: give hashes or versions of its weights and data")
        for what, entry in (("model", self.model), ("corpus", self.corpus)):
            if "name" not in entry:
                raise UsageError(f'the source\'s {what} has no name: give {what}={{"name": …}}')
        self.weight = _floats("weight", self.weight, ("V", "d"))
        if self.bias is not None:
            self.bias = _floats("bias", self.bias, ("V",))
            if len(self.bias) != len(self.weight):
                raise UsageError(
                    f"the source's weight has {len(self.weight)} rows, but its bias has {len(self.bias)}: "
                    "give one bias per row"
                )
        if "classes" in self.model:
            self.model = {**self.model, "classes": _names_of(self.model["classes"], len(self.weight))}
        texts = {name: {"name": self.identity[name]} for name in ("corpus", "validation") if name in self.identity}
        named: dict[str, Any] = {name: each for name, each in texts.items() if isinstance(each["name"], str)}
        self.identity = {**self.identity, **named}
        self.corpus = {"validation": self.corpus["name"] if self.validation else None, **self.corpus}
        for name in ("train", "validation"):
            if (phase := getattr(self, name)) is not None:
                setattr(self, name, phase := copy(phase))  # one object may be given for both
                phase.name = name
                phase.check_labels(*self.weight.shape)

    @property
    def device(self) -> torch.device:
        """The device on which the embeddings are computed."""
        return self.weight.device


def source_request(source: Source, spec: CollectionSpec, folder: Path | None) -> Request:
    """Return the request for a source that is already loaded.

    ``folder`` is the store's folder, or None for a store in memory.
    """
    return Request(
        identity=source.identity,
        shown_names={"model": source.model["name"], "corpus": source.corpus["name"]},
        load=lambda existing, report: source,
        validates=source.validation is not None,
        folder=folder,
        **spec.beside_identity,
    )


def _floats(name: str, given: Any, shape: tuple[str, ...]) -> Tensor:
    found = array_tensor("the source", name, given)
    if found.dim() != len(shape) or not found.is_floating_point():
        wanted = f"({', '.join(shape)}{',' * (len(shape) == 1)})"
        raise UsageError(
            f"the source's {name} must be floating-point numbers of shape {wanted}, got {found.dtype} {[*found.shape]}"
        )
    return found


def _names_of(classes: Sequence[str] | Mapping[Any, str], rows: int) -> list[str]:
    """Return the names of classes 0 to ``rows`` − 1, in this order; raise UsageError for other classes."""
    named = classes.items() if isinstance(classes, Mapping) else enumerate(classes)
    by_number = {str(number): str(each) for number, each in named}
    if by_number.keys() != set(map(str, range(rows))):
        raise UsageError(f"the source's classes must name the classes 0 to {rows - 1}, got {len(by_number)} names")
    return [by_number[str(number)] for number in range(rows)]


def array_tensor(called: str, name: str, values: Any) -> Tensor:
    """Convert values to a tensor of the same dtype; Python numbers become float64 or int64.

    ``called`` and ``name`` begin the message of an error.

    Raises:
        CollapseError: The values are not an array of numbers.
    """
    if isinstance(values, Tensor):
        return values.detach()
    try:
        return torch.from_numpy(np.ascontiguousarray(values))
    except (TypeError, ValueError, RuntimeError) as error:
        raise CollapseError(
            f"{called}: {name} cannot be read as an array of numbers ({first_line(error)}): give a NumPy array or a "
            "torch tensor"
        ) from error
