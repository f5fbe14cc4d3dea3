"""A GPT-Neo with random weights, its tokenizer and a text of generated stories: what collecting needs, offline."""

from pathlib import Path

import transformers

from collapse_zoo.model import build
from collapse_zoo.recipes import HEADS, Recipe
from collapse_zoo.stories import stories, write_stories
from collapse_zoo.tokenizing import train_tokenizer

_TOKENS = 80  # of a story, at least


def made_in(
    folder: Path, *, depth: int, width: int, vocabulary: int, chunk_length: int, chunks: int, heads: int = HEADS
) -> None:
    """Write model/, with its tokenizer, and train.jsonl, which has so many chunks or more, into a folder."""
    recipe = Recipe(
        depth=depth,
        width=width,
        vocabulary=vocabulary,
        chunk_length=chunk_length,
        precision="float32",
        batch_size=1,
        heads=heads,
    )
    transformers.utils.logging.disable_progress_bar()
    build(recipe).save_pretrained(folder / "model")
    train_tokenizer(stories(400, seed=1), folder / "model", vocabulary=2_048)
    write_stories(folder / "train.jsonl", chunks * chunk_length // _TOKENS + 1, seed=1)
