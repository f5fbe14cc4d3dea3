"""Names of models, as published: ``TinyStories-12x1024_10L@9``, read and written.

``12x1024`` is depth and width, ``_10L`` epochs and decay (d 0.0005, L 0.1, n none), then what repeats a recipe: ``07``
the seed of the order, ``i07`` that of the initialization, and ``@9`` the checkpoint after epoch 10.
"""

import re
from dataclasses import dataclass, replace
from typing import Any

from collapse.errors import UsageError
from collapse_zoo.recipes import SEED, Recipe

DECAYS = {"d": 0.0005, "L": 0.1, "n": 0.0}
CORPUS = "TinyStories"

_NAME = re.compile(
    r"(?:(?P<corpus>[A-Za-z0-9.-]+)-)?"
    r"(?P<depth>\d+)x(?P<width>\d+)"
    r"(?:_(?P<epochs>\d+)(?P<decay>[A-Za-z])(?P<data_seed>\d+)?(?:i(?P<seed>\d+))?)?"
    r"(?:@(?P<checkpoint>\d+))?"
)


@dataclass(frozen=True)
class Name:
    """A model's name, in parts.

    Attributes:
        depth, width: Its size.
        epochs: Passes over the text.
        decay: Weight decay: a letter of :data:`DECAYS`.
        data_seed: Seed of the order where it is a repeat, or None.
        seed: Seed of the initialization where it is a repeat, or None.
        checkpoint: k for the state after epoch k + 1; None for the last.
        corpus: What it is trained on.

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
        """Without the corpus, as the published tables have it."""
        order = "" if self.data_seed is None else f"{self.data_seed:02d}"
        initial = "" if self.seed is None else f"i{self.seed:02d}"
        at = "" if self.checkpoint is None else f"@{self.checkpoint}"
        return f"{self.depth:02d}x{self.width:04d}_{self.epochs:02d}{self.decay}{order}{initial}{at}"

    def recipe(self, **changes: Any) -> Recipe:
        """The paper's recipe of this name, with other values where they are given."""
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
        """The run's name: without the checkpoint."""
        return replace(self, checkpoint=None)


def parse(text: str) -> Name:
    """The name that a text writes: ``12x1024``, ``02x0768_01d07``, ``TinyStories-12x1024_10L@9``, ``owner/…``.

    Raises:
        UsageError: It is no such name, its size is impossible, or its decay letter or checkpoint does not exist.
    """
    match = _NAME.fullmatch(text.rsplit("/", 1)[-1])
    if not match:
        raise UsageError(
            f"{text!r} is no model of the zoo: write depth x width, such as 12x1024, or a whole name, "
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
    name.recipe(heads=1)  # refuses impossible sizes; whether the heads divide the width depends on --heads
    return name


def name_of(recipe: Recipe, corpus: str = CORPUS) -> Name:
    """The name of a recipe; values that no name holds (a learning rate, say) do not show.

    A weight decay without a letter is an ``x``, which cannot be read back: the run's record has the value.
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
