"""Check a model's folder before libraries read it: they wait for FIFOs, and read whatever size a file has."""

from pathlib import Path

from collapse.errors import CollapseError
from collapse.reading import JSON_LIMIT, Nesting, is_utf8, open_regular, read_bounded

# What transformers parses as JSON, beside index files; others, such as the Trainer's state, may be of any size.
_PARSED = ("*config.json", "tokenizer*.json", "*tokens*.json", "vocab.json", "*.index.json", "chat_template*.json")


def check_folder(folder: Path) -> None:
    """Refuse a folder that holds other things than files and folders, or JSON that is too large or too deep.

    Raises:
        CollapseError: It does; the file is named.
    """
    if not is_utf8(folder):
        raise CollapseError(f"{folder}: its name is not UTF-8, and safetensors opens no such name: rename it")
    try:
        for path in sorted(folder.iterdir()):
            if path.is_dir() or not path.exists():
                continue
            if any(path.match(pattern) for pattern in _PARSED):
                Nesting().add(read_bounded(path, JSON_LIMIT))
            else:
                open_regular(path).close()
    except PermissionError:
        return  # the library says so where it needs the file
    except ValueError as error:
        raise CollapseError(f"{path} cannot be read: {error}") from error
    except OSError as error:
        raise CollapseError(
            f"{error.filename or folder}: {error.strerror or error}: remove it, or name another folder"
        ) from error
