"""Local texts: find the files that a name refers to, check them and hash their content."""

import codecs
import glob
import json
from collections.abc import Sequence
from pathlib import Path

from collapse.core.paths import expanded, near_paths
from collapse.core.reading import open_regular
from collapse.errors import CollapseError, UsageError
from collapse.stores.files import sha256_file, sha256_of

# Each line of a .txt file is a text and keeps its line break. \r and \r\n also end a line and are read as \n (Python's
# universal newlines): the concatenated texts are the file with these replaced.
BUILDERS = {".txt": "text", ".jsonl": "json", ".json": "json", ".parquet": "parquet"}
"""How datasets reads a file, by its suffix."""

OTHER_FILES = (".pdf", ".csv", ".tsv", ".md", ".html", ".xml", ".doc", ".docx", ".gz", ".zip", ".zst", ".xz", ".bz2")
"""Suffixes of files that are no texts for us, and no names of data sets either."""

_BLANK = b" \t\r\n\xef\xbb\xbf"


def suffix(name: str) -> str:
    """Return the suffix of a file name in lower case."""
    return Path(name).suffix.lower()


def find_files(names: Sequence[str]) -> list[str]:
    """Return the files that names and globs refer to; the name of an existing file is never a glob.

    Raises:
        UsageError: No file matches, a name is a folder, or the files are of several kinds.
    """
    files = [file for each in names for file in _matching(each)]
    kinds = {BUILDERS.get(suffix(file)) for file in files}
    if None in kinds or len(kinds) > 1:
        raise UsageError(
            f"texts must be .txt, .jsonl, .json or .parquet files, all of one kind: got {show_names(files)}"
        )
    return files


def show_names(files: Sequence[str]) -> str:
    """Return the files' names without folders; if there are many, only the first and the last."""
    names = [Path(file).name for file in files]
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} … {names[-1]} ({len(names)} files)"


def hash_checked(files: Sequence[str]) -> str:
    """Check the files and return one hash of their contents.

    Raises:
        CollapseError: A file is empty, or not UTF-8.
    """
    return sha256_of([_hash_checked(Path(file)) for file in files])


def hash_again(files: Sequence[str | Path]) -> str:
    """Return the same hash of the files' current content, without using cached hashes."""
    return sha256_of([sha256_file(Path(file), remember=False) for file in files])


def could_be_json(files: Sequence[str]) -> bool:
    """Whether one of the files could be JSON: then a .txt file with the same bytes is another text."""
    for file in files:
        try:
            with open_regular(file) as opened:
                start = opened.read(1 << 16).lstrip(_BLANK)
        except OSError as error:
            raise CollapseError(f"{file} cannot be read: {error.strerror or error}") from error
        if not start or start[:1] in b"{[":
            return True
    return False


def _matching(name: str) -> list[str]:
    if not name:
        raise UsageError("the name of a text is empty: give a file or a data set, or leave the option out")
    path = expanded(name)
    if path.is_dir():
        files = sorted(str(file) for file in path.iterdir() if suffix(file.name) in BUILDERS)
        raise UsageError(
            f"{name} is a folder: give its files, for example {path}/*{suffix(files[0]) if files else '.jsonl'}"
        )
    if path.exists():
        return [str(path)]
    matching = sorted(file for file in glob.glob(str(path), recursive=True) if Path(file).is_file())
    if not matching:
        near = [each.name for each in path.parent.iterdir() if each.is_file()] if path.parent.is_dir() else []
        hint = near_paths(name, near, stems=True)
        if hint is None and suffix(name) and suffix(name) not in BUILDERS:
            hint = "texts are .txt, .jsonl, .json or .parquet files, or a data set on the Hub"
        if hint is None and " " in name and not suffix(name):
            hint = "it looks like a text itself: collapse.collect_loaded takes texts, with a loaded model"
        raise UsageError(f"no file matches {name}" + (f"; {hint}" if hint else ""))
    return matching


def broken_line(files: Sequence[str]) -> str | None:
    """Return the place of the first line of .jsonl files that is not JSON or not valid Unicode, or None."""
    for file in files:
        if suffix(file) != ".jsonl":
            continue
        with Path(file).open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    json.dumps(json.loads(line.strip() or "0"), ensure_ascii=False).encode()
                except UnicodeEncodeError as error:
                    half = ascii(error.object[error.start])[1:-1]
                    return f"line {number:,} of {Path(file).name} holds {half}, half of a surrogate pair"
                except ValueError:
                    return f"line {number:,} of {Path(file).name} is not JSON"
    return None


def _hash_checked(path: Path) -> str:
    is_parquet = BUILDERS[suffix(path.name)] == "parquet"
    try:
        digest = sha256_file(path, examine=None if is_parquet else _Utf8(path).examine)
        if path.stat().st_size == 0:
            raise CollapseError(f"{path} is empty: there is no text in it")
    except OSError as error:
        raise CollapseError(f"{path} cannot be read: {error.strerror or error}") from error
    return digest


_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"BZh", b"PK\x03\x04")
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class _Utf8:
    """Rejects a text that is not UTF-8; the message gives the place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._position = 0

    def examine(self, block: bytes) -> None:
        held = len(self._decoder.getstate()[0])
        try:
            self._decoder.decode(block)
        except UnicodeDecodeError as error:
            place = self._position - held + error.start
            if self._position == 0 and block.startswith(_COMPRESSED):
                raise CollapseError(f"{self.path} is compressed: decompress it, and name the result") from error
            encoding = "utf-16" if self._position == 0 and block.startswith(_UTF16) else "latin1"
            raise CollapseError(
                f"{self.path} is not UTF-8 (byte {place:,}): convert it, for example with: "
                f"iconv -f {encoding} -t utf-8 {self.path.name} > new{self.path.suffix}"
            ) from error
        self._position += len(block)
        if not block and self._decoder.getstate()[0]:
            raise CollapseError(
                f"{self.path} is not UTF-8: it ends within a character (byte {self._position:,}); is it truncated?"
            )
