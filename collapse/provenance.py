"""Where numbers come from: the code, its libraries, the machine and the command; nothing of who ran it or where.

A manifest is made to be published. No absolute path and no user's name goes into it.
"""

import json
import os
import platform
import re
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapse.escaping import without_signatures
from collapse.files import sha256_of
from collapse.manifest import now
from collapse.reading import parse_json

if TYPE_CHECKING:
    import torch

_LIBRARIES = ("torch", "transformers", "tokenizers", "datasets", "safetensors", "huggingface-hub", "numpy")
_PART = r"[^\s\\/'\"=,;|<>]+"
# an absolute path's folders, wherever they stand in a text; not those of an address such as https://host/a
_FOLDERS = re.compile(rf"(?<![\w/\\.~-])(?:file:/+)?(?:~[\w.-]*|[A-Za-z]:)?(?:/|\\+)(?:{_PART}[\\/]+)*(?={_PART})")
# options whose values are arguments, and those arguments whose texts are recorded as they are: all others may be secret
_ARGUMENTS = ("--model-arg", "--config-arg", "--trainer-arg")
_PLAIN = (
    "activation_function",
    "attn_implementation",
    "cache_dir",
    "code_revision",
    "device_map",
    "experts_implementation",
    "gguf_file",
    "lr_scheduler_type",
    "optim",
    "subfolder",
    "tokenizer_type",
    "variant",
)


@dataclass(frozen=True)
class Clock:
    """When something began."""

    started: str = field(default_factory=now)
    _at: float = field(default_factory=time.perf_counter)

    def times(self) -> dict[str, Any]:
        """When it began, when it ended (now), and the seconds between."""
        return {"started": self.started, "finished": now(), "seconds": round(time.perf_counter() - self._at, 3)}


def versions() -> dict[str, str]:
    """Versions of collapse, Python and the libraries that numbers depend on, where they are installed."""
    import collapse

    found = {"collapse": collapse.__version__, "python": platform.python_version()}
    for name in _LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def device_name(device: "torch.device | str") -> str:
    """What a device is called by its maker: ``NVIDIA H200``; a CPU's name stands behind its kind."""
    import torch

    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu ({_processor()})" if device.type == "cpu" else device.type


def command_line() -> str | None:
    """The command line without folders of this machine; None in a notebook or script."""
    program = Path(sys.argv[0])
    if program.name != "collapse" and program.parts[-2:] != ("collapse", "__main__.py"):
        return None
    words, before = ["collapse"], ""
    for word in sys.argv[1:]:
        option, equals, argument = word.partition("=")
        if before in _ARGUMENTS:
            words.append(_argument(word))
        elif equals and option in _ARGUMENTS:
            words.append(f"{option}={_argument(argument)}")
        else:
            words.append(_word(without_signatures(word)))
        before = word
    return " ".join(words)


def shown_argument(name: str, value: Any) -> Any:
    """What a manifest says of a value that a user passes to a library: a store is made to be published.

    Numbers and booleans, and texts of arguments that hold no secrets, are recorded as they are; an absolute path as its
    last part and a hash; anything else (a token, a proxy with its password, a header) as a hash only.

    >>> shown_argument("gguf_file", "x.Q4_1.gguf"), shown_argument("low_cpu_mem_usage", True)
    ('x.Q4_1.gguf', True)
    >>> shown_argument("proxies", {"https": "http://ann:secret@host"})
    '#4b52d4915ffc'
    """
    if value is None or isinstance(value, bool | int | float):
        return value
    digest = f"#{sha256_of(value)[:12]}"
    if name not in _PLAIN or not isinstance(value, str):
        return digest
    path = Path(value)
    return f"{path.name}{digest}" if path.is_absolute() or value.startswith("~") else value


def without_folders(value: Any) -> Any:
    """A text, or all texts in a dictionary or list, with absolute paths cut down to their last part.

    >>> without_folders("no /home/ann/store/a, ~ann/b or ann/model at https://host/ann/c")
    'no a, b or ann/model at https://host/ann/c'
    """
    if isinstance(value, dict):
        return {key: without_folders(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(each) for each in value]
    return _FOLDERS.sub("", value) if isinstance(value, str) else value


def _word(word: str) -> str:
    """A word of the command line; a path that may tell who it belongs to is cut down to its last part."""
    option, equals, value = word.rpartition("=")
    path = Path(value)
    private = path.is_absolute() or value.startswith(("~", "..")) or (_is_here(path) and _users() & set(path.parts))
    if private:
        value = "~" if path.name in _users() else path.name or "/"
    return f"{option}{equals}{without_folders(value)}"


def _argument(text: str) -> str:
    """``name=value`` of such an option, as :func:`shown_argument` shows the value."""
    name, equals, value = text.partition("=")
    try:
        parsed = parse_json(value.encode())
    except ValueError:
        parsed = value
    shown = shown_argument(name, parsed)
    return f"{name}{equals}{shown if isinstance(shown, str) else json.dumps(shown)}" if equals else "#"


def _is_here(path: Path) -> bool:
    with suppress(OSError):  # a word may be anything, and too long for a path
        return path.exists() or any(sign in path.name for sign in "*?[")
    return False


def _users() -> set[str]:
    """What the user is called on this machine."""
    named = {os.environ.get(name, "") for name in ("USER", "LOGNAME", "USERNAME")}
    with suppress(RuntimeError):
        named.add(Path.home().name)
    return named - {""}


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
