"""Precomputed embeddings as a source: a features file, or arrays.

A features file is safetensors with ``train_features`` (N, d), ``train_labels`` (N,), ``classifier`` (C, d) and,
optionally, ``classifier_bias`` (C,), ``validation_features`` (n, d), ``validation_labels`` (n,).
"""

import logging
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from collapse.errors import CollapseError, counted
from collapse.inputs.source import Phase, Source
from collapse.stores.provenance import Clock
from collapse.stores.tensor_files import hash_of

log = logging.getLogger("collapse")

_ROWS = 8192
_FLOATS = ("float64", "float32", "float16", "bfloat16")
_REQUIRED = ("train_features", "train_labels", "classifier")
_SHAPES = {
    "train_features": 2,
    "train_labels": 1,
    "classifier": 2,
    "classifier_bias": 1,
    "validation_features": 2,
    "validation_labels": 1,
}
"""Number of dimensions of each tensor."""


class ArrayPhase(Phase):
    """Rows of an array, in blocks of 8,192.

    Args:
        name: "train" or "validation".
        features, labels: Embeddings, shape (N, d), and their labels, shape (N,).
        called: Name of the source in messages.
        shuffled: See :class:`Phase`.
    """

    size, words = _ROWS, ("block", "rows")
    out_of_memory = "use a machine with more memory, or keep the features in a smaller dtype"

    def __init__(self, name: str, features: Tensor, labels: Tensor, called: str, *, shuffled: bool = False) -> None:
        self.name, self.features, self._labels, self.called = name, features, labels, called
        self.shuffled = shuffled
        self.units = self.slice_units = -(-len(labels) // _ROWS)
        self.unit_samples, self.n_samples = _ROWS, len(labels)

    def embeddings(self, start: int, stop: int) -> Tensor:
        """Return the rows of some blocks."""
        return self.features[start * _ROWS : stop * _ROWS]

    def labels_at(self, places: Tensor) -> Tensor:
        """Return the labels of rows anywhere."""
        return self._labels[places]

    def not_finite(self, start: int, row: int, wrong: str) -> str:
        """Describe where an embedding is not finite."""
        return f"{self.called}: {self.name}_features row {start * _ROWS + row} is {wrong}"

    def batch_units(self, asked: int | str) -> int:
        """Return one block per batch, whatever is requested, because the last block may be shorter than the others."""
        return 1

    def coverage(self) -> dict[str, Any]:
        """One slice."""
        return {"slices": 1}


def is_features_file(path: str | Path) -> bool:
    """Whether this names a features file rather than a model or a store."""
    return Path(path).suffix == ".safetensors" and Path(path).is_file()


def open_features(path: Path, *, shuffled: bool = False) -> Source:
    """Read a features file; ``shuffled`` is that of :class:`Phase`.

    Raises:
        CollapseError: It cannot be read, a tensor is missing or of the wrong shape, or a label lies outside the
            classifier.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    clock = Clock()

    try:
        features = load_file(path)
        digest = hash_of({}, features)
    except (SafetensorError, OSError, ValueError) as error:
        raise CollapseError(f"{path} cannot be read as safetensors: {error}") from error
    if missing := [name for name in _REQUIRED if name not in features]:
        raise CollapseError(
            f"{path} is not a features file: it lacks {', '.join(missing)} (it has {', '.join(sorted(features))}). "
            "It needs train_features (N, d), train_labels (N,) and classifier (C, d); for a store give its folder"
        )
    if unknown := sorted(set(features) - set(_SHAPES)):
        log.warning("%s: %s is ignored; known tensors are %s", path, ", ".join(unknown), ", ".join(_SHAPES))
    source = source_of(
        features, called=str(path), digest=digest, model=path.stem, corpus=path.name, clock=clock, shuffled=shuffled
    )
    return replace(source, command=f"collapse collect {shlex.quote(path.name)}")


def source_of(
    features: Mapping[str, Tensor],
    *,
    called: str,
    digest: str,
    model: str,
    corpus: str,
    clock: Clock,
    shuffled: bool = False,
) -> Source:
    """Check the tensors of a features file, and make a source of them; equal tensors have one identity.

    Args:
        features: The tensors.
        called: Name of the features in messages.
        digest: Their hash.
        model, corpus: Names for the manifest.
        clock: When reading began.
        shuffled: See :class:`Phase`.

    Raises:
        CollapseError: A tensor has the wrong shape or dtype, or a label lies outside the classifier.
    """
    features = check_features(features, called)
    phases = {
        name: ArrayPhase(name, features[f"{name}_features"], features[f"{name}_labels"], called, shuffled=shuffled)
        for name in ("train", "validation")
        if f"{name}_features" in features
    }
    identity = {"features": digest, "dtype": str(features["train_features"].dtype).removeprefix("torch.")}
    return Source(
        identity=identity | ({"null": "shuffled"} if shuffled else {}),
        model={"name": model},
        corpus={"name": corpus, "validation": corpus if "validation" in phases else None},
        weight=features["classifier"],
        bias=features.get("classifier_bias"),
        train=phases["train"],
        validation=phases.get("validation"),
        classifier=f"{called}: classifier",
        remedy="the row is a class: correct it, or leave the class out",
        clock=clock,
    )


def check_features(features: Mapping[str, Tensor], called: str) -> dict[str, Tensor]:
    """Check the tensors of a features file, and convert labels to int64.

    Raises:
        CollapseError: A tensor has the wrong shape or dtype, or a label lies outside the classifier.
    """
    found = {name: _checked(f"{called}: {name}", features[name], name) for name in _SHAPES if name in features}
    classes, dim = found["classifier"].shape
    if dim < 1:
        raise CollapseError(f"{called}: classifier has shape {(classes, dim)}: embeddings need at least one dimension")
    bias = found.get("classifier_bias")
    if bias is not None and len(bias) != classes:
        raise CollapseError(f"{called}: classifier_bias has length {len(bias)} for {counted(classes, 'row')}")
    for split in ("train", "validation"):
        h, y = found.get(f"{split}_features"), found.get(f"{split}_labels")
        where = f"{called}: {split}"
        if h is None and y is None:
            continue
        if h is None or y is None:
            raise CollapseError(f"{called}: give {split}_features and {split}_labels together")
        if len(h) != len(y) or not len(y):
            raise CollapseError(f"{where}_features has {counted(len(h), 'row')} for {counted(len(y), 'label')}")
        if h.shape[1] != dim:
            raise CollapseError(f"{where}_features has d = {h.shape[1]}, the classifier {dim}")
        least, most = int(y.min()), int(y.max())
        if least < 0 or most >= classes:
            raise CollapseError(
                f"{where}_labels run from {least} to {most}, but the classifier has rows 0 to {classes - 1}"
            )
    return found


def _checked(called: str, tensor: Tensor, name: str) -> Tensor:
    """Return a tensor, labels as int64, after a check of its dtype and its dimensions."""
    dtype, is_labels = str(tensor.dtype).removeprefix("torch."), name.endswith("_labels")
    if is_labels and (tensor.is_floating_point() or tensor.is_complex()):
        raise CollapseError(f"{called} is {dtype}: labels must be integers")
    if not is_labels and dtype not in _FLOATS:
        raise CollapseError(f"{called} is {dtype}: convert it to one of {', '.join(_FLOATS)}")
    if tensor.dim() != _SHAPES[name]:
        raise CollapseError(
            f"{called} must have {counted(_SHAPES[name], 'dimension')}, got shape {tuple(tensor.shape)}"
        )
    return tensor.long() if is_labels else tensor
