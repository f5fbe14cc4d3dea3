"""A text or a data set: find what a name stands for without loading it, and read its rows.

Local files are hashed in full, so that a store names the text it was collected on wherever the files lie. They are read
through links with names of our own in a folder that is used once: nothing that was read from other content, or from
other files, can be taken for theirs.
"""

import glob
import logging
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collapse.errors import CollapseError, UsageError, first_line, near_names
from collapse.files import ANOTHER_CACHE, ANOTHER_HOME, expanded, raise_if_full, stamp
from collapse.hub import is_repo_id, resolve_commit, split_revision
from collapse.spec import TextNames, text_names
from collapse.textfiles import BUILDERS, could_be_json, find_files, hash_again, hash_checked, show_names, suffix


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
        lines: The files are .txt whose bytes could also be read as JSON, which would be another text.
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
    lines: bool = False

    def identity(self) -> dict[str, Any]:
        """What makes it this text: equal wherever its files lie and whatever they are called."""
        if self.source == "files":
            return {"sha256": self.sha256, "column": self.column} | ({"lines": True} if self.lines else {})
        return {"name": self.name, "revision": self.revision, "split": self.split, "column": self.column}


def find_corpus(
    text: TextNames, *, split: str | None = None, text_column: str = "text", validation: bool = False
) -> Corpus:
    """What a ``--text`` stands for: files, globs, or a data set on the Hub (``owner/name``, ``owner/name@revision``).

    Args:
        text: Its name or names.
        split: Of a data set; None for "train", or "validation" of a validation text.
        text_column: Column that holds the text.
        validation: It is a validation text.

    Raises:
        UsageError: No file matches, the files are of several kinds, a split is given for files, or the Hub has no such
            data set.
        CollapseError: A file is empty or not UTF-8, or the Hub cannot be reached and nothing is cached.
    """
    given = text_names(text)
    if len(given) == 1 and not _looks_local(given[0]):
        repo, revision = split_revision(given[0])
        try:
            commit, online = resolve_commit(repo, revision, "dataset")
        except UsageError as error:
            raise UsageError(f"{error}; and there is no file {given[0]}") from error
        split = ("validation" if validation else "train") if split is None else split
        return Corpus(repo, "hub", (), split, text_column, commit, online=online)
    files = find_files(given)
    if split is not None:
        option = "--validation-split" if validation else "--split"
        raise UsageError(
            f"{option} {split} does not apply: {show_names(files)} is local, and has no splits; leave it out"
        )
    lines = BUILDERS[suffix(files[0])] == "text" and could_be_json(files)
    return Corpus(show_names(files), "files", tuple(files), column=text_column, sha256=hash_checked(files), lines=lines)


def load_rows(corpus: Corpus, folder: Path) -> Any:
    """The corpus as a ``datasets.Dataset``.

    Args:
        corpus: Which text.
        folder: An empty folder for what is read of local files; to be kept as long as the rows are used.

    Raises:
        UsageError: There is no such split or column; near names are given.
        CollapseError: It cannot be loaded, or a file changed since it was found.
    """
    os.environ.setdefault("HF_UPDATE_DOWNLOAD_COUNTS", "0")
    import datasets
    from datasets.exceptions import DatasetGenerationError

    with _quiet(datasets):
        try:
            rows = _load_files(datasets, corpus, folder) if corpus.source == "files" else _load_hub(datasets, corpus)
        except (OSError, ValueError, RuntimeError, DatasetGenerationError) as error:
            if corpus.source == "files":
                raise_if_full(error, folder, ANOTHER_HOME)
            raise_if_full(error, datasets.config.HF_CACHE_HOME, ANOTHER_CACHE)
            if isinstance(error.__cause__, CollapseError):
                raise error.__cause__ from None
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


def _load_files(datasets: Any, corpus: Corpus, folder: Path) -> Any:
    """Rows of local files, which must be what was hashed when they were found: hashed once more after reading."""
    builder = BUILDERS[suffix(corpus.files[0])]
    options: dict[str, Any] = {"keep_linebreaks": True} if builder == "text" else {}
    links = [folder / f"{number:06}{suffix(file)}" for number, file in enumerate(corpus.files)]
    for link, file in zip(links, corpus.files, strict=True):
        try:
            link.symlink_to(Path(file).resolve())
        except (OSError, NotImplementedError):  # a system without links
            shutil.copyfile(file, link)
    names, before = [glob.escape(str(link)) for link in links], [stamp(link) for link in links]
    try:
        reader = datasets.load_dataset_builder(builder, data_files=names, cache_dir=str(folder / "rows"), **options)
        _refuse_casts(reader, corpus)
        reader.download_and_prepare()
        rows = reader.as_dataset(split="train")
    except Exception:
        _check_unchanged(corpus, links, before)  # where it changed, that is the reason
        raise
    _check_unchanged(corpus, links, before)
    return rows


def _refuse_casts(reader: Any, corpus: Corpus) -> None:
    """Have a builder of ``datasets`` refuse values that are no texts: it casts them where the first rows are texts."""
    cast = reader._cast_table  # every batch passes through it, with the types that were read

    def checked(table: Any, *words: Any, **options: Any) -> Any:
        # fields that a JSON reader found to be of mixed types, and encoded as JSON
        if any(path[:1] == [corpus.column] for path in options.get("json_field_paths", ())):
            raise CollapseError(_no_text(corpus, "other values beside texts"))
        if corpus.column in table.column_names:
            column = table[corpus.column]
            if not _is_text(column.type):
                value = next((each.as_py() for each in column if each.is_valid), None)
                raise CollapseError(_no_text(corpus, f"{value!r:.60}, not a text"))
        return cast(table, *words, **options)

    reader._cast_table = checked


def _is_text(kind: Any) -> bool:
    """Whether a column of this Arrow type holds texts, or nothing."""
    import pyarrow.types

    if pyarrow.types.is_dictionary(kind):  # pandas's categories
        kind = kind.value_type
    return str(kind) in ("string", "large_string", "string_view", "null")


def _no_text(corpus: Corpus, what: str) -> str:
    return f"{corpus.name}: column {corpus.column!r} holds {what}; clean the data, or name another --text-column"


def _check_unchanged(corpus: Corpus, links: Sequence[Path], before: Sequence[list[int]]) -> None:
    # by the stamps, too: a file may have been changed and changed back
    if [stamp(link) for link in links] != before or hash_again(links) != corpus.sha256:
        raise CollapseError(f"{corpus.name} changed while it was read: run the same command again")


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
    is_file_name = suffix(name) in BUILDERS or any(each in name for each in "*?[") or name.startswith((".", "/", "~"))
    return expanded(name).exists() or is_file_name or not is_repo_id(split_revision(name)[0])
