"""Cached stores: the path is printed, and commands accept the digest or the model."""

import re

import pytest


@pytest.fixture
def measured(tiny, run, tmp_path):
    """Measure the tiny model into an own cache; return the printed digest, and a function to run commands with it."""
    changes = {"COLLAPSE_HOME": str(tmp_path / "home")}

    def command(*words, **more):
        return run(*words, changes=changes, cwd=tiny.model.parent, **more)

    done = command("measure", *tiny.words("--max-chunks", 8, "--metrics", "nc1.cdnv"))
    (store,) = (tmp_path / "home" / "stores").iterdir()
    assert f"{tiny.model}: its store is {store}\n" in done.stderr
    return re.search(r"store ([0-9a-f]{12})\b", done.stdout)[1], command, store


def test_commands_take_the_digest_or_the_model(measured, tiny):
    digest, command, store = measured
    for name in (digest, digest[:6], tiny.model.name, tiny.model):
        assert str(store) in "".join(command("info", name).stdout.split())  # a long path is folded
    assert "all match the manifest" in command("verify", digest).stdout
    assert "A and B are the same store" in command("compare", digest, tiny.model, "--metrics", "nc1.cdnv").stdout
    assert command("tokens", digest, "--top", "2").stdout == command("tokens", store, "--top", "2").stdout
    wrong = command("info", "0" * 12, code=1)
    assert wrong.stderr == f"collapse: there is no store in {'0' * 12} (no collapse.json)\n"
