"""A text or a data set: what a name stands for, known without loading it, and its rows.

Local files are hashed in full, so that a store names the text it was collected on wherever the files lie.
"""

import codecs
import glob
import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collapse.errors import CollapseError, UsageError, first_line, near_names
from collapse.files import ANOTHER_CACHE, ANOTHER_HOME, raise_if_full, sha256_file, sha256_of
from collapse.hub import is_repo_id, resolve_commit, split_revision

# One line of a .txt file is a text and keeps its line break, so that the texts laid end to end are the file.
_BUILDERS = {".txt": "text", ".jsonl": "json", ".json": "json", ".parquet": "parquet"}
_READ = 1 << 20


@dataclass(frozen=True)
class Corpus:
    """A text, found.

    Attributes:
        name: As shown: the data set's id, or the files' names.
        source: "files" or "hub".
        files: Local paths, in order.
        split: Split of a data set; None for files.
        column: Column that holds the text.
        revision: Commit of a Hub data set.
        sha256: Hash of the files' contents.
        online: Whether the Hub answered; else only cached files are used.
    """

    name: str
    source: str
    files: tuple[str, ...] = ()
    split: str | None = None
    column: str = "text"
    revision: str | None = None
    sha256: str | None = None
    online: bool = True

    def identity(self) -> dict[str, Any]:
        """What makes it this text: equal wherever its files lie and whatever they are called."""
        if self.source == "files":
            return {"sha256": self.sha256, "column": self.column}
        return {"name": self.name, "revision": self.revision, "split": self.split, "column": self.column}


def find_corpus(text: str | Sequence[str], *, split: str = "train", text_column: str = "text") -> Corpus:
    """What a ``--text`` stands for: files, globs, or a data set on the Hub (``owner/name``, ``owner/name@revision``).

    Raises:
        UsageError: No file matches, the files are of several kinds, or the Hub has no such data set.
        CollapseError: A file is empty or not UTF-8, or the Hub cannot be reached and nothing is cached.
    """
    given = [text] if isinstance(text, str) else list(text)
    if len(given) == 1 and not _looks_local(given[0]):
        repo, revision = split_revision(given[0])
        try:
            commit, online = resolve_commit(repo, revision, "dataset")
        except UsageError as error:
            raise UsageError(f"{error}; and there is no file {given[0]}") from error
        return Corpus(repo, "hub", (), split, text_column, commit, online=online)
    files = [file for each in given for file in _matching(each)]
    kinds = {_BUILDERS.get(_suffix(file)) for file in files}
    if None in kinds or len(kinds) > 1:
        raise UsageError(f"texts must be .txt, .jsonl or .parquet files, all of one kind: got {_names(files)}")
    hashes = []
    for file in files:
        _check_readable(Path(file), binary=kinds == {"parquet"})
        hashes.append(sha256_file(Path(file)))
    return Corpus(_names(files), "files", tuple(files), None, text_column, None, sha256_of(hashes))


def load_rows(corpus: Corpus, cache: Path) -> Any:
    """The corpus as a ``datasets.Dataset``.

    Raises:
        UsageError: There is no such split or column; near names are given.
        CollapseError: It cannot be loaded.
    """
    os.environ.setdefault("HF_UPDATE_DOWNLOAD_COUNTS", "0")
    import datasets
    from datasets.exceptions import DatasetGenerationError

    with _quiet(datasets):
        try:
            if corpus.source == "files":
                builder = _BUILDERS[_suffix(corpus.files[0])]
                options: dict[str, Any] = {"keep_linebreaks": True} if builder == "text" else {}
                rows = datasets.load_dataset(
                    builder, data_files=list(corpus.files), split="train", cache_dir=str(cache / "datasets"), **options
                )
            else:
                rows = _load_hub(datasets, corpus)
        except (OSError, ValueError, RuntimeError, DatasetGenerationError) as error:
            if corpus.source == "files":
                raise_if_full(error, cache / "datasets", ANOTHER_HOME)
            raise_if_full(error, datasets.config.HF_CACHE_HOME, ANOTHER_CACHE)
            if not isinstance(error, DatasetGenerationError):
                raise CollapseError(f"{corpus.name} cannot be loaded: {first_line(error)}") from error
            raise CollapseError(f"{corpus.name} cannot be read: {first_line(error.__cause__ or error)}") from error
    if corpus.column not in rows.column_names:
        raise UsageError(
            f"{corpus.name} has no column {corpus.column!r}; {near_names(corpus.column, rows.column_names)} "
            "(--text-column)"
        )
    return rows


def texts(rows: Any, corpus: Corpus, start: int, stop: int) -> list[str]:
    """Rows start to stop as texts.

    Raises:
        CollapseError: A row holds no text.
    """
    found = rows[start:stop][corpus.column]
    for index, each in enumerate(found):
        if not isinstance(each, str):
            raise CollapseError(
                f"{corpus.name}: row {start + index:,} of column {corpus.column!r} holds {each!r}, not a text; "
                "clean the data, or name another --text-column"
            )
    return list(found)


def _load_hub(datasets: Any, corpus: Corpus) -> Any:
    if not corpus.online:
        datasets.config.HF_DATASETS_OFFLINE = True
    try:
        return datasets.load_dataset(corpus.name, revision=corpus.revision, split=corpus.split)
    except ValueError as error:
        if "split" in str(error).lower():
            raise unknown_split(corpus, error) from error
        raise


def unknown_split(corpus: Corpus, error: ValueError) -> UsageError:
    """The message for a split that a data set does not have; ``datasets`` names those it has in quotes."""
    known = re.findall(r"'([^']+)'", str(error).partition("one of")[2])
    hint = near_names(str(corpus.split), known)
    return UsageError(f"{corpus.name} has no split {corpus.split!r}; {hint} (--split, --validation-split)")


@contextmanager
def _quiet(datasets: Any) -> Iterator[None]:
    shown = datasets.utils.logging.get_verbosity()
    had_bars = datasets.is_progress_bar_enabled()
    # what goes wrong comes as an exception, too, which is told in our words
    datasets.utils.logging.set_verbosity(logging.CRITICAL)
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        datasets.utils.logging.set_verbosity(shown)
        if had_bars:
            datasets.enable_progress_bars()


def _looks_local(name: str) -> bool:
    path = Path(name).expanduser()
    is_file_name = _suffix(name) in _BUILDERS or any(each in name for each in "*?[") or name.startswith((".", "/", "~"))
    return path.exists() or is_file_name or not is_repo_id(split_revision(name)[0])


def _matching(name: str) -> list[str]:
    pattern = str(Path(name).expanduser())
    if Path(pattern).is_file():
        return [pattern]
    if Path(pattern).is_dir():
        files = sorted(str(file) for file in Path(pattern).iterdir() if _suffix(file.name) in _BUILDERS)
        raise UsageError(
            f"{name} is a folder: name its files, for example {pattern}/*{_suffix(files[0]) if files else '.jsonl'}"
        )
    files = sorted(file for file in glob.glob(pattern, recursive=True) if Path(file).is_file())
    if not files:
        folder = Path(pattern).parent
        near = [each.name for each in folder.iterdir() if each.is_file()] if folder.is_dir() else []
        hint = near_names(Path(pattern).name, near)
        raise UsageError(f"no file matches {name}" + (f"; {hint}" if hint.startswith("did you mean") else ""))
    return files


def _check_readable(path: Path, *, binary: bool) -> None:
    """Refuse an empty file, and text that is not UTF-8, by name and place."""
    try:
        if path.stat().st_size == 0:
            raise CollapseError(f"{path} is empty: there is no text in it")
        if binary:
            return
        decoder, position = codecs.getincrementaldecoder("utf-8")(), 0
        with path.open("rb") as file:
            while block := file.read(_READ):
                held = len(decoder.getstate()[0])
                try:
                    decoder.decode(block)
                except UnicodeDecodeError as error:
                    place = position - held + error.start
                    raise CollapseError(
                        f"{path} is not UTF-8 (byte {place:,}): convert it, for example with: "
                        f"iconv -f latin1 -t utf-8 {path.name} > new{path.suffix}"
                    ) from error
                position += len(block)
        if decoder.getstate()[0]:
            raise CollapseError(
                f"{path} is not UTF-8: it ends within a character (byte {position:,}); is it truncated?"
            )
    except OSError as error:
        raise CollapseError(f"{path} cannot be read: {error.strerror or error}") from error


def _suffix(name: str) -> str:
    return Path(name).suffix.lower()


def _names(files: Sequence[str]) -> str:
    names = [Path(file).name for file in files]
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} … {names[-1]} ({len(names)} files)"
