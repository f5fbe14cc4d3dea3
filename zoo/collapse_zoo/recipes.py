"""Recipes: a depth and a width become a GPT-Neo configuration of the paper's form."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Recipe:
    """How a model is built and trained; two runs of equal recipes give the same model.

    Attributes:
        depth: Layers L; attention alternates global, local.
        width: Dimension d; the feed-forward layer has 4d.
        vocabulary: Rows of the tied embedding.
        chunk_length: T, also the longest sequence.
        heads: Attention heads, which divide the width (the paper: 16).
        steps: Optimizer steps.
        batch_size: Chunks a step.
        learning_rate: At the start; it decays linearly to zero.
        weight_decay: Of all but biases and layer norms.
        seed: Of the initialization.
        data_seed: Of the order of the chunks.
    """

    depth: int
    width: int
    vocabulary: int
    chunk_length: int
    heads: int = 16
    steps: int = 200
    batch_size: int = 16
    learning_rate: float = 2e-3
    weight_decay: float = 0.0005
    seed: int = 0
    data_seed: int = 0

    @property
    def name(self) -> str:
        """``2x64-s1``: depth, width and seed."""
        return f"{self.depth}x{self.width}-s{self.seed}"

    def as_dict(self) -> dict[str, Any]:
        """For a run's record."""
        return asdict(self)

    def configuration(self) -> Any:
        """The transformers configuration."""
        from transformers import GPTNeoConfig

        kinds = ["global", "local"] * ((self.depth + 1) // 2)
        return GPTNeoConfig(
            vocab_size=self.vocabulary,
            hidden_size=self.width,
            num_layers=self.depth,
            num_heads=self.heads,
            intermediate_size=4 * self.width,
            attention_types=[[[kind], 1] for kind in kinds[: self.depth]],
            max_position_embeddings=self.chunk_length,
            window_size=256,
            activation_function="gelu_new",
            layer_norm_epsilon=1e-5,
            initializer_range=0.02,
            attention_dropout=0.0,
            embed_dropout=0.0,
            resid_dropout=0.0,
            bos_token_id=0,
            eos_token_id=0,
        )
