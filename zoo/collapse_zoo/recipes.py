"""Recipes: how to build and train the paper's GPT-Neo for a depth and width (Wu & Papyan 2024, §3.1).

A published name, such as ``TinyStories-12x1024_10L@9``, contains most of a recipe: ``12x1024`` is depth and width,
``_10L`` epochs and weight decay (d 0.0005, L 0.1, n none). Repeats of a recipe add ``07`` for the seed of the order, or
``i07`` for the seed of the initialization. ``_nc3-0.1`` is a regularizer and its weight (in ``_nc3-m0.1`` the weight is
−0.1). ``_fixed-etf`` is a head, an output layer. ``@9`` is the checkpoint after epoch 10.
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
"""Seed of the initialization and of the order, unless the name contains another; the Trainer's default."""

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
        if self.width % self.heads:
            raise UsageError(
                f"{self.depth}x{self.width}: the width must be divisible by the {self.heads} heads: change --heads"
            )
        if not max(self.adam_beta1, self.adam_beta2) < 1:
            betas = f"{self.adam_beta1} and {self.adam_beta2}"
            raise UsageError(f"--adam-beta1 and --adam-beta2 must be below 1, got {betas}: choose smaller values")
        if self.batch_size is None:
            object.__setattr__(self, "batch_size", paper_batch_size(self.depth, self.width))

    def configuration(self) -> Any:
        """Return the transformers configuration: GPT-Neo's defaults, the paper's values, and ``config``."""
        from transformers import GPTNeoConfig

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
                f"with at most {self.width + 1:,} tokens (with --generated, use --vocabulary; at least 61 is needed)"
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
        """Number of embedding rows outside the output layer: of positions and, unless the head is tied, of tokens."""
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
    """Return the number of chunks per step (over all processes) for a size in the paper's Table 3.

    >>> [paper_batch_size(depth, 1024) for depth in (1, 2, 4, 8, 12)]
    [16, 8, 8, 4, 4]
    """
    if depth <= 1 or (depth <= 2 and width < 1024):
        return 16
    return 8 if depth <= 4 or (depth <= 8 and width <= 256) else 4


@dataclass(frozen=True)
class Name:
    """The parts of a model's name.

    Attributes:
        depth, width: The number of layers, and the dimension of the embeddings.
        epochs: Number of passes over the text in the whole run.
        decay: Weight decay, as a letter of :data:`DECAYS`.
        data_seed: Seed of the order of the text, if the name contains it; otherwise None.
        seed: Seed of the initial weights, if the name contains it; otherwise None.
        regularize: Names and weights of regularizers, sorted by name.
        head: The output layer, one of :data:`HEADS`.
        checkpoint: The number k of the checkpoint after epoch k + 1; None if the name has no checkpoint.
        corpus: The training text.

    >>> print(Name(12, 1024, 10, "L", checkpoint=9))
    TinyStories-12x1024_10L@9
    >>> parse("02x0768_01d07").data_seed
    7
    """

    depth: int
    width: int
    epochs: int = 1
    decay: str = "d"
    data_seed: int | None = None
    seed: int | None = None
    regularize: tuple[tuple[str, float], ...] = ()
    head: str = "tied"
    checkpoint: int | None = None
    corpus: str = CORPUS

    def __str__(self) -> str:
        return f"{self.corpus}-{self.short}"

    @property
    def short(self) -> str:
        """The name without the corpus, as in the published tables."""
        order = "" if self.data_seed is None else f"{self.data_seed:02d}"
        initial = "" if self.seed is None else f"i{self.seed:02d}"
        at = "" if self.checkpoint is None else f"@{self.checkpoint}"
        return f"{self.depth:02d}x{self.width:04d}_{self.epochs:02d}{self.decay}{order}{initial}{self.changes}{at}"

    @property
    def changes(self) -> str:
        """The regularizers, and the head if it is not tied, as in the name; "" for the paper's models."""
        head = "" if self.head == "tied" else f"_{self.head}"
        losses = [(name, "m" * (weight < 0), abs(weight)) for name, weight in self.regularize]
        return "".join(f"_{name}-{sign}{size:g}".replace("+", "") for name, sign, size in losses) + head

    def parts(self) -> dict[str, int | float | str]:
        """Return the values in the name, as columns of a table; ``seed`` (order) and ``init_seed`` only for repeats.

        >>> parse("12x1024_10L").parts()["architecture"], parse("12x1024_10L@9").parts()["recipe"]
        ('12x1024', '10L@9')
        """
        checkpoint = self.epochs - 1 if self.checkpoint is None else self.checkpoint
        seeds = {"seed": self.data_seed, "init_seed": self.seed}
        return {
            "depth": self.depth,
            "width": self.width,
            "epochs": self.epochs,
            "decay": DECAYS[self.decay],
            "checkpoint": checkpoint,
            **{name: seed for name, seed in seeds.items() if seed is not None},
            "architecture": f"{self.depth}x{self.width}",
            "recipe": f"{self.epochs}{self.decay}{self.changes}@{checkpoint}",
        }

    def recipe(self, **changes: Any) -> Recipe:
        """Return the paper's recipe for this name, with ``changes``; a change to None is ignored."""
        values: dict[str, Any] = {
            "depth": self.depth,
            "width": self.width,
            "epochs": self.epochs,
            "weight_decay": DECAYS[self.decay],
            "seed": SEED if self.seed is None else self.seed,
            "data_seed": SEED if self.data_seed is None else self.data_seed,
            "regularize": dict(self.regularize),
            "head": self.head,
        }
        return Recipe(**values | {name: value for name, value in changes.items() if value is not None})

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
    regularize = tuple(sorted((loss, float(weight.replace("m", "-"))) for loss, weight in pairs))
    numbers = {part: int(value) for part, value in parts.items() if value is not None}
    name = Name(decay=decay, corpus=corpus, regularize=regularize, head=head, **numbers)
    if name.checkpoint is not None and name.checkpoint >= name.epochs:
        raise UsageError(
            f"{text!r}: a run of {name.epochs} epochs has no checkpoint @{name.checkpoint}: use @{name.epochs - 1} or "
            "lower"
        )
    name.recipe(heads=1)  # raises for impossible sizes; the check of heads must wait for --heads
    return name


def name_of(recipe: Recipe, corpus: str = CORPUS) -> Name:
    """Return the name of a recipe; a name does not contain all values (for example, not the learning rate).

    A weight decay without a letter becomes ``x``, which cannot be parsed; the run's record has the value.
    """
    letters = {value: letter for letter, value in DECAYS.items()}
    return Name(
        recipe.depth,
        recipe.width,
        recipe.epochs,
        letters.get(recipe.weight_decay, "x"),
        None if recipe.data_seed == SEED else recipe.data_seed,
        None if recipe.seed == SEED else recipe.seed,
        tuple(sorted(recipe.regularize.items())),
        recipe.head,
        corpus=corpus,
    )
