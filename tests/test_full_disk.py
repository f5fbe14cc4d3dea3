"""A full disk during any command: one line says what cannot be written and what to do; with space, it resumes.

A limit on the size of files stands in for the disk: a write ends half-way with an OSError, too.
"""

import os
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from commands import homes

from collapse.measurement.results import Results

TOLD = re.compile(
    r"collapse: cannot write (/\S+)(?: \([\d.,]+ MB\))?: (?:No space left on device|File too large)\. Free space or "
    r"choose another folder \(.*\), then run the command again: finished work is kept"
)


def is_told(ended, at):
    """Whether the error is about a file in a folder; it must be the only line besides progress."""
    code, said = ended
    assert code == 1, said
    progress = r"(collecting (train|validation): |Fetching \d+ files|$)"
    lines = [line for line in said.splitlines() if not re.match(progress, line)]
    found = TOLD.fullmatch(lines[0])
    assert found, said
    assert found[1].startswith(str(at)), said
    return len(lines) == 1


@pytest.mark.parametrize(
    ("name", "limits"),
    [
        ("collect", (2_000, 100_000)),
        ("merge", (2_000, 2_000_000)),
        ("pull", (2_000, 11_000_000)),
        ("measure", (2_000, 100_000)),
    ],
)
def test_no_space_is_told_and_mended(hub_runner, commands, tmp_path, name, limits):
    command, expected = commands[name], None
    for limit in (None, *limits):
        at = tmp_path / f"{limit}"
        at.mkdir()
        options = {"log": tmp_path / f"{limit}.log", "environment": homes(at)}
        if limit:
            assert is_told(hub_runner.run(command.words(at), file_limit=limit, **options), at)
            assert not command.looks_whole(at)
        code, said = hub_runner.run(command.words(at), **options)
        assert code == 0, said
        expected = expected or command.outcome(at)
        assert command.outcome(at) == expected


def test_no_space_for_a_model_of_the_hub(hub_runner, commands, tiny, tmp_path):
    commands.hub.add("owner/tiny", {file.name: file.read_bytes() for file in tiny.model.iterdir()})
    words = ["collect", "owner/tiny", *tiny.words("--store", tmp_path / "store", "--max-chunks", 20)[1:]]
    environment = homes(tmp_path)
    ended = hub_runner.run(words, tmp_path / "log", environment=environment, file_limit=100_000)
    assert is_told(ended, tmp_path)


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
def test_a_table_that_cannot_be_written(hub_runner, commands, tmp_path, suffix):
    table = tmp_path / f"table.{suffix}"
    words = ["measure", commands.big, "--metrics", "nc3", "--output", table]
    pipe = tmp_path / "pipe"  # which the limit on files does not concern
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(pipe.read_text)
        code, said = hub_runner.wait(hub_runner.start(words, pipe, file_limit=100)), told.result(timeout=60)
    assert code == 1, said
    assert "nc3.self_duality" in said  # the numbers are not lost
    assert TOLD.fullmatch(said.splitlines()[-1])
    assert not [each for each in tmp_path.iterdir() if "table" in each.name or "partial" in each.name]
    code, said = hub_runner.run(words, tmp_path / "log")
    assert code == 0, said
    assert len(Results.read(table)) == 1
