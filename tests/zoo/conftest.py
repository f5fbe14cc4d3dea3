"""A small text of stories and its tokenizer."""

import os
from pathlib import Path

import pytest

from collapse_zoo.stories import stories, train_tokenizer, write_stories


@pytest.fixture
def group_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that this test starts fail where they end within a group of torch's: its threads may abort them."""
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
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train.jsonl, validation.jsonl and tokenizer/, in a folder that runs are named after: ``texts``."""
    folder = tmp_path_factory.mktemp("some") / "texts"
    folder.mkdir()
    write_stories(folder / "train.jsonl", 60, seed=1)
    write_stories(folder / "validation.jsonl", 20, seed=2)
    train_tokenizer(stories(200, seed=1), folder / "tokenizer", vocabulary=400)
    return folder
