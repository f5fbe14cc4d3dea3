"""Run tests over one mutant after another, quickly: for mutate.py.

The tests are collected and run once; then each mutant gets a fork of that process, in which the mutated function or
constant takes the place of the old one, and which runs the tests from the quickest on until one fails. Mutants that
change something else get a pytest of their own, forked from a process that has imported the libraries.
"""

import gc
import inspect
import json
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from importlib.util import module_from_spec
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

NOT_HERE = 9  # exit code of a fork that cannot take the mutant's function over


def import_what_tests_need() -> None:
    """The libraries, which no mutant changes."""
    import beartype
    import datasets
    import hypothesis
    import jaxtyping
    import pandas
    import pytest
    import scipy.stats
    import torch
    import transformers

    del beartype, datasets, hypothesis, jaxtyping, pandas, pytest, scipy, torch
    transformers.AutoModelForCausalLM, transformers.AutoTokenizer  # noqa: B018  # loaded when first named


def in_new_session(tree: Path, words: list[str], timeout: float) -> str:
    """Run pytest in a fork of this process, in a tree: killed, survived or timeout."""
    with tempfile.TemporaryDirectory() as scratch:
        return _outcome(_forked(lambda: _pytest(tree, words, Path(scratch)), timeout))


def in_one_session(
    tree: Path, file: str, words: list[str], todo: Sequence[tuple[Any, str]], tell: Callable[[Any, str], None]
) -> tuple[list[str], list[tuple[Any, str]]]:
    """Test mutants of function bodies in forks of one pytest session.

    Returns:
        The tests, from the quickest on, and the other mutants.
    """
    with tempfile.TemporaryDirectory() as scratch:
        back = Path(scratch) / "left"
        loop = _Loop(tree / file, todo, tell, back)
        code = _forked(lambda: _pytest(tree, words, Path(scratch), loop), timeout=1e9)
        if not back.exists():
            print(f"{file}: its tests fail without a mutation ({code}), so its mutants were not tested")  # noqa: T201
            print(*Path(scratch, "log").read_text().splitlines()[-15:], sep="\n")  # noqa: T201
            return words, []
        tests, indices = json.loads(back.read_text())
    return ["--doctest-modules", *tests], [todo[i] for i in indices]


class _Loop:
    """A pytest plugin that runs the collected tests once, and then in a fork for each mutant."""

    def __init__(self, file: Path, todo: Sequence[tuple[Any, str]], tell: Callable[..., None], back: Path) -> None:
        self.file, self.todo, self.tell, self.back = file, todo, tell, back
        self.names: dict[Any, dict[str, Any]] = {}

    def pytest_runtestloop(self, session: Any) -> bool:
        sys.dont_write_bytecode = True  # from here on files change
        self.names = {item: dict(item.dtest.globs) for item in session.items if hasattr(item, "dtest")}
        seconds = {}
        for item, following in zip(session.items, [*session.items[1:], session.items[0]], strict=True):
            start = time.monotonic()
            self._run(item, following)
            seconds[item] = time.monotonic() - start
        if session.testsfailed:
            return True
        items, left = sorted(session.items, key=lambda item: seconds[item]), []
        source, longest = self.file.read_text(encoding="utf-8"), 20 + 10 * sum(seconds.values())
        print(*(f"{seconds[item]:.2f} {item.nodeid}" for item in items), sep="\n", flush=True)  # noqa: T201
        module = next(m for m in list(sys.modules.values()) if getattr(m, "__file__", None) == str(self.file))
        gc.freeze()  # what is here is no garbage: forks need not look at it
        if _forked(lambda: self._tested(session, items, module), longest) not in (0, NOT_HERE):
            return True  # the tests notice the exchange itself
        for index, (mutant, mutated) in enumerate(self.todo):
            self.file.write_text(mutated, encoding="utf-8")
            code = _forked(lambda: self._tested(session, items, module), longest)
            self.file.write_text(source, encoding="utf-8")
            if code == NOT_HERE:
                left.append(index)
            else:
                self.tell(mutant, _outcome(code))
        self.back.write_text(json.dumps(([item.nodeid for item in items], left)))
        return True

    def _tested(self, session: Any, items: Sequence[Any], module: ModuleType) -> int:
        if not _take_over(module):
            return NOT_HERE
        for names in self.names.values():
            names.update(vars(sys.modules[module.__name__]))
        for item, following in zip(items, [*items[1:], None], strict=True):
            self._run(item, following)
            if session.testsfailed:
                print("failed:", item.nodeid, flush=True)  # noqa: T201
                return 1
        return 0

    def _run(self, item: Any, following: Any) -> None:
        if item in self.names:  # a doctest loses its names when it has run
            item.dtest.globs = dict(self.names[item])
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def _take_over(module: ModuleType) -> bool:
    """Give a module the functions, defaults and constants that its file now has; whether any differed."""
    spec = module.__spec__
    assert spec is not None
    assert spec.loader is not None
    new = module_from_spec(spec)
    sys.modules[module.__name__] = new  # dataclasses look their module up by name
    spec.loader.exec_module(new)
    if module.__name__.startswith(("collapse_analyses.", "collapse_metrics.")):
        return _replace(module, new)
    sys.modules[module.__name__] = module
    changed = False
    theirs = dict(_functions(new))
    for name, function in _functions(module):
        other = theirs.get(name)
        if other is None:
            continue
        if other.__code__ != function.__code__:
            if any(
                isinstance(each, CodeType) and not each.co_name.startswith("<") for each in other.__code__.co_consts
            ):
                return False  # it makes functions, and those made when the module was imported stay as they are
            if _parameters(other) != _parameters(function):
                return False  # what wraps it checks calls by the parameters that it had
            function.__code__, changed = other.__code__, True
        if _said(other.__defaults__, other.__kwdefaults__) != _said(function.__defaults__, function.__kwdefaults__):
            function.__defaults__, function.__kwdefaults__ = other.__defaults__, other.__kwdefaults__
            changed = True
    for name, value in list(vars(module).items()):
        if isinstance(value, int | float | str | tuple | dict) and _said(value) != _said(vars(new)[name]):
            _put(value, vars(new)[name], name)
            changed = True
    return changed


def _parameters(function: FunctionType) -> list[tuple[str, Any]]:
    return [(each.name, each.kind) for each in inspect.signature(function).parameters.values()]


def _said(*values: Any) -> str:
    """Values as text, without the places of objects in memory."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(values))


def _replace(module: ModuleType, new: ModuleType) -> bool:
    """Put a plugin's new module in the place of the old, wherever its parts were imported."""
    from collapse.plugin import plugin_manager

    package, _, name = module.__name__.rpartition(".")
    setattr(sys.modules[package], name, new)
    for name, value in list(vars(module).items()):
        if name in vars(new) and getattr(value, "__module__", None) == module.__name__:
            _put(value, vars(new)[name], name)
    _put(module, new, module.__name__.split(".")[-1])
    plugin_manager.plugins.cache_clear()
    for each in list(sys.modules.values()):
        if "KNOWN" in vars(each):
            each.KNOWN = plugin_manager.plugins().measurements()
    return True


def _put(old: Any, new: Any, name: str) -> None:
    for each in list(sys.modules.values()):
        if vars(each).get(name) is old:
            setattr(each, name, new)


def _functions(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    """The functions and methods that a module defines, without their decorators."""
    for name, value in list(vars(module).items()):
        if isinstance(value, type) and value.__module__ == module.__name__:
            for key, each in list(vars(value).items()):
                yield from _innermost(f"{name}.{key}", each, module)
        else:
            yield from _innermost(name, value, module)


def _innermost(name: str, value: Any, module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    for part in (value.fget,) if isinstance(value, property) else (value,):
        inner = part.func if isinstance(part, cached_property) else getattr(part, "__func__", part)
        inner = inspect.unwrap(inner) if callable(inner) else inner
        if isinstance(inner, FunctionType) and inner.__module__ == module.__name__:
            yield name, inner


def _forked(run: Callable[[], int], timeout: float) -> int | None:
    """The exit code of a fork of this process that runs something, or None where it took too long."""
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            os._exit(run())
        except BaseException:  # this copy of the parent must not continue as the parent
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(70)
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _outcome(code: int | None) -> str:
    return {None: "timeout", 0: "survived"}.get(code, "killed")


def _pytest(tree: Path, words: list[str], scratch: Path, plugin: object = None) -> int:
    output = os.open(scratch / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(tree)
    roots = [str(tree), str(tree / "plugins"), str(tree / "zoo")]
    os.environ |= {"PYTHONPATH": os.pathsep.join(roots), "PYTHONDONTWRITEBYTECODE": "1"}
    os.environ |= {"PYTEST_XDIST_WORKER": "gw0", "OMP_NUM_THREADS": "1"}  # one thread, as beside other workers
    sys.dont_write_bytecode = plugin is None  # of the code as it is, once
    sys.path[:0] = roots
    import hypothesis
    import pytest
    import torch

    torch.set_num_threads(1)
    hypothesis.settings.register_profile("mutants", derandomize=True, database=None, deadline=None)
    hypothesis.settings.load_profile("mutants")
    options = ["-x", "-q", "-s", "-n0", "-p", "no:cacheprovider", "--no-header", f"--basetemp={scratch}/tmp"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what was imported before the fork
    return int(pytest.main([*options, *words], plugins=[plugin] if plugin else []))
