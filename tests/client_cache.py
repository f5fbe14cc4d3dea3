"""Fill the cache of the Hub's client by hand, for tests without a network."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

A, B = "a" * 40, "b" * 40
"""Commits."""


def offline_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Make the client use a cache in this folder, without a network.

    Returns:
        A function that adds a repository's files at a branch or tag to the cache, and returns their folder.
    """
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder / "hub"))

    def put(
        repo: str, files: Mapping[str, str | bytes] = {}, *, ref: str = "main", commit: str = A, kind: str = "model"
    ) -> Path:
        at = folder / "hub" / f"{kind}s--{repo.replace('/', '--')}"
        snapshot = at / "snapshots" / commit
        shutil.rmtree(snapshot, ignore_errors=True)
        snapshot.mkdir(parents=True)
        (at / "refs").mkdir(exist_ok=True)
        (at / "refs" / ref).write_text(commit)
        for name, content in files.items():
            (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
            (snapshot / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return snapshot

    return put
