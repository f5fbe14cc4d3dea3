"""Recipes: how to build a GPT-Neo of the paper's form from depth and width, and train it (Wu & Papyan 2024, §3.1)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from collapse.errors import UsageError, near_names

HEADS = 16
VOCABULARY = 50_257
CHUNK_LENGTH = 2048
SEED = 42
"""Default seed of the Trainer, for both initialization and order unless the name gives another."""

_SAID_ELSEWHERE = {
    "vocab_size": "--vocabulary",
    "hidden_size": "the model's name",
    "num_layers": "the model's name",
    "num_heads": "--heads",
    "window_size": "--window",
    "max_position_embeddings": "--chunk-length",
}
"""Values of GPTNeoConfig for which a recipe has its own field."""

_KINDS: dict[Any, tuple[Any, str]] = {
    int: (int, "whole number"),
    int | None: (int | None, "whole number"),
    float: (int | float, "number"),
    str: (str, "text"),
    Mapping[str, Any]: (Mapping, "mapping"),
}
"""Allowed types in a file for a field's type, and their name in messages."""

_DEEPEST, _WIDEST = 256, 65_536


@dataclass(frozen=True)
class Recipe:
    """How a model is built and trained; two runs of equal recipes on equal text give the same model.

    Attributes:
        depth: Layers L; attention alternates between global and local.
        width: Dimension d; the feed-forward layer has 4d.
        vocabulary: Rows of the tied embedding.
        chunk_length: T, also the longest sequence.
        heads: Attention heads, which divide the width.
        window: Number of keys to which a query of a local layer attends.
        epochs: Passes over the training text.
        max_steps: Largest number of optimizer steps, or None; the learning rate reaches zero at the last step.
        batch_size: Chunks per step, over all processes; 0 for the paper's (Table 3).
        learning_rate: Initial learning rate; it decays linearly to zero, without warm-up.
        weight_decay: Weight decay of all parameters but biases and layer norms.
        adam_beta1, adam_beta2, adam_epsilon: Parameters of AdamW.
        max_grad_norm: Limit to which the norm of the gradient is clipped.
        precision: "bf16" (autocast), or "float32".
        seed: Seed of the initialization.
        data_seed: Seed of the order of the chunks.
        config: Further values of transformers' GPTNeoConfig.
        trainer: Further arguments of its TrainingArguments.
    """

    depth: int
    width: int
    vocabulary: int = VOCABULARY
    chunk_length: int = CHUNK_LENGTH
    heads: int = HEADS
    window: int = 256
    epochs: int = 1
    max_steps: int | None = None
    batch_size: int = 0
    learning_rate: float = 5e-5
    weight_decay: float = 0.0005
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-8
    max_grad_norm: float = 1.0
    precision: str = "bf16"
    seed: int = SEED
    data_seed: int = SEED
    config: Mapping[str, Any] = field(default_factory=dict)
    trainer: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.batch_size == 0:
            object.__setattr__(self, "batch_size", paper_batch_size(self.depth, self.width))
        _check(self)

    def as_dict(self) -> dict[str, Any]:
        """Return the recipe as a dictionary for a run's record."""
        return asdict(self)

    @classmethod
    def from_dict(cls, recorded: dict[str, Any]) -> "Recipe":
        """Read the recipe of a run's record; unknown fields are ignored.

        Raises:
            UsageError: A value is missing, or has another type than a recipe's.
        """
        known = {each.name: _KINDS[each.type] for each in fields(cls)}
        for name, value in recorded.items():
            if name in known and (isinstance(value, bool) or not isinstance(value, known[name][0])):
                raise UsageError(f"{name} is {value!r:.40}, which is no {known[name][1]}")
        for name in ("depth", "width"):
            if name not in recorded:
                raise UsageError(f"it has no {name}")
        return cls(**{name: value for name, value in recorded.items() if name in known})

    def differences(self, other: "Recipe") -> list[str]:
        """Describe differences, such as ``width 64 and 128``: this recipe's value, then the other's."""
        mine, theirs = self.as_dict(), other.as_dict()
        return [f"{name} {mine[name]} and {theirs[name]}" for name in mine if mine[name] != theirs[name]]

    def configuration(self) -> Any:
        """Return the transformers configuration."""
        from transformers import GPTNeoConfig

        values = {
            "vocab_size": self.vocabulary,
            "hidden_size": self.width,
            "num_layers": self.depth,
            "num_heads": self.heads,
            "intermediate_size": 4 * self.width,
            "attention_types": [[[("global", "local")[layer % 2]], 1] for layer in range(self.depth)],
            "max_position_embeddings": self.chunk_length,
            "window_size": self.window,
            "activation_function": "gelu_new",
            "layer_norm_epsilon": 1e-5,
            "initializer_range": 0.02,
            "attention_dropout": 0.0,
            "embed_dropout": 0.0,
            "resid_dropout": 0.0,
            "tie_word_embeddings": True,
            "bos_token_id": self.vocabulary - 1,
            "eos_token_id": self.vocabulary - 1,
        }
        for name in self.config:
            if name in _SAID_ELSEWHERE:
                raise UsageError(f"--config-arg {name}: set it with {_SAID_ELSEWHERE[name]}")
            if not hasattr(GPTNeoConfig(), name):
                raise UsageError(
                    f"GPT-Neo's configuration has no {name!r}; {near_names(name, GPTNeoConfig().to_dict())}"
                )
        return GPTNeoConfig(**values | dict(self.config))

    @property
    def n_params(self) -> int:
        """Number of parameters, with the tied embedding counted once; valid if ``config`` changes no size.

        >>> Recipe(12, 1024).n_params, Recipe(2, 768).n_params, Recipe(1, 64).n_params
        (204680192, 54342912, 3397440)
        """
        d = self.width
        block = 12 * d * d + 10 * d  # four d×d and two 4d×d matrices; out, two layers' biases, two layer norms
        return (self.vocabulary + self.chunk_length + 2) * d + self.depth * block

    def flops_per_token(self) -> float:
        """Floating-point operations of training on one token: forward pass, and twice as many for the backward pass.

        6·(parameters of blocks and head) + 12·d·Σ over layers of the mean number of attended keys.
        """
        t, w = self.chunk_length, min(self.window, self.chunk_length)
        keys = {0: (t + 1) / 2, 1: (w * (w + 1) / 2 + (t - w) * w) / t}
        attended = sum(keys[layer % 2] for layer in range(self.depth))
        return 6 * (self.n_params - self.chunk_length * self.width) + 12 * self.width * attended


def paper_batch_size(depth: int, width: int) -> int:
    """Chunks per step, over all processes, for the row and column of Table 3 to which a size belongs.

    >>> [paper_batch_size(depth, 1024) for depth in (1, 2, 4, 8, 12)]
    [16, 8, 8, 4, 4]
    """
    if depth <= 1:
        return 16
    if depth <= 2:
        return 16 if width < 1024 else 8
    if depth <= 4:
        return 8
    return 8 if depth <= 8 and width <= 256 else 4


def _check(recipe: Recipe) -> None:
    size = f"{recipe.depth}x{recipe.width}"
    if not 1 <= recipe.depth <= _DEEPEST or not 1 <= recipe.width <= _WIDEST:
        raise UsageError(
            f"depth must be 1 to {_DEEPEST} layers and width 1 to {_WIDEST:,}, got {size} (the paper: 1x64 to 12x1024)"
        )
    if recipe.heads < 1 or recipe.width % recipe.heads:
        raise UsageError(f"{size}: {recipe.heads} heads do not divide the width {recipe.width}; {_near_widths(recipe)}")
    for option, value, least in (
        ("--vocabulary", recipe.vocabulary, 2),
        ("--chunk-length", recipe.chunk_length, 2),
        ("--epochs", recipe.epochs, 1),
        ("--batch-size", recipe.batch_size, 1),
        ("--max-steps", recipe.max_steps, 1),
        ("--window", recipe.window, 1),
    ):
        if value is not None and value < least:
            raise UsageError(f"{option} must be at least {least}, got {value}")
    if not 0 < recipe.learning_rate < 10 or not 0 <= recipe.weight_decay < 10:
        raise UsageError(
            f"the learning rate must be above 0 and the weight decay at least 0, both below 10, "
            f"got {recipe.learning_rate} and {recipe.weight_decay} (the paper: 5e-5 with 0.0005 or 0.1)"
        )
    if not all(0 <= beta < 1 for beta in (recipe.adam_beta1, recipe.adam_beta2)):
        raise UsageError(
            f"AdamW's betas must be at least 0 and below 1, got {recipe.adam_beta1} and {recipe.adam_beta2}"
        )
    if not (recipe.adam_epsilon >= 0 and recipe.max_grad_norm >= 0):
        raise UsageError(
            f"--adam-epsilon and --max-grad-norm must not be negative, got {recipe.adam_epsilon} and "
            f"{recipe.max_grad_norm}; a norm of 0 disables clipping"
        )
    if recipe.precision not in ("bf16", "float32"):
        raise UsageError(f"no precision is called {recipe.precision!r}: use bf16 or float32")


def _near_widths(recipe: Recipe) -> str:
    heads = recipe.heads
    if heads < 1:
        return "give at least one head"
    below = recipe.width // heads * heads
    near = ", ".join(str(each) for each in (below, below + heads) if each)
    return f"multiples of {heads} do, such as {near} (the paper: 64, 128, 256, 512, 768, 1024)"
