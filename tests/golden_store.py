"""The golden store, and a function that changes and seals its manifest."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from collapse.stores.manifest import MANIFEST, render, sealed

GOLDEN = Path(__file__).parent / "golden" / "store-v3"


def seal(store: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a manifest and seal it again, as anybody could."""
    manifest = json.loads((store / MANIFEST).read_text())
    change(manifest)
    content = {key: value for key, value in manifest.items() if key not in ("digest", "checksum", "provenance")}
    (store / MANIFEST).write_bytes(render(sealed(content, manifest["provenance"])))
