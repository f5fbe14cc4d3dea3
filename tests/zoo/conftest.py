"""A small text of stories and its tokenizer, as files, as a source and as options."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from collapse_zoo.sources import Source, find_source
from collapse_zoo.stories import stories, train_tokenizer, write_stories


@pytest.fixture
def group_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make started processes fail if they end without leaving torch's process group, whose threads may abort them."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import atexit, os, sys\n"
        "def check():\n"
        "    torch = sys.modules.get('torch')\n"
        "    if torch and torch.distributed.is_initialized(): os._exit(77)\n"
        "atexit.register(check)\n"
    )
    path = os.pathsep.join(each for each in (str(tmp_path / "site"), os.environ.get("PYTHONPATH")) if each)
    monkeypatch.setenv("PYTHONPATH", path)


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """About 190 chunks of 64 tokens, a number that 8 does not divide; runs on them are named ``texts``."""
    folder = tmp_path_factory.mktemp("some") / "texts"
    found = {"text": folder / "train.jsonl", "validation_text": folder / "validation.jsonl"}
    write_stories(found["text"], 48, seed=1)
    write_stories(found["validation_text"], 20, seed=2)
    train_tokenizer(stories(200, seed=1), folder / "tokenizer", vocabulary=400)
    return {name: str(path) for name, path in found.items()} | {"tokenizer": str(folder / "tokenizer")}


@pytest.fixture(scope="session")
def source(texts: dict[str, str]) -> Source:
    """The texts and the tokenizer."""
    return find_source(**texts)


@pytest.fixture(scope="session")
def words(texts: dict[str, str]) -> Callable[..., list[str]]:
    """Options of a small training on them, and more."""
    given = [word for name, value in texts.items() for word in (f"--{name.replace('_', '-')}", value)]
    small = "--chunk-length 64 --batch-size 8 --learning-rate 1e-3 --device cpu".split()
    return lambda *more: [*given, *small, *map(str, more)]
