"""Print how many tests were skipped, and fail on a skip whose reason is not on the list.

python .ci/skips.py LOG
"""

import re
import sys
from pathlib import Path

ALWAYS = ("needs a GPU", "needs network", "needs Chromium", "needs bitsandbytes", "needs torchao", "needs timm")
WITHOUT_DATA = (*ALWAYS, "needs ../shared")


def main() -> int:
    """Read pytest's short summary (``-ra``)."""
    root = Path(__file__).resolve().parents[1]
    allowed = ALWAYS if (root.parent / "shared" / "data").is_dir() else WITHOUT_DATA
    found = re.findall(r"^SKIPPED \[(\d+)\] \S+ (.*)$", Path(sys.argv[1]).read_text(), re.MULTILINE)
    print(f"{sum(int(count) for count, _ in found)} tests skipped")  # noqa: T201  # a script's output
    wrong = [reason for _, reason in found if not reason.startswith(allowed)]
    for reason in wrong:
        print(f"a skip that is not on the list: {reason}")  # noqa: T201  # as above
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
