"""Read JSON files."""

import json
from pathlib import Path
from typing import Any


def read_json(path: str | Path) -> Any:
    """Read a JSON file; raises OSError, and ValueError if it is not JSON."""
    return json.loads(Path(path).read_bytes())
