"""A features file through the same accumulators into a store in memory: the other road to the metrics.

Safetensors with ``train_features`` (N, d), ``train_labels`` (N,), ``classifier`` (C, d) and, where there are any,
``classifier_bias`` (C,), ``validation_features`` (n, d), ``validation_labels`` (n,).
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from collapse.accumulate import ClassMoments, Statistic
from collapse.decisions import Decider, ValidationTally
from collapse.errors import CollapseError
from collapse.files import load_tensors, sha256_file, stamp
from collapse.filling import Filled, makers
from collapse.finite import NotFinite, check_classifier
from collapse.plugin_manager import plugins
from collapse.precision import exact_arithmetic
from collapse.provenance import Clock, command_line, device_name, versions
from collapse.statistics import EmbeddingStatistics
from collapse.store import LAYER, Store, build

_ROWS = 8192
log = logging.getLogger("collapse")

_WANTED = {"train_features": 2, "train_labels": 1, "classifier": 2}
_FLOATS = ("float64", "float32", "float16", "bfloat16")
_OPTIONAL = {"classifier_bias": 1, "validation_features": 2, "validation_labels": 1}


def is_features_file(path: str | Path) -> bool:
    """Whether this names a features file rather than a model or a store."""
    return Path(path).suffix == ".safetensors" and Path(path).exists() and not Path(path).is_dir()


@exact_arithmetic()
def collect_features(path: str | Path, *, kinds: Sequence[type[Statistic]] | None = None) -> Store:
    """Accumulate a features file into a store in memory.

    Args:
        path: The features file.
        kinds: Plugin statistics to fill too; None for all that are registered.

    Raises:
        CollapseError: A tensor is missing, of the wrong shape or not finite, or a label lies outside the classifier.
    """
    path, clock = Path(path), Clock()
    before = stamp(path)
    features = read_features(path)
    weight, bias = features["classifier"], features.get("classifier_bias")
    check_classifier(weight, bias, f"{path}: classifier")
    kinds = list(plugins().statistics.values()) if kinds is None else kinds
    moments = ClassMoments(weight.shape[1], statistics=Filled.begin(kind for kind in kinds if kind.phase == "train"))
    labels = features["train_labels"].long()
    for start in range(0, len(labels), _ROWS):
        with _naming(path, "train_features", start):
            moments.add(features["train_features"][start : start + _ROWS], labels[start : start + _ROWS])
    s = moments.statistics_so_far()
    layers: dict[str, dict[str, Tensor]] = {
        "train": {"classes": s.classes, "counts": s.counts, "means": s.means, "variances": s.variances},
        "classifier": {"weight": weight[s.classes]} | ({} if bias is None else {"bias": bias[s.classes]}),
    }
    layers |= {name: dict(tensors) for name, tensors in s.extra.items()}
    if "validation_features" in features:
        layers |= _validated(path, features, s, Filled.begin(kind for kind in kinds if kind.phase == "validation"))
    whole = {"slices": 1, "done": [[0, 1]]}
    digest = sha256_file(path)
    if stamp(path) != before:
        raise CollapseError(f"{path} changed while it was read: run the same command again")
    about: dict[str, Any] = {
        "identity": {
            "features": digest,
            "dtype": str(features["train_features"].dtype).removeprefix("torch."),
        },
        "model": {"name": path.stem},
        "corpus": {"name": path.name, "validation": path.name if "validation_features" in features else None},
        "coverage": {"train": whole, "validation": whole if "validation_features" in features else None},
        "statistics": {kind.name: kind.version for kind in kinds if kind.name in layers},
        "statistics_by": makers(kind for kind in kinds if kind.name in layers),
    }
    files = {f"{LAYER}/{name}.safetensors": tensors for name, tensors in layers.items()}
    provenance = clock.times() | {"device": device_name("cpu"), "threads": torch.get_num_threads()}
    provenance |= {"versions": versions(), "command": command_line()}
    return build(None, about, files, provenance=provenance)


def read_features(path: Path) -> dict[str, Tensor]:
    """Read and check a features file; raises as :func:`collect_features`."""
    from safetensors import SafetensorError

    try:
        features = load_tensors(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise CollapseError(f"{path} cannot be read as safetensors: {error}") from error
    missing = [name for name in _WANTED if name not in features]
    if missing:
        raise CollapseError(
            f"{path} is no features file: it lacks {', '.join(missing)} "
            f"(it has {', '.join(sorted(features)) or 'nothing'}). "
            "It needs train_features (N, d), train_labels (N,) and classifier (C, d); for a store give its folder"
        )
    if unknown := sorted(set(features) - set(_WANTED | _OPTIONAL)):
        log.warning("%s: %s is not used; known are %s", path, ", ".join(unknown), ", ".join(_WANTED | _OPTIONAL))
    for name, dims in (_WANTED | _OPTIONAL).items():
        if name not in features:
            continue
        features[name] = _as_kept(path, name, features[name])
        if features[name].dim() != dims:
            raise CollapseError(f"{path}: {name} has shape {tuple(features[name].shape)}, not {dims} dimensions")
    classes, dim = features["classifier"].shape
    if dim < 1:
        raise CollapseError(f"{path}: classifier has shape {(classes, dim)}: embeddings need at least one dimension")
    if "classifier_bias" in features and len(features["classifier_bias"]) != classes:
        raise CollapseError(
            f"{path}: classifier_bias has {len(features['classifier_bias'])} entries for {classes} rows"
        )
    for split in ("train", "validation"):
        h, y = features.get(f"{split}_features"), features.get(f"{split}_labels")
        if (h is None) != (y is None):
            raise CollapseError(f"{path}: {split}_features and {split}_labels come together or not at all")
        if h is None or y is None:
            continue
        if len(h) != len(y) or not len(y):
            raise CollapseError(f"{path}: {split}_features has {len(h)} rows for {len(y)} labels")
        if h.shape[1] != dim:
            raise CollapseError(f"{path}: {split}_features has d = {h.shape[1]}, the classifier {dim}")
        if int(y.min()) < 0 or int(y.max()) >= classes:
            raise CollapseError(
                f"{path}: {split}_labels run from {y.min().item()} to {y.max().item()}, "
                f"but the classifier has rows 0 to {classes - 1}"
            )
    return features


def _as_kept(path: Path, name: str, tensor: Tensor) -> Tensor:
    """The tensor in a dtype that a store holds: labels as int64, all others as the floating-point numbers they are."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if name.endswith("_labels"):
        if tensor.is_floating_point() or tensor.is_complex():
            raise CollapseError(f"{path}: {name} is {dtype}: labels must be integers")
        labels = tensor.long()  # torch has no minimum of unsigned integers
        if dtype == "uint64" and bool((labels < 0).any()):
            raise CollapseError(f"{path}: {name} holds labels of 2⁶³ and more: number the classes from 0")
        return labels
    if dtype not in _FLOATS:
        raise CollapseError(f"{path}: {name} is {dtype}: convert it to one of {', '.join(_FLOATS)}")
    return tensor


def _validated(
    path: Path, features: dict[str, Tensor], s: EmbeddingStatistics, statistics: Filled
) -> dict[str, dict[str, Tensor]]:
    tally = ValidationTally(Decider(s, features["classifier"], features.get("classifier_bias")), statistics)
    labels = features["validation_labels"].long()
    for start in range(0, len(labels), _ROWS):
        with _naming(path, "validation_features", start):
            tally.add(features["validation_features"][start : start + _ROWS], labels[start : start + _ROWS])
    state = tally.state()
    parts = {"validation": {name: value for name, value in state.items() if "/" not in name}}
    return parts | tally.statistics.tensors()


@contextmanager
def _naming(path: Path, name: str, start: int) -> Iterator[None]:
    """Turn an embedding that is not finite into a message with its place in the file."""
    try:
        yield
    except NotFinite as error:
        raise CollapseError(f"{path}: {name} row {start + error.row} is {error.wrong}") from error
