"""What every collection writes: ascending class ids, finite numbers, and as many samples as its chunks have."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from collapse.errors import StoreError

if TYPE_CHECKING:
    from torch import Tensor

Tensors = Mapping[str, "Tensor"]

_OURS = ("train", "classifier", "validation")


def check_tensors(file: str, tensors: Tensors, manifest: Mapping[str, Any]) -> None:
    """Check one tensor file of a store; a plugin's statistic is its plugin's own matter.

    Args:
        file: Its path.
        tensors: Its tensors.
        manifest: The store's manifest.

    Raises:
        StoreError: Class ids do not ascend, a number is not finite, or samples do not add up.
    """
    if _stem(file) not in _OURS:
        return
    for name, tensor in tensors.items():
        if name == "classes" and not (bool((tensor.diff() > 0).all()) and bool((tensor >= 0).all())):
            raise StoreError(f"{file}: its classes do not ascend: fetch or collect the store again")
        # A finite sum proves that all values are finite, and needs little memory. If it overflows, each is checked.
        if tensor.is_floating_point() and not (tensor.double().sum().isfinite() or bool(tensor.isfinite().all())):
            raise StoreError(f"{file}: {name} are not all finite: fetch or collect the store again")
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
    coverage, length = manifest["coverage"].get(_stem(file)), manifest["identity"].get("chunk_length")
    if coverage is None or "chunks" not in coverage or length is None:
        return
    chunks = coverage["chunks"]
    samples, expected = int(counts.sum()), chunks * (length - 1)
    if samples != expected:
        raise StoreError(
            f"{file} counts {samples:,} samples where its {chunks:,} chunks have {expected:,}: chunks were counted "
            "twice or skipped; collect again (--recollect)"
        )


def _stem(file: str) -> str:
    return file.split("/")[-1].removesuffix(".safetensors")
