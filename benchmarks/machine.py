"""The machine and the code that results are of."""

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def described(*, quick: bool) -> dict[str, Any]:
    """Return the machine, versions, commit and settings of this run; ``quick`` says whether its sizes are reduced."""
    import torch

    instructions, cores = torch.backends.cpu.get_cpu_capability(), os.cpu_count() or 1
    return {
        "machine": {
            "name": machine_name(_cpu(), cores, instructions),
            "cpu": _cpu(),
            "instructions": instructions,
            "cores": cores,
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        },
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "commit": _git("rev-parse", "--short=10", "HEAD"),
        "threads": torch.get_num_threads(),
        "quick": quick,
        "date": datetime.now(UTC).date().isoformat(),
    }


def machine_name(cpu: str, cores: int, instructions: str) -> str:
    """Return a readable name of a machine for a folder.

    Virtual machines call different processors by one name, so the instructions that torch uses are part of it.

    >>> machine_name("Intel(R) Xeon(R) Platinum 8480+ CPU @ 2.00GHz", 2, "AVX512")
    'intel-xeon-platinum-8480-avx512-2-cores'
    """
    plain = re.sub(r"\((R|TM)\)|\b(CPU|Processor)\b|@.*", " ", cpu, flags=re.IGNORECASE)
    return re.sub(r"[^a-z0-9]+", "-", f"{plain} {instructions} {cores} cores".lower()).strip("-")


def _cpu() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    named = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def _git(*words: str) -> str:
    """Return what git says, or "" outside a checkout."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
