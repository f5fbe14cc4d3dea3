"""Make a source from precomputed embeddings, which are in a features file or in arrays.

A features file is safetensors with ``train_features`` (N, d), ``train_labels`` (N,), ``classifier`` (C, d) and,
optionally, ``classifier_bias`` (C,), ``validation_features`` (n, d), ``validation_labels`` (n,).
"""

import logging
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from collapse.errors import CollapseError, UsageError
from collapse.inputs import permuted_labels
from collapse.inputs.collection_spec import CollectionSpec, check_applies
from collapse.inputs.source import Phase, Source, source_request
from collapse.numerics.dense_moments import IGNORED
from collapse.stores.layer_names import TOP
from collapse.stores.request import Request
from collapse.stores.tensor_files import hash_of

log = logging.getLogger("collapse")

_ROWS = 8192
_FLOATS = ("float64", "float32", "float16", "bfloat16")
_REQUIRED = ("train_features", "train_labels", "classifier")
_SHAPES = {
    "train_features": ("N", "d"),
    "train_labels": ("N",),
    "classifier": ("C", "d"),
    "classifier_bias": ("C",),
    "validation_features": ("n", "d"),
    "validation_labels": ("n",),
}
"""Dimensions of each tensor; dimensions with the same letter must be equal."""
_OPTIONS = ("without", "null", "recollect", "batch_size", "device", "deterministic", "trust_remote_code")
"""Options of a collection that apply to a features file or have no effect."""


class ArrayPhase(Phase):
    """The rows of an array as samples. A unit is a block of 8,192 rows.

    ``called`` is the name of the features for messages.
    """

    unit = "block"
    out_of_memory = "use a machine with more memory, or store the features in a smaller dtype"

    def __init__(self, name: str, features: Tensor, labels: Tensor, called: str, *, shuffled: bool = False) -> None:
        self.name, self.features, self.called = name, features, called
        self._labels = permuted_labels.shuffled(labels) if shuffled else labels
        self.units = self.slice_units = -(-len(labels) // _ROWS)
        self.unit_samples, self.n_samples = _ROWS, len(labels)
        self.ignored = torch.tensor([IGNORED]) if bool((labels == IGNORED).any()) else None

    def embeddings(self, start: int, stop: int, layers: Sequence[str]) -> dict[str, Tensor]:
        """Return the embeddings as the layer ``top``, the only layer."""
        return {TOP: self.features[start * _ROWS : stop * _ROWS]}

    def labels_at(self, places: Tensor) -> Tensor:
        return self._labels[places]

    def not_finite(self, start: int, row: int, wrong: str) -> str:
        return f"{self.called}: {self.name}_features row {start * _ROWS + row} is {wrong}: correct or remove this row"

    def batch_units(self, asked: int | str) -> int:
        """Return 1, because the last block may be shorter than the others."""
        return 1

    def coverage(self) -> dict[str, Any]:
        """Return the manifest's entry for the phase: one slice, but no numbers of chunks, because there are none."""
        return {"slices": 1}


def is_features_file(path: str | Path) -> bool:
    """Whether a path is a features file: an existing file with the suffix ``.safetensors``."""
    return Path(path).suffix == ".safetensors" and Path(path).is_file()


def features_request(path: Path, spec: CollectionSpec, folder: Path | None = None) -> Request:
    """Return the request for a features file. The file is read now, because its content is its identity.

    Without a folder, the store is in memory.

    Raises:
        UsageError: An option does not apply to a features file.
        CollapseError: The file cannot be read, or its tensors are not valid.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    check_features_options(path, spec.given)
    try:
        features = load_file(path)
    except (SafetensorError, OSError) as error:
        raise CollapseError(
            f"{path} cannot be read as safetensors: {error}. Check its permissions, or write it again"
        ) from error
    if missing := [name for name in _REQUIRED if name not in features]:
        raise CollapseError(
            f"{path} is not a features file: it has {', '.join(sorted(features))}, but lacks {', '.join(missing)}. "
            "Add train_features (N, d), train_labels (N,) and classifier (C, d); to open a model or store, give its "
            "folder"
        )
    if unknown := sorted(set(features) - set(_SHAPES)):
        log.warning(
            "%s: ignoring the unknown tensors %s; known tensors are %s", path, ", ".join(unknown), ", ".join(_SHAPES)
        )
    source = source_of(features, str(path), model=path.stem, corpus=path.name, shuffled=spec.null == "shuffled")
    source.command = f"collapse collect {shlex.quote(path.name)}"
    return source_request(source, spec, folder)


def check_features_options(path: str | Path, given: Mapping[str, Any]) -> None:
    """Raise UsageError for options that do not apply to a features file."""
    check_applies(f"{path} is a features file", given, _OPTIONS)
    if given.get("null") == "untrained":
        raise UsageError(f"{path} has no model to initialize: use --null shuffled instead of --null untrained")


def source_of(
    features: Mapping[str, Tensor], called: str, *, model: str, corpus: str, shuffled: bool = False
) -> Source:
    """Check the tensors of a features file, and make a source; equal tensors give the same identity.

    Args:
        features: The tensors, by name as in a features file; the three required tensors must be present.
        called: Name of the features for messages.
        model, corpus: Names of the model and of the data for the manifest.
        shuffled: Whether to permute the labels, for the null ``shuffled``.

    Raises:
        CollapseError: A tensor has a wrong shape or dtype, is empty, or has labels without a row in the classifier.
    """
    identity = {"features": hash_of({}, features)}
    features = _checked(features, called)
    identity["dtype"] = str(features["train_features"].dtype).removeprefix("torch.")
    phases = {
        name: ArrayPhase(name, features[f"{name}_features"], features[f"{name}_labels"], called, shuffled=shuffled)
        for name in ("train", "validation")
        if f"{name}_features" in features
    }
    return Source(
        identity=identity | ({"null": "shuffled"} if shuffled else {}),
        model={"name": model},
        corpus={"name": corpus, "validation": corpus if "validation" in phases else None},
        weight=features["classifier"],
        bias=features.get("classifier_bias"),
        train=phases["train"],
        validation=phases.get("validation"),
    )


def integer_labels(labels: Tensor, called: str, name: str) -> Tensor:
    """Return labels as int64; raise CollapseError if they are not integers."""
    if labels.is_floating_point() or labels.is_complex():
        dtype = str(labels.dtype).removeprefix("torch.")
        raise CollapseError(f"{called}: {name} is {dtype}: convert the labels to integers")
    return labels.long()


def _checked(features: Mapping[str, Tensor], called: str) -> dict[str, Tensor]:
    """Return the tensors that belong to a features file, labels as int64; raise CollapseError if one is not valid."""
    found: dict[str, Tensor] = {}
    sizes: dict[str, int] = {}
    for name, letters in _SHAPES.items():
        if name not in features:
            continue
        tensor, shape = features[name], tuple(features[name].shape)
        dtype = str(tensor.dtype).removeprefix("torch.")
        if name.endswith("_labels"):
            tensor = integer_labels(tensor, called, name)
        elif dtype not in _FLOATS:
            raise CollapseError(f"{called}: {name} is {dtype}: convert it to one of {', '.join(_FLOATS)}")
        wanted = str(tuple(sizes.get(letter, letter) for letter in letters)).replace("'", "")
        for letter, size in zip(letters, shape, strict=False):
            sizes.setdefault(letter, size)
        if list(shape) != [sizes.get(letter) for letter in letters]:
            raise CollapseError(f"{called}: {name} must have shape {wanted}, got {shape}")
        if 0 in shape:
            raise CollapseError(f"{called}: {name} is empty: its shape is {shape}")
        found[name] = tensor
    if ("validation_features" in found) != ("validation_labels" in found):
        raise CollapseError(f"{called}: give validation_features and validation_labels together")
    for name in ("train_labels", "validation_labels"):
        if name not in found:
            continue
        kept = found[name][found[name] != IGNORED]
        if not len(kept):
            raise CollapseError(f"{called}: {name} has no samples: every label is {IGNORED}")
        least, most = (int(each) for each in kept.aminmax())
        if least < 0 or most >= sizes["C"]:
            raise CollapseError(
                f"{called}: {name} run from {least} to {most}, but the classifier has rows 0 to {sizes['C'] - 1}: "
                "count classes from 0, and give a row for each"
            )
    return found
