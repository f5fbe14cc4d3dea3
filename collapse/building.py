"""Compile a C file of this package, once per machine, and load it."""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from collapse.errors import CollapseError
from collapse.paths import home

_COMPILERS = ("cc", "gcc", "clang")
_OPTIONS = ("-std=gnu11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-fopenmp", "-shared", "-fPIC")


class CannotBuild(CollapseError):
    """A C file could not be compiled or loaded; the message says why."""


def built(source: Path, options: Sequence[str] = ()) -> ctypes.CDLL:
    """Return the library of a C file, compiled by ``$CC`` or the machine's compiler if this was not done before.

    It is kept in ``kernels/`` of the :func:`~collapse.paths.home` folder, under a name that holds the hash of what was
    compiled and how, and that of the library, which is compared with what is loaded.

    Args:
        source: The C file, which uses OpenMP.
        options: Further options of the compiler, as for a processor.

    Raises:
        CannotBuild: There is no compiler, it fails, or the library cannot be kept or loaded.
    """
    if os.name != "posix":
        raise CannotBuild("not on this system")
    given = [source.read_text(encoding="utf-8"), *_OPTIONS, *options, platform.system(), platform.machine()]
    key = hashlib.sha256("\0".join(given).encode()).hexdigest()[:32]
    try:
        folder = home() / "kernels"
        for file in folder.glob(f"{source.stem}-{key}-*.so"):
            if file.stem.rpartition("-")[2] != _hash(file.read_bytes()):
                file.unlink(missing_ok=True)
                continue
            with suppress(OSError):  # of a machine with other libraries, which shares the folder
                return ctypes.CDLL(str(file))
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as made:
            compiled = Path(made) / "library.so"
            _compile(source, compiled, options)
            file = folder / f"{source.stem}-{key}-{_hash(compiled.read_bytes())}.so"
            os.replace(compiled, file)
        return ctypes.CDLL(str(file))
    except (OSError, CollapseError) as error:
        raise error if isinstance(error, CannotBuild) else CannotBuild(str(error)) from error


def _compile(source: Path, to: Path, options: Sequence[str]) -> None:
    compiler = shlex.split(os.environ.get("CC", "")) or [each for each in _COMPILERS if shutil.which(each)][:1]
    if not compiler:
        raise CannotBuild("there is no C compiler such as gcc")
    if not shutil.which(compiler[0]):
        raise CannotBuild(f"there is no {compiler[0]}, the C compiler that CC names")
    command = [*compiler, *_OPTIONS, *options, "-o", str(to), str(source), "-lm"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode:
        said = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[:200])
        raise CannotBuild(f"{compiler[0]} cannot compile {source.name}: {said.strip()}")


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
