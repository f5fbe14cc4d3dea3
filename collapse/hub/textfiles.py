"""Find the local files that a name refers to, and stream their texts."""

import glob
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import IO, Any

from collapse.core.paths import expanded, near_paths
from collapse.errors import CollapseError, UsageError, first_line, near_names

TextNames = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

# Each line of a .txt file is a text and keeps its line break. \r and \r\n also end a line and are read as \n (Python's
# universal newlines). A .json file is a list of objects, or has one object on each line, like a .jsonl file.
TABLES = {".jsonl": "json", ".json": "json", ".parquet": "parquet"}
KINDS = {".txt": "text", **TABLES}
"""Suffixes of text files, and their formats; ``.gz`` or ``.zst`` may follow every suffix except .parquet."""

_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
"""First bytes of compressed files; no text file begins with them, because they are not valid UTF-8."""

_HELD_OUT = re.compile(r"(?<![a-z])(valid(ation)?|val|dev|test|eval)(?![a-z])", re.IGNORECASE)

_BATCH = 1000


def text_names(value: Any) -> tuple[Any, ...]:
    """Convert one name, several names or None (no name) to a tuple; paths become strings."""
    some = value if isinstance(value, Iterable) and not isinstance(value, str) else () if value is None else (value,)
    return tuple(os.fspath(each) if isinstance(each, os.PathLike) else each for each in some)


def kind_of(name: str) -> str:
    """Return the suffix that determines a file's format, in lower case; a final ``.gz`` or ``.zst`` is ignored."""
    return Path(name.lower().removesuffix(".gz").removesuffix(".zst")).suffix


def find_files(names: Sequence[str], known: Mapping[str, str] = KINDS) -> list[str]:
    """Return the files that names refer to. Each name is a file, a folder or, if neither exists, a glob.

    A folder gives its files with a suffix in ``known``, also from subfolders. ``known`` maps suffixes to formats.

    Raises:
        UsageError: A name matches no file, a folder has files of several splits, or the files do not all have the same
            known format.
    """
    files = [file for each in names for file in _matching(each, known)]
    formats = {known.get(kind_of(file)) for file in files}
    if len(formats) > 1 or None in formats:
        raise UsageError(f"{show_names(files)} cannot be read: give {_listed(known)} files, all in one format")
    return files


def _listed(known: Iterable[str]) -> str:
    *others, last = known
    return f"{', '.join(others)} or {last}"


def _matching(name: str, known: Mapping[str, str]) -> list[str]:
    path = expanded(name)
    if path.is_file():
        return [str(path)]
    is_folder = bool(name) and path.is_dir()
    pattern = f"{glob.escape(str(path))}/**" if is_folder else str(path)
    matching = sorted(file for file in glob.glob(pattern, recursive=True) if Path(file).is_file())
    if is_folder:
        matching = [file for file in matching if kind_of(file) in known]
        held_out = [file for file in matching if _HELD_OUT.search(str(Path(file).relative_to(path)))]
        others = [file for file in matching if file not in held_out]
        if held_out and others:
            raise UsageError(
                f"{name} has files of several splits, such as {others[0]} and {held_out[0]}: give the files or the "
                "folder of one split"
            )
    if not matching:
        near = [each.name for each in path.parent.iterdir() if each != path] if path.parent.is_dir() else []
        hint = near_paths(name, near) or f"give {_listed(known)} files, or a Hub data set"
        raise UsageError(f"no file matches {name or 'the empty name'}; {hint}")
    return matching


def show_names(files: Sequence[str]) -> str:
    """List the files' names, without folders; of more than three files, only the first and last name and the number."""
    names = [Path(file).name for file in files]
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} … {names[-1]} ({len(names)} files)"


def read_texts(file: str, column: str) -> Iterator[tuple[str, str]]:
    """Yield the location, such as ``line 3 of a.jsonl``, and the text of each row.

    ``column`` is the column or JSON key that holds the text; .txt files have only the column ``text``.

    Raises:
        UsageError: A row has no such column.
        CollapseError: The file cannot be read, or a row does not hold a text.
    """
    name = Path(file).name
    try:
        for place, row in _rows(file, column):
            where = f"{place} of {name}"
            yield where, _text_of(row, column, where)
    except UnicodeDecodeError as error:
        with _opened(file, errors="surrogateescape") as lines:
            number = next(number for number, line in enumerate(lines, 1) if re.search("[\udc80-\udcff]", line))
        raise CollapseError(
            f"line {number:,} of {name} is not UTF-8: convert the file, for example with iconv"
        ) from error
    except OSError as error:
        raise CollapseError(
            f"{file} cannot be read: {first_line(error)}. Check the file and its permissions"
        ) from error


def _text_of(row: Any, column: str, where: str) -> str:
    if not isinstance(row, dict):
        raise CollapseError(f"{where} is not a JSON object: make every row an object with the key {column!r}")
    if column not in row:
        raise UsageError(f"{where} has no column {column!r}; {near_names(column, row)} (--text-column)")
    text = row[column]
    if not isinstance(text, str):
        raise CollapseError(
            f"{where} holds {text!r:.60} instead of a text in column {column!r}: clean the data, or give another "
            "--text-column"
        )
    return text


def _rows(file: str, column: str) -> Iterator[tuple[str, Any]]:
    """Yield the location in the file, such as ``line 3``, and the content of each row."""
    kind = kind_of(file)
    if kind == ".parquet":
        yield from ((f"row {number:,}", row) for number, row in enumerate(_parquet_rows(file, column), 1))
        return
    name = Path(file).name
    if kind == ".json" or kind == ".jsonl":
        with _opened(file) as lines:
            text = lines.read(1 << 16)
            if text.lstrip().startswith("["):
                rows = _parsed(text + lines.read(), name)
                yield from ((f"entry {number:,}", row) for number, row in enumerate(rows, 1))
                return
    with _opened(file, "utf-8" if kind == ".txt" else "utf-8-sig") as lines:
        if kind == ".txt":
            yield from ((f"line {number:,}", {"text": line}) for number, line in enumerate(lines, 1))
            return
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield f"line {number:,}", _parsed(line, f"line {number:,} of {name}")


@contextmanager
def _opened(file: str, encoding: str = "utf-8-sig", errors: str = "strict") -> Iterator[IO[str]]:
    """Open a file as text; decompress it if it is compressed."""
    with Path(file).open("rb") as raw:
        start, stream = raw.read(4), raw
        raw.seek(0)
        if not start and file.lower().endswith((".gz", ".zst")):  # an empty text is not empty when compressed
            raise CollapseError(f"{file} is empty: copy or download it again")
        for magic, compression in _COMPRESSED.items():
            if start.startswith(magic):
                import pyarrow

                stream = pyarrow.input_stream(raw, compression=compression)
        with TextIOWrapper(stream, encoding, errors) as text:
            yield text


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise CollapseError(f"{where} is not JSON: {first_line(error)}. Correct it") from error


def _parquet_rows(file: str, column: str) -> Iterator[dict[str, Any]]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(file) as parquet:
            if column not in parquet.schema_arrow.names:
                yield dict.fromkeys(parquet.schema_arrow.names)
            batches = parquet.iter_batches(_BATCH, columns=[column])
            yield from chain.from_iterable(batch.to_pylist() for batch in batches)
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise CollapseError(f"{file} cannot be read as Parquet: {first_line(error).rstrip('.')}. Replace it") from error
