"""Recipes: how to build and train the paper's GPT-Neo for a depth and width (Wu & Papyan 2024, §3.1).

A published name, such as ``TinyStories-12x1024_10L@9``, contains most of a recipe. ``12x1024`` is depth and width.
``_10L`` means 10 epochs with the weight decay L; the letters are d (0.0005), L (0.1) and n (0). Repeats of a recipe add
``07`` for the seed of the order of the chunks, or ``i07`` for the seed of the initialization. ``_nc3-0.1`` is a
regularizer and its weight; in ``_nc3-m0.1``, the weight is −0.1. ``_fixed-etf`` is the head (the output layer). ``@9``
is the checkpoint after epoch 10.
"""

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any

from collapse.errors import UsageError, near_names
from collapse.inputs.option_fields import checked, option

DATA_SET = "roneneldan/TinyStories"
TOKENIZER = "EleutherAI/gpt-neo-125M"
SEED = 42
"""Seed of the initialization and of the order of the chunks, unless a name contains another. The Trainer's default."""

DECAYS = {"d": 0.0005, "L": 0.1, "n": 0.0}
CORPUS = "TinyStories"
HEADS = ("tied", "untied", "fixed-etf", "fixed-frame")
_NOT_NEGATIVE: dict[str, Any] = {"valid": lambda value: value >= 0, "wanted": "at least 0"}

_LOSS = r"_[A-Za-z]\w*-m?\d+(?:\.\d+)?(?:e-?\d+)?"
_NAME = re.compile(
    r"(?:(?P<corpus>[A-Za-z0-9._-]+)-)?"
    r"(?P<depth>\d+)x(?P<width>\d+)"
    r"(?:_(?P<epochs>\d+)(?P<decay>[A-Za-z])(?P<data_seed>\d+)?(?:i(?P<seed>\d+))?)?"
    rf"(?P<regularize>(?:{_LOSS})*)(?:_(?P<head>{'|'.join(HEADS)}))?"
    r"(?:@(?P<checkpoint>\d+))?"
)


@dataclass(frozen=True)
class Recipe:
    """How a model is built and trained; two runs with equal recipes and equal texts give the same model.

    Fields with a help text are options of ``collapse zoo train``. The learning rate decays linearly to zero at the last
    step. ``seed`` is the seed of the initialization, ``data_seed`` the seed of the order of the chunks; ``regularize``
    has the weights of losses that are added to the cross-entropy; ``config`` and ``trainer`` are further values of
    GPTNeoConfig and TrainingArguments.
    """

    depth: int = option("", flag="depth", default=MISSING, least=1)
    width: int = option("", flag="width", default=MISSING, least=1)
    vocabulary: int = option("Rows of the embedding.", default=50_257, unset="the tokenizer's size", least=2)
    chunk_length: int = option("Tokens per chunk and maximum sequence length.", default=2048, least=2)
    heads: int = option("Attention heads; the width must be divisible by them.", default=16, least=1)
    window: int = option("Keys that a local layer attends to.", default=256, least=1)
    epochs: int = option("Passes over the text.", default=1, unset="from the name, or 1", least=1)
    max_steps: int | None = option("Number of optimizer steps; overrides the number of epochs.", least=1)
    batch_size: int = option("Chunks per step, over all processes.", unset="Table 3 of the paper", least=1)
    learning_rate: float = option("Initial learning rate; decays linearly to zero.", default=5e-5, **_NOT_NEGATIVE)
    weight_decay: float = option("Weight decay.", default=0.0005, unset="from the name, or 0.0005", **_NOT_NEGATIVE)
    adam_beta1: float = option("AdamW's β1.", default=0.9, **_NOT_NEGATIVE)
    adam_beta2: float = option("AdamW's β2.", default=0.999, **_NOT_NEGATIVE)
    adam_epsilon: float = option("AdamW's ε.", default=1e-8, **_NOT_NEGATIVE)
    max_grad_norm: float = option("Gradients with a larger norm are clipped.", default=1.0, **_NOT_NEGATIVE)
    head: str = option(
        "Output layer: tied to the input embedding, untied, or fixed at a simplex ETF or at random unit rows.",
        default="tied",
        metavar="|".join(HEADS),
        choices=HEADS,
    )
    precision: str = "bf16"
    seed: int = SEED
    data_seed: int = SEED
    regularize: Mapping[str, float] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    trainer: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for each in fields(self):
            if each.metadata and (value := getattr(self, each.name)) is not None:
                checked(each, value)
        if not max(self.adam_beta1, self.adam_beta2) < 1:
            betas = f"{self.adam_beta1} and {self.adam_beta2}"
            raise UsageError(f"--adam-beta1 and --adam-beta2 must be below 1, got {betas}: choose smaller values")
        if self.batch_size is None:
            object.__setattr__(self, "batch_size", paper_batch_size(self.depth, self.width))

    def check_heads(self) -> None:
        """Raise UsageError if the width is not divisible by the number of heads.

        This is checked later than the other values, because a model's name does not contain the number of heads.
        """
        if self.width % self.heads:
            raise UsageError(
                f"{self.depth}x{self.width}: the width must be divisible by the {self.heads} heads: change --heads"
            )

    def configuration(self) -> Any:
        """Return the transformers configuration: GPT-Neo's defaults, the paper's values, and ``config``.

        Raises:
            UsageError: The width is not divisible by the heads, or is too small for the head ``fixed-etf``; or a name
                in ``config`` is unknown to GPT-Neo, or names a value that another field sets.
        """
        from transformers import GPTNeoConfig

        self.check_heads()
        own = {
            "vocab_size": self.vocabulary,
            "hidden_size": self.width,
            "num_layers": self.depth,
            "num_heads": self.heads,
            "max_position_embeddings": self.chunk_length,
            "window_size": self.window,
        }
        if self.head != "tied":
            own["tie_word_embeddings"] = False
        more = {
            "intermediate_size": 4 * self.width,
            "attention_types": [[[("global", "local")[layer % 2]], 1] for layer in range(self.depth)],
            "bos_token_id": self.vocabulary - 1,
            "eos_token_id": self.vocabulary - 1,
        }
        if self.head == "fixed-etf" and self.vocabulary > self.width + 1:
            raise UsageError(
                f"--head fixed-etf: a simplex of {self.vocabulary:,} rows needs a width of at least "
                f"{self.vocabulary - 1:,}, got {self.width}: use --head fixed-frame, a wider model, or a tokenizer "
                f"with at most {self.width + 1:,} tokens"
            )
        known = GPTNeoConfig().to_dict()
        for name in self.config:
            if name in own:
                raise UsageError(
                    f"--config-arg {name} is not allowed: set width and depth with the model's name (2x64), other "
                    "values with --heads, --window, --chunk-length, --head or --tokenizer"
                )
            if name not in known:
                raise UsageError(f"GPT-Neo's configuration has no {name!r}; {near_names(name, known)}")
        return GPTNeoConfig(**own | more | dict(self.config))

    @property
    def n_params(self) -> int:
        """Number of parameters, with a tied embedding counted once; valid if ``config`` changes no size.

        >>> Recipe(12, 1024).n_params, Recipe(2, 768).n_params, Recipe(1, 64).n_params
        (204680192, 54342912, 3397440)
        """
        d = self.width
        # four d×d and two 4d×d matrices; biases of the attention's output and of two linear layers; two layer norms
        block = 12 * d * d + 10 * d
        return (self._inputs + self.vocabulary + 2) * d + self.depth * block

    @property
    def _inputs(self) -> int:
        """Number of embedding rows outside the output layer.

        It is one per position and, if the head is not tied, one per token.
        """
        return self.chunk_length + (0 if self.head == "tied" else self.vocabulary)

    def flops_per_token(self) -> float:
        """Floating-point operations for training on one token: the forward pass, and twice that for the backward pass.

        6·(parameters of blocks and head) + 12·d·Σ over layers of the mean number of attended keys.
        """
        t, w = self.chunk_length, min(self.window, self.chunk_length)
        keys = (t + 1) / 2, (w * (w + 1) / 2 + (t - w) * w) / t  # of a global and of a local layer
        attended = sum(keys[layer % 2] for layer in range(self.depth))
        return 6 * (self.n_params - self._inputs * self.width) + 12 * self.width * attended


def paper_batch_size(depth: int, width: int) -> int:
    """Return the number of chunks per step, over all processes: that of the paper's Table 3, extended to other sizes.

    >>> [paper_batch_size(depth, 1024) for depth in (1, 2, 4, 8, 12)]
    [16, 8, 8, 4, 4]
    """
    if depth <= 1 or (depth <= 2 and width < 1024):
        return 16
    return 8 if depth <= 4 or (depth <= 8 and width <= 256) else 4


@dataclass(frozen=True)
class Name:
    """A model's name. It does not contain all values of the recipe (for example, not the learning rate).

    Attributes:
        recipe: How the model is trained. A parsed name has the paper's values for everything that is not in the text.
        corpus: Label of the training text, such as TinyStories.
        checkpoint: The number k of the checkpoint after epoch k + 1; None for the name of a run.

    >>> print(Name(Recipe(12, 1024, epochs=10, weight_decay=0.1), checkpoint=9))
    TinyStories-12x1024_10L@9
    >>> parse("02x0768_01d07").recipe.data_seed
    7
    """

    recipe: Recipe
    corpus: str = CORPUS
    checkpoint: int | None = None

    def __str__(self) -> str:
        return f"{self.corpus}-{self.short}"

    @property
    def short(self) -> str:
        """The name without the corpus, as in the published tables."""
        of = self.recipe
        order = "" if of.data_seed == SEED else f"{of.data_seed:02d}"
        initial = "" if of.seed == SEED else f"i{of.seed:02d}"
        at = "" if self.checkpoint is None else f"@{self.checkpoint}"
        return f"{of.depth:02d}x{of.width:04d}_{of.epochs:02d}{self._decay}{order}{initial}{self._changes}{at}"

    @property
    def _decay(self) -> str:
        """The letter of the weight decay, or x if this value has no letter.

        A name with x cannot be parsed, but the run's record has the value.
        """
        return {value: letter for letter, value in DECAYS.items()}.get(self.recipe.weight_decay, "x")

    @property
    def _changes(self) -> str:
        """The part of the name for regularizers and a head that is not tied; "" for the paper's models."""
        head = "" if self.recipe.head == "tied" else f"_{self.recipe.head}"
        losses = [(name, "m" * (weight < 0), abs(weight)) for name, weight in sorted(self.recipe.regularize.items())]
        return "".join(f"_{name}-{sign}{size:g}".replace("+", "") for name, sign, size in losses) + head

    def parts(self) -> dict[str, int | float | str]:
        """Return the values in the name, as columns of a table.

        The column ``seed`` is the recipe's ``data_seed``, and ``init_seed`` is its ``seed``. Each is absent if it is
        the default seed.

        >>> parse("12x1024_10L").parts()["architecture"], parse("12x1024_10L@9").parts()["recipe"]
        ('12x1024', '10L@9')
        """
        of = self.recipe
        checkpoint = of.epochs - 1 if self.checkpoint is None else self.checkpoint
        seeds = {"seed": of.data_seed, "init_seed": of.seed}
        return {
            "depth": of.depth,
            "width": of.width,
            "epochs": of.epochs,
            "decay": of.weight_decay,
            "checkpoint": checkpoint,
            **{name: seed for name, seed in seeds.items() if seed != SEED},
            "architecture": f"{of.depth}x{of.width}",
            "recipe": f"{of.epochs}{self._decay}{self._changes}@{checkpoint}",
        }

    def changed(self, **values: Any) -> "Name":
        """Return the name of the recipe with other values; None leaves a value unchanged."""
        given = {name: value for name, value in values.items() if value is not None}
        return replace(self, recipe=replace(self.recipe, **given))

    def of_run(self) -> "Name":
        """Return the run's name, which has no checkpoint."""
        return replace(self, checkpoint=None)


def parse(text: str) -> Name:
    """Parse a model name: ``12x1024``, ``02x0768_01d07``, ``TinyStories-12x1024_10L@9``, ``owner/…``.

    Raises:
        UsageError: The text is not a model name, the size is invalid, or the decay letter or checkpoint does not exist.
    """
    match = _NAME.fullmatch(text.rsplit("/", 1)[-1])
    if not match:
        raise UsageError(
            f"{text!r} is not a model of the zoo: write depth x width, such as 12x1024, or a whole name, "
            "such as TinyStories-12x1024_10L or 02x0768_01d07@0"
        )
    parts = match.groupdict()
    decay, corpus = parts.pop("decay") or "d", parts.pop("corpus") or CORPUS
    if decay not in DECAYS:
        letters = ", ".join(f"{letter} ({value})" for letter, value in DECAYS.items())
        raise UsageError(f"{text!r}: no weight decay is called {decay!r}; there are {letters}")
    head, losses = parts.pop("head") or "tied", re.findall(_LOSS, parts.pop("regularize"))
    pairs = [each[1:].split("-", 1) for each in losses]
    regularize = {loss: float(weight.replace("m", "-")) for loss, weight in pairs}
    numbers: dict[str, Any] = {part: int(value) for part, value in parts.items() if value is not None}
    k = numbers.pop("checkpoint", None)
    recipe = Recipe(weight_decay=DECAYS[decay], regularize=regularize, head=head, **numbers)
    if k is not None and k >= recipe.epochs:
        raise UsageError(
            f"{text!r}: a run of {recipe.epochs} epochs has no checkpoint @{k}: use @{recipe.epochs - 1} or lower"
        )
    return Name(recipe, corpus, k)
