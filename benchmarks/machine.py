"""Describe the machine and the code that produced results."""

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from collapse.stores.provenance import processor

ROOT = Path(__file__).resolve().parents[1]


def described(*, quick: bool, device: str = "cpu") -> dict[str, Any]:
    """Return the machine, versions, commit and settings of this run; ``quick`` says whether its sizes are reduced."""
    import torch

    cpu, instructions, cores = _cpu(), torch.backends.cpu.get_cpu_capability(), os.cpu_count() or 1
    gpu = {} if device == "cpu" else {"gpu": torch.cuda.get_device_name()}
    commit = subprocess.run(
        ["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {
        # virtual machines report one name for different processors, so a machine's name includes the instructions
        "machine": {
            "name": re.sub(r"[^a-z0-9]+", "-", gpu.get("gpu", f"{cpu} {instructions} {cores} cores").lower()),
            **gpu,
            "cpu": cpu,
            "instructions": instructions,
            "cores": cores,
        },
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "commit": commit.stdout.strip(),
        "threads": torch.get_num_threads(),
        "quick": quick,
        "date": datetime.now(UTC).date().isoformat(),
    }


def _cpu() -> str:
    """Return the processor's name without (R), (TM), the words CPU and Processor, and the frequency."""
    return " ".join(re.sub(r"\((R|TM)\)|\b(CPU|Processor)\b|@.*", " ", processor()).split())
