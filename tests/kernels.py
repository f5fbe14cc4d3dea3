"""Run the tests under other CPU kernels and thread counts, as on another machine: python tests/kernels.py --help

Results may differ in their last digits between processors. Each setting makes torch, MKL, oneDNN or NumPy run the code
for another processor, so that a test that depends on last digits already fails on this machine. Shapes in signatures
are checked too.
"""

import argparse
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

say = partial(print, flush=True)

ROOT = Path(__file__).resolve().parents[1]

# With AMX, torch's bfloat16 attention packs numbers for oneDNN by AVX-512 code of its own. No processor has AMX without
# AVX-512: where a processor without the latter is imitated, oneDNN must not see the former.
_NO_AMX = {"ONEDNN_MAX_CPU_ISA": "AVX2"}

SETTINGS = {
    "aten-default": {"ATEN_CPU_CAPABILITY": "default", **_NO_AMX},
    "aten-avx2": {"ATEN_CPU_CAPABILITY": "avx2", **_NO_AMX},
    "aten-avx512": {"ATEN_CPU_CAPABILITY": "avx512"},
    "mkl-compatible": {"MKL_CBWR": "COMPATIBLE"},
    "other-kernels": {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", **_NO_AMX},
    "onednn-sse41": {"ONEDNN_MAX_CPU_ISA": "SSE41"},
    "openblas-prescott": {"OPENBLAS_CORETYPE": "Prescott"},
    "one-thread": {"OMP_NUM_THREADS": "1"},
    "two-threads": {"OMP_NUM_THREADS": "2"},
}

NUMERICAL = (
    "tests/plugins",
    "tests/test_class_moments.py",
    "tests/test_collecting.py",
    "tests/test_decisions.py",
    "tests/test_products.py",
    "tests/test_ranking.py",
    "tests/test_tally.py",
    "tests/test_degenerate.py",
    "tests/test_models.py",
    "tests/test_pairs.py",
    "tests/test_peer_values.py",
    "tests/zoo/test_fast_gpt_neo.py",
    "tests/zoo/test_loss.py",
    "collapse",
    "plugins/collapse_geometry",
    "plugins/collapse_metrics",
)


def available(settings: dict[str, str]) -> bool:
    """Whether this processor can run a setting: AVX2 and AVX-512 are not everywhere."""
    wanted = settings.get("ATEN_CPU_CAPABILITY", "default")
    if wanted == "default":
        return True
    features = Path("/proc/cpuinfo")
    needed = {"avx2": {"avx2"}, "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"}}[wanted]
    return features.exists() and needed <= set(features.read_text().split())


def main() -> int:
    """Run pytest once for each setting; return 1 if a run failed."""
    parser = argparse.ArgumentParser(
        description="Run the tests under other CPU kernels and thread counts, as on another machine.",
        epilog="Other arguments go to pytest: python tests/kernels.py -k cdnv",
    )
    parser.add_argument("--numerical", action="store_true", help="only the numerical tests and doctests")
    parser.add_argument("--settings", action="append", choices=SETTINGS, help="only this setting; may be repeated")
    options, arguments = parser.parse_known_args()
    command = [sys.executable, "-m", "pytest", "-q", *arguments, *(NUMERICAL if options.numerical else ())]
    failed = 0
    for name in options.settings or SETTINGS:
        settings = SETTINGS[name]
        shown = " ".join(f"{variable}={value}" for variable, value in settings.items())
        if not available(settings):
            say(f"{name:<18} {shown}: not available on this processor")
            continue
        environment = os.environ | settings | {"CHECK_SHAPES": "1"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        lines = done.stdout.strip().split("\n")
        say(f"{name:<18} {shown}: {lines[-1]}")
        if done.returncode:
            failed += 1
            problems = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
            say("\n".join(f"    {line}" for line in problems or [*lines[-20:], done.stderr[-2000:]]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
