"""Read JSON files."""

import json
from pathlib import Path
from typing import Any


def read_json(path: str | Path) -> Any:
    """Read a JSON file; raise OSError if it cannot be read, ValueError if it is not JSON."""
    return json.loads(Path(path).read_bytes())
