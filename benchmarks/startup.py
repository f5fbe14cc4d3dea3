"""Time of ``collapse --help``, a whole process, best of ten.

python benchmarks/startup.py [--output results.json]
"""

import argparse
import shutil
import subprocess
import sys
import time

from _report import report

_PROBE = (
    "import sys; from collapse.cli import _run, _add_commands; _add_commands(); _run(['--help']); "
    "heavy = [name for name in ('torch', 'transformers', 'datasets') if name in sys.modules]; sys.exit(bool(heavy))"
)


def main() -> None:
    """Print the time and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output")
    options = parser.parse_args()
    command = shutil.which("collapse")
    assert command, "collapse is not installed in this environment"
    times = []
    for _ in range(10):
        start = time.perf_counter()
        subprocess.run([command, "--help"], check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    heavy = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, check=False).returncode
    report(
        "startup",
        options.output,
        {"seconds, best of ten (goal 0.3)": min(times), "loads torch, transformers or datasets": bool(heavy)},
    )


if __name__ == "__main__":
    main()
