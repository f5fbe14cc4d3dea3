"""Record how a store was made: versions of collapse and of the libraries, the machine, and the command.

Manifests are published, so they contain no absolute path and no user name.
"""

import os
import platform
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapse.core.escaping import without_signatures
from collapse.stores.files import sha256_of
from collapse.stores.manifest import now
from collapse.version import VERSION

if TYPE_CHECKING:
    import torch

_LIBRARIES = (
    *("torch", "transformers", "tokenizers", "datasets", "safetensors", "huggingface-hub", "numpy"),
    *("bitsandbytes", "peft", "pillow", "timm", "torchao", "torchvision"),
)
_PART = r"[^\s\\/'\"=,;|<>]+"
# matches the folders of an absolute path anywhere in a text, but not those of a URL such as https://host/a
_FOLDERS = re.compile(rf"(?<![\w/\\.~-])(?:file:/+)?(?:~[\w.-]*|[A-Za-z]:)?(?:/|\\+)(?:{_PART}[\\/]+)*(?={_PART})")
# arguments whose texts are recorded unchanged; any other text may be a secret
_PLAIN = (
    "activation_function",
    "attn_implementation",
    "cache_dir",
    "code_revision",
    "device_map",
    "experts_implementation",
    "gguf_file",
    "subfolder",
    "tokenizer_type",
    "variant",
)


@dataclass(frozen=True)
class Clock:
    """The start time of an operation."""

    started: str = field(default_factory=now)
    _at: float = field(default_factory=time.perf_counter)

    def times(self) -> dict[str, Any]:
        """Return the start time, the end time (now) and the seconds between them."""
        return {"started": self.started, "finished": now(), "seconds": round(time.perf_counter() - self._at, 3)}


@cache
def versions() -> dict[str, str]:
    """Return the versions of collapse, Python and the installed libraries that affect the numbers."""
    found = {"collapse": VERSION, "python": platform.python_version()}
    for name in _LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def device_name(device: "torch.device | str") -> str:
    """Return a device's product name, such as ``NVIDIA H200`` or ``cpu (…)``; for others, such as mps, the type."""
    import torch

    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu ({processor()})" if device.type == "cpu" else device.type


def shown_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments for a library as a manifest records them: without secrets, because manifests are published.

    Numbers, booleans and None are recorded unchanged. Texts are recorded unchanged if the argument is known to hold no
    secret; of an absolute path, only the last part and a hash are recorded. Any other value (a token, a proxy with its
    password, a header) is recorded as a hash.

    >>> shown_arguments({"gguf_file": "x.Q4_1.gguf", "proxies": {"https": "http://ann:secret@host"}})
    {'gguf_file': 'x.Q4_1.gguf', 'proxies': '#4b52d4915ffc'}
    """
    return {name: _shown_argument(name, value) for name, value in arguments.items()}


def _shown_argument(name: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    digest = f"#{sha256_of(value)[:12]}"
    if name not in _PLAIN or not isinstance(value, str):
        return digest
    path = Path(value)
    return f"{path.name}{digest}" if path.is_absolute() or value.startswith("~") else value


def without_folders(value: Any) -> Any:
    """Shorten absolute paths to their last part, in a text or in all texts of a dictionary or list.

    >>> without_folders("no /home/ann/store/a, ~ann/b or ann/model at https://host/ann/c")
    'no a, b or ann/model at https://host/ann/c'
    """
    if isinstance(value, dict):
        return {key: without_folders(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(each) for each in value]
    return _FOLDERS.sub("", value) if isinstance(value, str) else value


def shown_word(word: str) -> str:
    """Return a word of a command line as the manifest records it.

    If a path may reveal the user's name, only its last part is recorded.

    >>> shown_word("/home/ann/texts/a.jsonl"), shown_word("owner/model")
    ('a.jsonl', 'owner/model')
    """
    if word.startswith(("/", "~", "..")):
        path = Path(word)
        user = {os.environ.get(name) for name in ("USER", "LOGNAME", "USERNAME")}
        word = "~" if path.name in user or word == os.path.expanduser("~") else path.name or "/"
    return without_folders(without_signatures(word))


def processor() -> str:
    """Return the processor's product name as the system reports it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
