"""Fixtures shared by the tests."""

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hub_server import Hub
from jaxtyping import install_import_hook
from tiny_model import Tiny, make_tiny

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"

# Workers share the cores. Without them, too, equal runs then give equal bytes in this process and in others.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Programs, not modules to look for doctests in.
collect_ignore = ["mutate.py", "sequences.py"]

if "CHECK_SHAPES" in os.environ:  # in signatures, as .ci/run does
    install_import_hook(["collapse", "collapse_analyses", "collapse_geometry", "collapse_metrics"], "beartype.beartype")


def pytest_collection_finish() -> None:
    """Exclude imported modules from later garbage collections, because each training ends with one."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data beside the repository, if there is one."""
    if not (SHARED / "data").is_dir():
        pytest.skip("needs ../shared")
    return SHARED


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Caches in the test's own folder; nothing outside is read."""
    home = tmp_path / "collapse-home"
    monkeypatch.setenv("COLLAPSE_HOME", str(home))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))
    monkeypatch.delenv("COLLAPSE_PLUGINS", raising=False)
    return home


@pytest.fixture
def own_plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget the plugins that a test adds, as -p does, at its end."""
    from collapse.plugin import plugin_manager

    monkeypatch.setattr(plugin_manager, "_extra", [])
    plugin_manager.plugins.cache_clear()
    yield
    plugin_manager.plugins.cache_clear()


@pytest.fixture
def load_plugin(own_plugins: None, tmp_path: Path) -> Callable[..., None]:
    """Write a plugin's source text to a file, and add it as -p does, for one test."""
    from collapse.plugin.plugin_manager import add_plugins

    def load_plugin(text, name="mine"):
        (tmp_path / f"{name}.py").write_text(text)
        add_plugins([str(tmp_path / f"{name}.py")])

    return load_plugin


@pytest.fixture(scope="session")
def warm_here() -> Iterator[Any]:
    """A process that has imported everything, including the zoo, and forks command lines in the tests' environment."""
    from commands import Runner

    made = Runner(dict(os.environ), imports=("transformers.trainer", "collapse_zoo.training"))
    yield made
    made.close()


@pytest.fixture
def run(warm_here: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command line as a user does, in its own process, and check its exit code (None: any).

    ``env`` is an environment for a new interpreter, ``changes`` are variables that are read only when they are needed.
    """

    def run(*words, code=0, env=None, changes=None, cwd=None, timeout=300):
        if env is not None:  # read when modules are imported
            done = _fresh(["-m", "collapse", *map(str, words)], env, cwd, timeout)
        else:
            outputs = tmp_path_factory.mktemp("run")  # not in tmp_path, which a test may look through
            done = _forked(warm_here, words, outputs, os.environ | (changes or {}), cwd, timeout)
        assert code in (done.returncode, None), done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


@pytest.fixture
def run_python(
    warm_here: Any, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a Python program in its own process, with everything imported, without the type checks of the tests."""

    def run_python(program, *words, cwd=None, timeout=300):
        return _forked(warm_here, words, tmp_path_factory.mktemp("run"), dict(os.environ), cwd, timeout, program)

    return run_python


def _fresh(
    words: Sequence[str], environment: dict[str, str], folder: object, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a new Python interpreter to its end."""
    command = [sys.executable, *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, timeout=timeout)


def _forked(
    warm: Any,
    words: Sequence[object],
    outputs: Path,
    environment: dict[str, str],
    folder: object,
    timeout: float,
    program: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Fork a command line or a program from a warm process, and run it to its end."""
    out, err = outputs / "out", outputs / "err"
    pid = warm.start(words, err, program=program, out=out, environment=environment, folder=folder or os.getcwd())
    too_long = threading.Timer(timeout, os.killpg, (pid, signal.SIGKILL))
    too_long.start()
    code = warm.wait(pid)
    too_long.cancel()
    return subprocess.CompletedProcess(words, code, out.read_text(), err.read_text())


def _typed(capsys: pytest.CaptureFixture[str], words: Sequence[object]) -> tuple[int, str, str]:
    """Run a command line in this process; return its exit code, stdout and stderr."""
    from collapse.cli import _add_commands, _run

    _add_commands()
    capsys.readouterr()
    code = _run([str(word) for word in words])
    return code, *capsys.readouterr()


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command line in this process, check its exit code, and return its stderr."""

    def told(code, *words):
        ended, _, said = _typed(capsys, words)
        assert ended == code, said
        assert "Traceback" not in said
        return said

    return told


@pytest.fixture
def out(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command line in this process, check that it succeeds, and return its stdout."""

    def out(*words):
        code, shown, said = _typed(capsys, words)
        assert code == 0, said
        return shown

    return out


@pytest.fixture(scope="session")
def one_hub() -> Iterator[Hub]:
    """One Hub for all tests of a process, because the client reads its address only once."""
    with Hub().start() as served:
        yield served


@pytest.fixture
def hub(one_hub: Any) -> Iterator[Any]:
    """The Hub, emptied for this test."""
    one_hub.empty()
    yield one_hub
    one_hub.empty()


@pytest.fixture(scope="session")
def warm(one_hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A process that has imported everything, and forks command lines that use the Hub."""
    from commands import Runner

    made = Runner(one_hub.environment(tmp_path_factory.mktemp("warm"), token=None))
    yield made
    made.close()


@pytest.fixture
def as_user(hub: Any, warm: Any, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run collapse or a Python program as a user with an own home folder; on request, in a new interpreter.

    Without a new interpreter, zygote.py makes the process offline, because the client has read its environment.
    """

    def as_user(
        *words,
        token="hf_owner",
        home="home",
        code=0,
        offline=False,
        python=None,
        fresh=False,
        changes=None,
        cwd=None,
        timeout=200,
    ):
        environment = hub.environment(tmp_path / home, token) | ({"HF_HUB_OFFLINE": "1"} if offline else {})
        environment |= changes or {}
        if fresh:
            command = ["-c", python] if python else ["-m", "collapse", *map(str, words)]
            done = _fresh(command, environment, cwd, timeout)
        else:
            outputs = Path(tempfile.mkdtemp(dir=tmp_path))
            done = _forked(warm, words, outputs, environment, cwd, timeout, python)
        assert "Traceback" not in done.stderr, done.stderr
        assert code in (done.returncode, None), done.stderr
        assert "hf_owner" not in done.stdout + done.stderr
        return done

    return as_user


@pytest.fixture(scope="module")
def runner(warm_here: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The warm process, with caches of this module's own."""
    return warm_here.at(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def hub_runner(commands: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A warm process with caches of its own, whose Hub is that of the five commands."""
    from commands import Runner

    made = Runner(commands.hub.environment(tmp_path_factory.mktemp("home")))
    yield made
    made.close()


@pytest.fixture(scope="module")
def commands(tiny: Tiny, tmp_path_factory) -> Iterator[Any]:
    """The five commands that write, and a slow Hub for them."""
    from commands import Commands

    with Hub().start() as served:
        served.pause = 0.01
        yield Commands(served, tiny, tmp_path_factory.mktemp("commands"))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """A small random model, which is made quickly: 2 layers, d = 48, about 500 tokens."""
    return make_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def whole(tiny, tmp_path_factory):
    """The store of one process on the tiny text."""
    import collapse

    return collapse.collect(tiny.model, store=tmp_path_factory.mktemp("whole") / "store", **tiny.options())


@pytest.fixture(scope="session")
def stored(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The store of 24 chunks of the tiny text, for tests that only read it."""
    import collapse

    return collapse.collect(tiny.model, store=tmp_path_factory.mktemp("stored") / "s", max_chunks=24, **tiny.options())


@pytest.fixture(scope="session")
def decoding(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model, with a tokenizer that decodes what it encodes."""
    model = shutil.copytree(tiny.model, tmp_path_factory.mktemp("tokens") / "decoding")
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    tokenizer["decoder"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    return model
