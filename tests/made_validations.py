"""Stores with an invented validation pass, in which every sample is known."""

from typing import Any

import numpy as np
import torch
from golden_store import GOLDEN

from collapse import ValidationBatch
from collapse.stores.folding_shards import build
from collapse.stores.store import Store
from collapse_metrics.kappa_groups import PredictionsByGroup

CLASSES = 12


def samples(chunks: int, seed: int = 0, *, skill: float = 0.5, length: int = 20) -> dict[str, np.ndarray]:
    """Validation samples of chunks of different lengths; chunks differ in how hard they are.

    The text (chunk, y) and how hard its chunks are depend only on ``chunks`` and ``length``, the model on the rest.
    """
    text, model = np.random.default_rng(chunks), np.random.default_rng(seed + 1)
    chunk = np.repeat(np.arange(chunks), text.integers(length // 2, length, chunks))
    hard = text.normal(size=chunks)[chunk]
    y = text.integers(0, CLASSES, len(chunk))

    def rule(skill: float) -> np.ndarray:
        return np.where(model.random(len(y)) < 1 / (1 + np.exp(-hard - skill)), y, model.integers(0, 5, len(y)))

    loss = np.exp(0.3 * hard + 0.2 * model.normal(size=len(y)) - skill)
    return {"chunk": chunk, "y": y, "linear": rule(skill), "ncc": rule(skill - 1), "hit": rule(skill), "loss": loss}


def validation(v: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """The counts of these samples, as a store holds them."""
    right = {
        "linear_hits": v["linear"] == v["y"],
        "ncc_hits": v["ncc"] == v["y"],
        "vocabulary_hits": v["hit"] == v["y"],
    }
    by_label = {"agreements": v["linear"] == v["ncc"], **right, "counts": np.ones(len(v["y"]))}

    def counted(which: np.ndarray, weights: Any = None) -> torch.Tensor:
        return torch.from_numpy(np.bincount(which, weights, minlength=CLASSES))

    chunks = v["chunk"].max() + 1
    of_chunk = [np.ones(len(v["y"])), by_label["agreements"], right["vocabulary_hits"], v["loss"]]
    return {
        "classes": 1 + torch.arange(CLASSES),  # those of the golden store with a mean
        **{name: counted(v["y"], weights).long() for name, weights in by_label.items()},
        "linear_predictions": counted(v["linear"]),
        "ncc_predictions": counted(v["ncc"]),
        "loss_sum": counted(v["y"], v["loss"]),
        "block_totals": torch.from_numpy(
            np.stack(
                [np.bincount(v["chunk"], weights, minlength=chunks) for weights in of_chunk] + [np.arange(chunks)],
                axis=1,
            )
        ),
        "argmax_without_mean": torch.zeros(1, dtype=torch.int64),
    }


def store(v: dict[str, np.ndarray] | None, *, groups: bool = False, **identity: Any) -> Store:
    """The golden store in memory with this validation pass, or without any, and with another identity."""
    golden = Store.load(GOLDEN)
    files = {name: golden.tensors(name.split("/")[1].removesuffix(".safetensors")) for name in golden.manifest["files"]}
    del files["top/validation.safetensors"]
    about = {name: golden.manifest[name] for name in ("identity", "model", "corpus", "coverage")}
    versions, makers = dict(golden.manifest["statistics"]), dict(golden.manifest.get("statistics_by", {}))
    # without the number of chunks, as of a features file: these chunks differ in length
    whole = {"slices": 1}
    about["coverage"] = {"train": whole, "validation": None if v is None else whole}
    if v is not None:
        files["top/validation.safetensors"] = validation(v)
    if v is not None and groups:
        filled = PredictionsByGroup()
        filled.update(_batch({name: torch.from_numpy(each) for name, each in v.items()}))
        files[f"top/{filled.name}.safetensors"] = filled.tensors()
        versions[filled.name], makers[filled.name] = 1, "collapse_metrics.kappa_groups"
    about["identity"] = {**about["identity"], **identity}
    return build(None, {**about, "statistics": versions, "statistics_by": makers}, files, provenance={})


def _batch(v: dict[str, torch.Tensor]) -> ValidationBatch:
    """All samples as one batch, without embeddings."""
    classes, inverse, counts = v["y"].unique(return_inverse=True, return_counts=True)
    h, nothing = torch.zeros(len(v["y"]), 1, dtype=torch.float64), torch.zeros(len(v["y"]), dtype=torch.float64)
    return ValidationBatch(
        **{name: v[name] for name in ("y", "linear", "ncc", "loss", "chunk")},
        block=v["chunk"],
        h=h,
        deviations=h,
        means=h[: len(classes)],
        confidence=nothing,
        position=nothing.long(),
        classes=classes,
        inverse=inverse,
        counts=counts,
        vocabulary=v["hit"],
    )
