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
from collapse.stores.files import sha256_file
from collapse.stores.provenance import Clock
from collapse.stores.tensor_files import load_tensors

log = logging.getLogger("collapse")

_ROWS = 8192
_WANTED = {"train_features": 2, "train_labels": 1, "classifier": 2}
_FLOATS = ("float64", "float32", "float16", "bfloat16")
_OPTIONAL = {"classifier_bias": 1, "validation_features": 2, "validation_labels": 1}


class ArrayPhase(Phase):
    """Rows of an array, in blocks of 8,192.

    Args:
        name: "train" or "validation".
        features, labels: Embeddings, shape (N, d), and their labels, shape (N,).
        called: Name of the source in messages.
    """

    size, words = _ROWS, ("block", "rows")
    out_of_memory = "use a machine with more memory, or keep the features in a smaller dtype"

    def __init__(self, name: str, features: Tensor, labels: Tensor, called: str) -> None:
        self.name, self.features, self._labels, self.called = name, features, labels.long(), called
        self.units = self.slice_units = -(-len(labels) // _ROWS)
        self.unit_samples = _ROWS

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return len(self._labels)

    def samples(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return the embeddings and labels of some blocks."""
        return self.features[start * _ROWS : stop * _ROWS], self.labels(start, stop)

    def labels(self, start: int, stop: int) -> Tensor:
        """Return the labels of some blocks."""
        return self._labels[start * _ROWS : stop * _ROWS]

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
    return Path(path).suffix == ".safetensors" and Path(path).exists() and not Path(path).is_dir()


def open_features(path: str | Path) -> Source:
    """Read a features file.

    Raises:
        CollapseError: It cannot be read, a tensor is missing or of the wrong shape, or a label lies outside the
            classifier.
    """
    path, clock = Path(path), Clock()
    digest, features = sha256_file(path), read_features(path)
    source = source_of(features, called=str(path), digest=digest, model=path.stem, corpus=path.name, clock=clock)
    return replace(source, command=f"collapse collect {shlex.quote(path.name)}")


def source_of(
    features: Mapping[str, Tensor], *, called: str, digest: str, model: str, corpus: str, clock: Clock
) -> Source:
    """Make a source of checked features (see :func:`check_features`).

    Args:
        features: The tensors of a features file.
        called: Name of the features in messages.
        digest: sha256 of the file.
        model, corpus: Names for the manifest.
        clock: When reading began.
    """
    validated = "validation_features" in features
    train, validation = (
        ArrayPhase(name, features[f"{name}_features"], features[f"{name}_labels"], called)
        if f"{name}_features" in features
        else None
        for name in ("train", "validation")
    )
    return Source(
        identity={"features": digest, "dtype": str(features["train_features"].dtype).removeprefix("torch.")},
        model={"name": model},
        corpus={"name": corpus, "validation": corpus if validated else None},
        weight=features["classifier"],
        bias=features.get("classifier_bias"),
        train=train,
        validation=validation,
        classifier=f"{called}: classifier",
        remedy="the row is a class: correct it, or leave the class out",
        clock=clock,
    )


def read_features(path: Path) -> dict[str, Tensor]:
    """Read and check a features file; raises as :func:`open_features`."""
    from safetensors import SafetensorError

    try:
        features = load_tensors(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise CollapseError(f"{path} cannot be read as safetensors: {error}") from error
    missing = [name for name in _WANTED if name not in features]
    if missing:
        raise CollapseError(
            f"{path} is not a features file: it lacks {', '.join(missing)} "
            f"(it has {', '.join(sorted(features)) or 'nothing'}). "
            "It needs train_features (N, d), train_labels (N,) and classifier (C, d); for a store give its folder"
        )
    if unknown := sorted(set(features) - set(_WANTED | _OPTIONAL)):
        log.warning("%s: %s is ignored; known tensors are %s", path, ", ".join(unknown), ", ".join(_WANTED | _OPTIONAL))
    return check_features(features, str(path))


def check_features(features: Mapping[str, Tensor], called: str) -> dict[str, Tensor]:
    """Check the tensors of a features file, and convert them to the dtypes of a store.

    Raises:
        CollapseError: A tensor has the wrong shape or dtype, or a label lies outside the classifier.
    """
    found: dict[str, Tensor] = {}
    for name, dims in (_WANTED | _OPTIONAL).items():
        if name not in features:
            continue
        found[name] = _as_kept(called, name, features[name])
        if found[name].dim() != dims:
            raise CollapseError(f"{called}: {name} has shape {tuple(found[name].shape)}, not {dims} dimensions")
    classes, dim = found["classifier"].shape
    if dim < 1:
        raise CollapseError(f"{called}: classifier has shape {(classes, dim)}: embeddings need at least one dimension")
    if "classifier_bias" in found and len(found["classifier_bias"]) != classes:
        raise CollapseError(
            f"{called}: classifier_bias has length {len(found['classifier_bias'])} for {counted(classes, 'row')}"
        )
    for split in ("train", "validation"):
        _check_split(found.get(f"{split}_features"), found.get(f"{split}_labels"), f"{called}: {split}", classes, dim)
    return found


def _check_split(h: Tensor | None, y: Tensor | None, split: str, classes: int, dim: int) -> None:
    if (h is None) != (y is None):
        raise CollapseError(f"give {split.split(': ')[-1]}_features and {split.split(': ')[-1]}_labels together")
    if h is None or y is None:
        return
    if len(h) != len(y) or not len(y):
        raise CollapseError(f"{split}_features has {counted(len(h), 'row')} for {counted(len(y), 'label')}")
    if h.shape[1] != dim:
        raise CollapseError(f"{split}_features has d = {h.shape[1]}, the classifier {dim}")
    if int(y.min()) < 0 or int(y.max()) >= classes:
        raise CollapseError(
            f"{split}_labels run from {y.min().item()} to {y.max().item()}, "
            f"but the classifier has rows 0 to {classes - 1}"
        )


def _as_kept(called: str, name: str, tensor: Tensor) -> Tensor:
    """Convert a tensor to a dtype of a store: labels to int64; other tensors keep their floating-point dtype."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if name.endswith("_labels"):
        if tensor.is_floating_point() or tensor.is_complex():
            raise CollapseError(f"{called}: {name} is {dtype}: labels must be integers")
        labels = tensor.long()  # torch cannot compute the minimum of unsigned integers
        if dtype == "uint64" and bool((labels < 0).any()):
            raise CollapseError(f"{called}: {name} holds labels of 2⁶³ and more: number the classes from 0")
        return labels
    if dtype not in _FLOATS:
        raise CollapseError(f"{called}: {name} is {dtype}: convert it to one of {', '.join(_FLOATS)}")
    return tensor
