"""The sample package: as it stands it keeps every law, and each one that is taken out of it is named.

Its own tests run where it is installed (.ci/run); here it is a copy of its files.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[1] / "docs" / "example-plugin"
DISTANCE = "check_metric(spread.between)"
LONGEST = "check_statistic(longest.Longest)"


def checked(folder, call):
    code = f"from collapse.testing import *; from collapse_example import longest, spread; {call}"
    path = os.pathsep.join(each for each in (str(folder), os.environ.get("PYTHONPATH")) if each)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}, timeout=120
    )


@pytest.mark.parametrize(
    ("file", "kept", "broken", "call", "law"),
    [
        ("spread.py", "scale=1)", "scale=0)", DISTANCE, "law of scale"),
        ("spread.py", "return distance\n", "return distance.cumsum(dim=0)\n", DISTANCE, "law of symmetry"),
        ("longest.py", '"max")', '"sum")', LONGEST, "law of merge"),
    ],
)
def test_a_law_that_is_taken_out_is_named(tmp_path, file, kept, broken, call, law):
    shutil.copytree(EXAMPLE / "collapse_example", tmp_path / "collapse_example")
    changed = tmp_path / "collapse_example" / file
    text = changed.read_text()
    assert kept in text
    changed.write_text(text.replace(kept, broken))
    assert law in checked(tmp_path, call).stderr
