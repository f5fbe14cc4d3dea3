"""Fixtures shared by the tests."""

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from jaxtyping import install_import_hook

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"

# Shapes in signatures are checked here and only here.
install_import_hook(["collapse", "collapse_metrics"], "beartype.beartype")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data beside the repository, where there is one."""
    if not (SHARED / "data").is_dir():
        pytest.skip("needs ../shared")
    return SHARED


@pytest.fixture(scope="session")
def reference() -> ModuleType:
    """The direct float64 computations."""
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tests" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Caches in a folder of the test's own; nothing outside is looked up."""
    home = tmp_path / "collapse-home"
    monkeypatch.setenv("COLLAPSE_HOME", str(home))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))
    monkeypatch.delenv("COLLAPSE_PLUGINS", raising=False)
    return home


@pytest.fixture
def run() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command line as a user does, in a process of its own."""

    def run(*words: object, ok: bool = True, **options: object) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "collapse", *map(str, words)], capture_output=True, text=True, timeout=300, **options
        )
        assert not ok or done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run
