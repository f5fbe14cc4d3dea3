"""Variants of a model, its tokenizer and its texts, and the true numbers of each combination, for sequences.py."""

import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import reference
import torch
from random_models import chunks_of
from transformers import AutoModelForCausalLM, GPTNeoForCausalLM

from collapse_zoo.recipes import Recipe
from collapse_zoo.stories import stories, train_tokenizer

OF_TRAINING = ("nc1.cdnv", "nc2.norm", "nc3.self_duality")
CHECKED = (*OF_TRAINING, "nc4.agreement", "val_loss")
TOLERANCE = 2e-3  # fast attention rounds otherwise; another text, tokenizer or model differs by far more
SIZE = 7_000  # bytes of every text, so that only their content tells them apart
CHANGING = {"weights": 3, "tokenizer": 2, "text": 3, "validation": 3}  # variants of each
RECIPE = Recipe(2, 24, vocabulary=320, chunk_length=64, heads=2, window=8, config={"initializer_range": 0.3})


@dataclass(frozen=True)
class Named:
    """Variants of weights, tokenizer and texts, and the options that change the numbers."""

    weights: int
    tokenizer: int
    text: int
    validation: int
    chunk_length: int
    max_chunks: int
    dtype: str


class Variants:
    """The files of every variant, and the true numbers of each combination."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.truth = cache(self._truth)
        for seed in range(CHANGING["weights"]):
            torch.manual_seed(seed)
            GPTNeoForCausalLM(RECIPE.configuration()).save_pretrained(folder / f"weights{seed}")
        for seed in range(CHANGING["tokenizer"]):
            train_tokenizer(stories(40, seed), folder / f"tokenizer{seed}", vocabulary=280 + 20 * seed)
        for seed in range(CHANGING["text"]):
            lines = "".join(json.dumps({"text": story}) + "\n" for story in stories(40, seed))
            (folder / f"text{seed}.jsonl").write_text(lines[:SIZE].rpartition("\n")[0].ljust(SIZE, "\n"))

    def files(self, what: str, variant: int) -> dict[str, bytes]:
        """A variant's files, by path in the folder of a sequence."""
        if what in ("text", "validation"):
            return {f"{what}.jsonl": (self.folder / f"text{variant}.jsonl").read_bytes()}
        return {f"model/{file.name}": file.read_bytes() for file in (self.folder / f"{what}{variant}").iterdir()}

    def _truth(self, named: Named) -> dict[str, float]:
        """Compute the numbers without collapse."""
        model = AutoModelForCausalLM.from_pretrained(self.folder / f"weights{named.weights}").eval()
        tokenizer = self.folder / f"tokenizer{named.tokenizer}"
        dumped: dict[str, Any] = {"classifier": model.get_output_embeddings().weight.detach().numpy()}
        for name, variant in (("train", named.text), ("validation", named.validation)):
            tokens = chunks_of(tokenizer, self.folder / f"text{variant}.jsonl", named.chunk_length, named.max_chunks)
            with torch.no_grad():
                h = model.transformer(tokens).last_hidden_state
            dumped[f"{name}_features"] = h[:, :-1].flatten(0, 1).numpy()
            dumped[f"{name}_labels"] = tokens[:, 1:].flatten().numpy()
        values = reference.everything(dumped)
        return {name: float(np.float64(values[name])) for name in CHECKED} | {"samples": len(dumped["train_labels"])}

    def fits(self, row: dict[str, Any], named: Named) -> bool:
        """Whether a row has the true numbers; a trained store has only those of the training text."""
        truth, values = self.truth(replace(named, dtype="float32")), row["measurements"]
        if row["dtype"] != named.dtype or row["samples"] != truth["samples"]:
            return False
        slack = {"nc4.agreement": 2 / truth["samples"]}
        return all(
            abs(values[name] - truth[name]) <= TOLERANCE * abs(truth[name]) + slack.get(name, 0)
            for name in (CHECKED if values["val_loss"] is not None else OF_TRAINING)
        )
