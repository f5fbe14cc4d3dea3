"""Compile a C file of this package, once per machine, and load it."""

import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from collapse.errors import CollapseError
from collapse.paths import home

log = logging.getLogger("collapse")

_COMPILERS = ("cc", "gcc", "clang")
_ARITHMETIC = ("-fno-fast-math", "-fno-math-errno", "-fno-trapping-math")
_OPTIONS = ("-std=gnu11", "-O3", *_ARITHMETIC, "-fopenmp", "-shared", "-fPIC")
_SECONDS = 120  # that a compiler may take, which needs less than one


def may_compile() -> bool:
    """Whether something may be compiled: the user has not set ``TORCH_COMPILE_DISABLE=1``."""
    return os.environ.get("TORCH_COMPILE_DISABLE") != "1"


class CannotBuild(CollapseError):
    """A C file could not be compiled or loaded; the message says why."""


def built(source: Path, functions: Sequence[str], options: Sequence[str] = ()) -> ctypes.CDLL:
    """Return the library of a C file, compiled by ``$CC`` or the machine's compiler if this was not done before.

    It is kept in ``kernels/`` of the :func:`~collapse.paths.home` folder, under a name that holds the hash of what was
    compiled and by which command, and that of the library, which is compared with what is loaded.

    Args:
        source: The C file, which uses OpenMP.
        functions: The functions that its library must have.
        options: Further options of the compiler, as for a processor.

    Raises:
        CannotBuild: There is no compiler, it fails, or the library cannot be kept or loaded.
    """
    if os.name != "posix":
        raise CannotBuild("not on this system")
    command = [*_compiler(), *_OPTIONS, *options]
    given = [source.read_text(encoding="utf-8"), *command, platform.system(), platform.machine()]
    key = hashlib.sha256("\0".join(given).encode()).hexdigest()[:32]
    try:
        folder = home() / "kernels"
        for file in folder.glob(f"{source.stem}-{key}-*.so"):
            if not file.is_file():
                continue
            if file.stem.rpartition("-")[2] != _hash(file.read_bytes()):
                file.unlink(missing_ok=True)
                continue
            with suppress(OSError, CannotBuild):  # of a machine with other libraries, which shares the folder
                return _loaded(file, functions)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as made:
            compiled = Path(made) / "library.so"
            began = time.perf_counter()
            _compile(source, compiled, command)
            log.debug("%s is compiled, in %.1f s", source.name, time.perf_counter() - began)
            _loaded(compiled, functions)
            file = folder / f"{source.stem}-{key}-{_hash(compiled.read_bytes())}.so"
            os.replace(compiled, file)
        return _loaded(file, functions)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        raise CannotBuild(f"{place}{error.strerror or error}") from error
    except CollapseError as error:
        raise error if isinstance(error, CannotBuild) else CannotBuild(str(error)) from error


def _compiler() -> list[str]:
    """Return the command of the compiler."""
    named = os.environ.get("CC", "")
    try:
        words = shlex.split(named)
    except ValueError as error:
        raise CannotBuild(f"CC={named} is not a command: {str(error).lower()}") from error
    compiler = words or [each for each in _COMPILERS if shutil.which(each)][:1]
    if not compiler:
        raise CannotBuild("there is no C compiler such as gcc")
    if not shutil.which(compiler[0]):
        raise CannotBuild(f"there is no {compiler[0]}, the C compiler that CC names")
    return compiler


def _compile(source: Path, to: Path, command: Sequence[str]) -> None:
    whole = [*command, "-o", str(to), str(source), "-lm"]
    failed = f"{command[0]} cannot compile {source.name}"
    try:
        done = subprocess.run(
            whole, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise CannotBuild(f"{failed}: it takes longer than {_SECONDS} seconds") from error
    if done.returncode or not to.is_file():
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        said = next((line for line in lines if "error" in line), lines[0] if lines else f"status {done.returncode}")
        raise CannotBuild(f"{failed}: {said if done.returncode else 'it made no library'}")


def _loaded(file: Path, functions: Sequence[str]) -> ctypes.CDLL:
    """Load a library and see that it has the functions."""
    library = ctypes.CDLL(str(file))
    for name in functions:
        if not hasattr(library, name):
            raise CannotBuild(f"the compiler made a library without the function {name}")
    return library


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
