"""What every benchmark prints and writes: its figures and the machine they were taken on."""

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import collapse


def report(name: str, output: str | None, figures: dict[str, Any]) -> None:
    """Print figures as JSON and, if asked, write them to a file."""
    cpu = next(
        (line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    record = {
        "benchmark": name,
        "figures": {k: round(v, 4) if isinstance(v, float) else v for k, v in figures.items()},
        "machine": {
            "cpu": cpu,
            "cores": os.cpu_count(),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            "threads": torch.get_num_threads(),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        },
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "collapse": collapse.__version__,
        },
        "date": datetime.now(UTC).date().isoformat(),
    }
    text = json.dumps(record, indent=1)
    print(text)  # noqa: T201  # a script's output
    if output:
        Path(output).write_text(text + "\n")


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []
