"""Parse and format the published names of models, such as ``TinyStories-12x1024_10L@9``.

``12x1024`` is depth and width, ``_10L`` epochs and weight decay (d 0.0005, L 0.1, n none). Repeats of a recipe add
``07`` for the seed of the order, or ``i07`` for that of the initialization. ``@9`` is the checkpoint after epoch 10.
"""

import re
from dataclasses import dataclass, replace
from typing import Any

from collapse.errors import UsageError
from collapse_zoo.recipes import SEED, Recipe

DECAYS = {"d": 0.0005, "L": 0.1, "n": 0.0}
CORPUS = "TinyStories"

_NAME = re.compile(
    r"(?:(?P<corpus>[A-Za-z0-9._-]+)-)?"
    r"(?P<depth>\d+)x(?P<width>\d+)"
    r"(?:_(?P<epochs>\d+)(?P<decay>[A-Za-z])(?P<data_seed>\d+)?(?:i(?P<seed>\d+))?)?"
    r"(?:@(?P<checkpoint>\d+))?"
)


@dataclass(frozen=True)
class Name:
    """The parts of a model's name.

    Attributes:
        depth, width: Its size.
        epochs: Passes over the text.
        decay: Weight decay: a letter of :data:`DECAYS`.
        data_seed: Seed of the order if it is a repeat, or None.
        seed: Seed of the initialization if it is a repeat, or None.
        checkpoint: k for the state after epoch k + 1; None for the last.
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
        return f"{self.depth:02d}x{self.width:04d}_{self.epochs:02d}{self.decay}{order}{initial}{at}"

    def parts(self) -> dict[str, int | float | str]:
        """Return what the name says, as columns of a table; ``seed`` and ``init_seed`` only for repeats.

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
            "recipe": f"{self.epochs}{self.decay}@{checkpoint}",
        }

    def recipe(self, **changes: Any) -> Recipe:
        """Return the paper's recipe of this name, with changed values."""
        values: dict[str, Any] = {
            "depth": self.depth,
            "width": self.width,
            "epochs": self.epochs,
            "weight_decay": DECAYS[self.decay],
            "seed": SEED if self.seed is None else self.seed,
            "data_seed": SEED if self.data_seed is None else self.data_seed,
        }
        return Recipe(**values | {name: value for name, value in changes.items() if value is not None})

    def of_run(self) -> "Name":
        """Return the run's name, which has no checkpoint."""
        return replace(self, checkpoint=None)


def parse(text: str) -> Name:
    """Parse a name: ``12x1024``, ``02x0768_01d07``, ``TinyStories-12x1024_10L@9``, ``owner/…``.

    Raises:
        UsageError: It is not such a name, its size is impossible, or its decay letter or checkpoint does not exist.
    """
    match = _NAME.fullmatch(text.rsplit("/", 1)[-1])
    if not match:
        raise UsageError(
            f"{text!r} is not a model of the zoo: write depth x width, such as 12x1024, or a whole name, "
            "such as TinyStories-12x1024_10L or 02x0768_01d07@0"
        )
    parts = match.groupdict()
    decay = parts["decay"] or "d"
    if decay not in DECAYS:
        letters = ", ".join(f"{letter} ({value})" for letter, value in DECAYS.items())
        raise UsageError(f"{text!r}: no weight decay is called {decay!r}; there are {letters}")
    numbers = {
        name: int(parts[name])
        for name in ("depth", "width", "epochs", "data_seed", "seed", "checkpoint")
        if parts[name] is not None
    }
    name = Name(decay=decay, corpus=parts["corpus"] or CORPUS, **numbers)
    if name.checkpoint is not None and name.checkpoint >= name.epochs:
        raise UsageError(
            f"{text!r}: a run of {name.epochs} epochs has the checkpoints @0 to @{name.epochs - 1}"
            if name.epochs > 1
            else f"{text!r}: a run of one epoch has the checkpoint @0 alone"
        )
    name.recipe(heads=1)  # rejects impossible sizes; only --heads decides whether the heads divide the width
    return name


def name_of(recipe: Recipe, corpus: str = CORPUS) -> Name:
    """Return the name of a recipe; a name does not contain all values (not the learning rate, for example).

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
        corpus=corpus,
    )
