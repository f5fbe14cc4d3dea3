"""The machine and the code that figures are of: their record, and the name of their folder."""

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def described(*, quick: bool, gpu: str | None = None) -> dict[str, Any]:
    """Return the machine, versions, commit and settings of this run.

    Args:
        quick: Whether its sizes are reduced.
        gpu: Name of the GPU that computed, or None.
    """
    import torch

    import collapse

    instructions = torch.backends.cpu.get_cpu_capability()
    return {
        "machine": {
            "name": machine_name(_cpu(), _cores(), instructions, gpu),
            "cpu": _cpu(),
            "instructions": instructions,
            "cores": _cores(),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            "gpu": gpu,
        },
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": version("transformers"),
            "collapse": collapse.__version__,
        },
        "commit": _git("rev-parse", "--short=10", "HEAD"),
        "dirty": bool(_git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results")),
        "threads": torch.get_num_threads(),
        "quick": quick,
        "date": datetime.now(UTC).date().isoformat(),
    }


def machine_name(cpu: str, cores: int, instructions: str, gpu: str | None = None) -> str:
    """Return a readable name of a machine for a folder.

    Virtual machines call different processors by one name, so the instructions that torch uses are part of it.

    >>> machine_name("Intel(R) Xeon(R) Platinum 8480+ CPU @ 2.00GHz", 2, "AVX512")
    'intel-xeon-platinum-8480-avx512-2-cores'
    >>> machine_name("AMD EPYC", 16, "AVX2", "NVIDIA H100 80GB HBM3")
    'amd-epyc-avx2-16-cores-nvidia-h100-80gb-hbm3'
    """
    plain = re.sub(r"\((R|TM)\)|\b(CPU|Processor)\b|@.*", " ", cpu, flags=re.IGNORECASE)
    words = f"{plain or 'unknown'} {instructions} {cores} core{'s' if cores > 1 else ''} {gpu or ''}"
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def _cpu() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    named = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


def _git(*words: str) -> str | None:
    """Return what git says, or None outside a checkout."""
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
