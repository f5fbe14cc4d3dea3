"""Some random sequences of user actions print no wrong number; the long version is ``python tests/sequences.py``."""

import json
import subprocess
import sys
from pathlib import Path


def test_numbers_are_of_what_was_named():
    words = [sys.executable, Path(__file__).with_name("sequences.py"), "--sequences", "2", "--length", "5"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads(done.stdout.splitlines()[-1])
    assert counts["sequences"] == 2
    assert counts["measure done"] >= 2
