"""A small text of stories and its tokenizer."""

from pathlib import Path

import pytest

from collapse_zoo.stories import stories, write_stories
from collapse_zoo.tokenizing import train_tokenizer


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train.jsonl, validation.jsonl and tokenizer/, in a folder that runs are named after: ``texts``."""
    folder = tmp_path_factory.mktemp("some") / "texts"
    folder.mkdir()
    write_stories(folder / "train.jsonl", 60, seed=1)
    write_stories(folder / "validation.jsonl", 20, seed=2)
    train_tokenizer(stories(200, seed=1), folder / "tokenizer", vocabulary=400)
    return folder
