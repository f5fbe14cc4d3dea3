"""Check a model's folder before libraries read it: they block on FIFOs, and read files of any size."""

from contextlib import suppress
from pathlib import Path

from collapse.errors import CollapseError
from collapse.reading import JSON_LIMIT, Nesting, is_utf8, open_regular, read_bounded

# Files that transformers parses as JSON. Others, such as the Trainer's state, may have any size.
_PARSED = ("*config.json", "tokenizer*.json", "*tokens*.json", "vocab.json", "*.index.json", "chat_template*.json")


def check_folder(folder: Path) -> None:
    """Refuse a folder that holds anything but files and folders, or JSON that is too large or too deeply nested.

    Raises:
        CollapseError: It does; the message names the file.
    """
    if not is_utf8(folder):
        raise CollapseError(f"{folder}: its name is not UTF-8, and safetensors opens no such name: rename it")
    try:
        paths = sorted(folder.iterdir())
    except PermissionError:
        return  # the library reports the error
    try:
        for path in paths:
            with suppress(PermissionError):  # the library reports the error if it needs the file
                _check_file(path)
    except ValueError as error:
        raise CollapseError(f"{path} cannot be read: {error}") from error
    except OSError as error:
        raise CollapseError(
            f"{error.filename or folder}: {error.strerror or error}: remove it, or name another folder"
        ) from error


def _check_file(path: Path) -> None:
    if path.is_dir() or not path.exists():
        return
    if any(path.match(pattern) for pattern in _PARSED):
        Nesting().add(read_bounded(path, JSON_LIMIT))
    else:
        open_regular(path).close()
