"""Invariants of a store's tensors.

A checksum detects damage, not tampering: anybody can compute one. These invariants hold for every store that a
collection or a merge writes. A store that violates one is rejected when it is read, before any metric sees it.
:mod:`collapse.stores.manifest_checks` checks shapes and dtypes.

Shapes: C classes, d dimensions, V classes in validation, S validation blocks.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from collapse.errors import StoreError
from collapse.stores.manifest_checks import covered_chunks

if TYPE_CHECKING:
    from torch import Tensor

    from collapse.numerics.statistics import EmbeddingStatistics

Tensors = Mapping[str, "Tensor"]

MOST_IDS = 1 << 24
"""Limit on class ids, because tables indexed by id are allocated; no vocabulary is as large."""

_COUNT_LIMIT = 1 << 53  # above it float64 does not represent every integer
_ROUNDING = 1e-6  # far more than the difference of two float64 sums of the same numbers in another order


def check_tensors(file: str, tensors: Tensors, manifest: Mapping[str, Any]) -> None:
    """Check one tensor file of a store against its invariants.

    Args:
        file: Its path; the file name determines the invariants, such as ``…/train.safetensors``.
        tensors: Its tensors, with the shapes and dtypes that the manifest gives.
        manifest: The store's manifest.

    Raises:
        StoreError: An invariant is violated; the message names the file and the tensor.
    """
    check = {"train": _train, "classifier": _classifier, "validation": _validation}.get(
        file.split("/")[-1].removesuffix(".safetensors"), lambda *_: None
    )
    try:
        check(tensors, manifest)
    except _Broken as broken:
        raise StoreError(f"{file}: {broken}: no collection wrote this; fetch or collect the store again") from None
    if "counts" in tensors:
        check_samples(file, tensors["counts"], manifest)


def check_samples(file: str, counts: "Tensor", manifest: Mapping[str, Any]) -> None:
    """Check that a pass counted each sample of its chunks exactly once: T − 1 samples per chunk.

    Args:
        file: The tensor file's path; files other than train and validation are ignored.
        counts: Its counts by class.
        manifest: The store's manifest; nothing is checked if it does not give the number of chunks.

    Raises:
        StoreError: There are more samples, or fewer.
    """
    phase = file.split("/")[-1].removesuffix(".safetensors")
    coverage, length = manifest["coverage"].get(phase), manifest["identity"].get("chunk_length")
    if coverage is None or "chunks" not in coverage or length is None:
        return
    covered = sum(covered_chunks(coverage))
    samples, expected = int(counts.sum()), covered * (length - 1)
    if samples != expected:
        raise StoreError(
            f"{file} counts {samples:,} samples where its {covered:,} chunks have {expected:,}: chunks were counted "
            "twice or skipped; collect again (--recollect)"
        )


def check_together(store: object, s: "EmbeddingStatistics") -> None:
    """Check the files of one layer against each other; ``store`` names the store in the message.

    Raises:
        StoreError: The validation pass predicted a class that has no mean.
    """
    if s.validation is None:
        return
    from torch import isin

    v = s.validation
    predicted = v.classes[(v.linear_predictions > 0) | (v.ncc_predictions > 0)]
    if not bool(isin(predicted, s.classes).all()):
        raise StoreError(f"{store}: its validation predicts classes without a mean: no collection wrote this")


class _Broken(Exception):
    """A violated invariant."""


def _train(tensors: Tensors, manifest: Mapping[str, Any]) -> None:
    _ids(tensors["classes"], manifest)
    _holds(int(tensors["counts"].min()) >= 1, "a class has too few samples (counts)")
    _holds(int(tensors["counts"].max()) < _COUNT_LIMIT, "counts are too large")
    for name in ("means", "variances"):
        _finite(name, tensors[name])
    _holds(float(tensors["variances"].min()) >= 0, "a variance is negative (variances)")


def _classifier(tensors: Tensors, manifest: Mapping[str, Any]) -> None:
    for name, value in tensors.items():
        _finite(name, value)


def _validation(tensors: Tensors, manifest: Mapping[str, Any]) -> None:
    counts, blocks = tensors["counts"], tensors["block_totals"]
    _holds(len(counts) > 0 and len(blocks) > 0, "no validation sample was counted")
    _ids(tensors["classes"], manifest)
    _between("counts", counts, counts.new_full((), _COUNT_LIMIT))
    for name in ("agreements", "linear_hits", "ncc_hits", "vocabulary_hits"):
        _between(name, tensors[name], counts)
    samples = int(counts.sum())
    agreed = tensors["linear_predictions"].minimum(tensors["ncc_predictions"]).sum()
    _holds(int(tensors["agreements"].sum()) <= int(agreed), "more agreements than both rules predict of one class")
    for rule in ("linear", "ncc"):
        predictions = tensors[f"{rule}_predictions"]
        _between(f"{rule}_predictions", predictions, counts.new_full((), samples))
        _holds(int(predictions.sum()) == samples, f"{rule}_predictions do not add up to the {samples:,} samples")
        _holds(bool((tensors[f"{rule}_hits"] <= predictions).all()), f"more {rule}_hits than {rule}_predictions")
    _between("argmax_without_mean", tensors["argmax_without_mean"], counts.new_full((), samples))
    loss = tensors["loss_sum"]
    for name, value in (("loss_sum", loss), ("block_totals", blocks)):
        _finite(name, value)
    _holds(bool((loss >= -_ROUNDING * counts).all()), "a loss is negative (loss_sum)")
    _holds(not bool(loss[counts == 0].any()), "a loss without samples (loss_sum)")
    _block_totals(tensors, samples)


def _block_totals(tensors: Tensors, samples: int) -> None:
    """Check that the samples, agreements, hits and loss of all blocks add up to those of all classes."""
    blocks = tensors["block_totals"]
    for column, name in enumerate(("agreements", "vocabulary_hits"), start=1):
        _between(f"block_totals of {name}", blocks[:, column], blocks[:, 0])
        total = int(tensors[name].sum())
        _holds(int(blocks[:, column].sum()) == total, f"block_totals do not add up to the {total:,} {name}")
    _holds(int(blocks[:, 0].sum()) == samples, f"block_totals do not add up to the {samples:,} samples")
    loss, by_block = float(tensors["loss_sum"].sum()), float(blocks[:, 3].sum())
    _holds(abs(loss - by_block) <= _ROUNDING * max(samples, abs(loss)), "block_totals do not add up to the loss")
    _holds(bool((blocks[:, 4].diff() > 0).all()), "the blocks of block_totals do not ascend")


def _ids(classes: "Tensor", manifest: Mapping[str, Any]) -> None:
    vocabulary = min(manifest["model"].get("vocabulary") or MOST_IDS, MOST_IDS)
    ascend = int(classes[0]) >= 0 and bool((classes.diff() > 0).all())
    _holds(ascend, "its classes do not ascend")
    _holds(int(classes[-1]) < vocabulary, f"class {int(classes[-1])} lies outside the vocabulary of {vocabulary:,}")


def _finite(name: str, values: "Tensor") -> None:
    from torch import isfinite

    # A finite sum proves that all values are finite, and needs little memory. If the sum overflows, check each value.
    _holds(bool(isfinite(values.double().sum())) or bool(isfinite(values).all()), f"{name} are not all finite")


def _between(name: str, values: "Tensor", most: "Tensor") -> None:
    _holds(bool(((values >= 0) & (values <= most)).all()), f"{name} lie outside what was counted")


def _holds(condition: bool, otherwise: str) -> None:
    if not condition:
        raise _Broken(otherwise)
