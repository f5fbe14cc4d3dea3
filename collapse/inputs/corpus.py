"""Find the text or data set that a name refers to without loading it, and read its rows.

Local files are hashed completely, so a store identifies its text wherever the files are. They are read through links in
a temporary folder that is used only once, so ``datasets`` cannot return cached rows of other files or other content.
"""

import glob
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collapse.core.paths import expanded
from collapse.core.settings import environment, quiet
from collapse.errors import CollapseError, UsageError, first_line, near_names
from collapse.hub.remote import Remote, reach
from collapse.hub.requests import is_repo_id, split_revision
from collapse.inputs.option import TextNames, text_names
from collapse.inputs.textfiles import (
    BUILDERS,
    OTHER_FILES,
    broken_line,
    could_be_json,
    find_files,
    hash_again,
    hash_checked,
    show_names,
    suffix,
)
from collapse.stores.files import stamp
from collapse.stores.writing import ANOTHER_HOME, raise_if_full

_READ_TO_CHOOSE = ("README.md", ".huggingface.yaml", "dataset_infos.json", "*.zip")
"""Files that ``datasets`` reads before it chooses the files of each split."""


class NoSplit(UsageError):
    """A data set does not have a split."""


@dataclass(frozen=True)
class Corpus:
    """A text that was found, not loaded.

    Attributes:
        name: Name in tables: the data set's id, or the files' names.
        source: "files" or "hub".
        files: Local paths, in order.
        split: Split of a data set; None for files.
        column: Column that holds the text.
        revision: Commit of a Hub data set.
        sha256: Hash of the files' contents.
        lines: The files are .txt, but could also be parsed as JSON, which would give another text.
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
        """Return the text's identity, which does not depend on the place or names of its files."""
        if self.source == "files":
            return {"sha256": self.sha256, "column": self.column} | ({"lines": True} if self.lines else {})
        return {"name": self.name, "revision": self.revision, "split": self.split, "column": self.column}


def find_corpus(
    text: TextNames, *, split: str | None = None, text_column: str = "text", validation: bool = False
) -> Corpus:
    """Find the text of ``--text``: files, globs, or a data set on the Hub (``owner/name``, ``owner/name@revision``).

    Args:
        text: Its name or names.
        split: Split of a data set; None for "train", or for "validation" if it is a validation text.
        text_column: Column that holds the text.
        validation: Whether it is a validation text.

    Raises:
        UsageError: No file matches, the files are of several kinds, a split is given for files, or the Hub has no such
            data set.
        CollapseError: A file is empty or not UTF-8, or the Hub cannot be reached and nothing is cached.
    """
    given = text_names(text)
    if len(given) == 1 and not _looks_local(given[0]):
        try:
            found = reach(given[0], "dataset")
        except UsageError as error:
            raise UsageError(f"{error}; and there is no file {given[0]}") from error
        split = ("validation" if validation else "train") if split is None else split
        return Corpus(found.repo, "hub", (), split, text_column, found.commit, online=found.online)
    files = find_files(given)
    if split is not None:
        option = "--validation-split" if validation else "--split"
        raise UsageError(
            f"{option} {split} does not apply: {show_names(files)} is local and has no splits: leave the option out"
        )
    lines = BUILDERS[suffix(files[0])] == "text" and could_be_json(files)
    return Corpus(show_names(files), "files", tuple(files), column=text_column, sha256=hash_checked(files), lines=lines)


def load_rows(corpus: Corpus, folder: Path) -> Any:
    """Load the corpus as a ``datasets.Dataset``.

    Args:
        corpus: The text.
        folder: An empty folder for links and rows; keep it as long as the rows are used.

    Raises:
        NoSplit: There is no such split; the message suggests similar names.
        UsageError: There is no such column; the message suggests similar names.
        CollapseError: It cannot be loaded, or a file changed since it was found.
    """
    with environment(HF_UPDATE_DOWNLOAD_COUNTS="0"):  # datasets reads it on import
        import datasets
        from datasets.exceptions import DatasetGenerationError, DatasetsError

    with quiet("datasets"):
        try:
            load = _load_files if corpus.source == "files" else _load_hub
            rows = load(datasets, corpus, folder)
        except (OSError, ValueError, RuntimeError, DatasetsError) as error:
            raise_if_full(error, folder, ANOTHER_HOME)
            if isinstance(error.__cause__, CollapseError):
                raise error.__cause__ from None
            if not isinstance(error, DatasetGenerationError):
                # the text of some is only a list, such as that of the splits that the data set's card promises
                kind = f"{type(error).__name__}: " if isinstance(error, DatasetsError) else ""
                said = first_line(error).replace(f"{folder}/", "")
                if said.startswith("Config name is missing"):
                    named = ", ".join(re.findall(r"'([^']+)'", str(error).split("\n")[1]))
                    said = (
                        f"it has several configurations ({named}), of which none can be chosen yet: name files of one"
                    )
                raise CollapseError(f"{corpus.name} cannot be loaded: {kind}{said}") from error
            # a reader counts rows from the start of its block
            said = broken_line(corpus.files) or re.sub(r" in row \d+$", "", first_line(error.__cause__ or error))
            raise CollapseError(f"{corpus.name} cannot be read: {said}") from error
    if corpus.column not in rows.column_names:
        raise UsageError(
            f"{corpus.name} has no column {corpus.column!r}; {near_names(corpus.column, rows.column_names)} "
            "(--text-column)"
        )
    return rows


def texts(rows: Any, corpus: Corpus, start: int, stop: int) -> list[str]:
    """Return the texts of rows start to stop.

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
    """Load the rows of local files, then hash the files again to check that they have not changed since found."""
    builder = BUILDERS[suffix(corpus.files[0])]
    options: dict[str, Any] = {"keep_linebreaks": True} if builder == "text" else {}
    links = [folder / f"{number:06}{suffix(file)}" for number, file in enumerate(corpus.files)]
    for link, file in zip(links, corpus.files, strict=True):
        _link(link, Path(file))
    names, before = [glob.escape(str(link)) for link in links], [stamp(link) for link in links]
    try:
        reader = datasets.load_dataset_builder(builder, data_files=names, cache_dir=str(folder / "rows"), **options)
        _read_one_column(reader, corpus)
        reader.download_and_prepare()
        rows = reader.as_dataset(split="train")
    except Exception:
        _check_unchanged(corpus, links, before)  # a change explains the error
        raise
    _check_unchanged(corpus, links, before)
    return rows


def _read_one_column(reader: Any, corpus: Corpus) -> None:
    """Let a builder of ``datasets`` read one column, and refuse values that are no texts, which it would cast."""
    if reader.info.builder_name not in BUILDERS.values():
        return
    cast = reader._cast_table  # called for every batch, with the types in the file

    def checked(table: Any, *words: Any, json_field_paths: Sequence[list[Any]] = (), **options: Any) -> Any:
        # the JSON reader found mixed types in these fields and encoded them as JSON
        if any(path[:1] == [corpus.column] for path in json_field_paths):
            raise CollapseError(_no_text(corpus, "other values beside texts"))
        if corpus.column in table.column_names:
            column = table[corpus.column]
            if not _is_text(column.type):
                value = next((each.as_py() for each in column if each.is_valid), None)
                raise CollapseError(_no_text(corpus, f"{value!r:.60}, not a text"))
            table = table.select([corpus.column])
        return cast(table, *words, **options)

    reader._cast_table = checked


def _is_text(kind: Any) -> bool:
    """Whether a column of this Arrow type holds texts or only nulls."""
    import pyarrow.types

    if pyarrow.types.is_dictionary(kind):  # pandas's categories
        kind = kind.value_type
    return str(kind) in ("string", "large_string", "string_view", "null")


def _no_text(corpus: Corpus, what: str) -> str:
    return f"{corpus.name}: column {corpus.column!r} holds {what}; clean the data, or name another --text-column"


def _check_unchanged(corpus: Corpus, links: Sequence[Path], before: Sequence[list[int]]) -> None:
    # compare the stamps too: a file may have been changed and then restored
    if [stamp(link) for link in links] != before or hash_again(links) != corpus.sha256:
        raise CollapseError(f"{corpus.name} changed while it was read: run the same command again")


def _load_hub(datasets: Any, corpus: Corpus, folder: Path) -> Any:
    """Load the rows of a data set from the client's cache of its commit, into which they are downloaded if necessary.

    ``datasets`` chooses the files of each split by their names. Its choice must not depend on what is cached: it is
    given a folder that has every file of the repository, and those that it chooses are then linked to the cache.
    """
    remote = Remote(corpus.name, str(corpus.revision), corpus.online, "dataset")
    names, cached = remote.listed(), remote.download(_READ_TO_CHOOSE)
    place = folder.resolve() / corpus.name.split("/")[-1]
    for name in names:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        if (cached / name).is_file():
            _link(place / name, cached / name)
        else:
            (place / name).touch()
    try:
        reader = datasets.load_dataset_builder(str(place), cache_dir=str(folder / "rows"))
        chosen = [Path(file).relative_to(place) for files in reader.config.data_files.values() for file in files]
        remote.download([glob.escape(file.as_posix()) for file in chosen])
        for file in chosen:
            (place / file).unlink(missing_ok=True)
            _link(place / file, cached / file)
        _read_one_column(reader, corpus)
        reader.download_and_prepare()
        return reader.as_dataset(split=corpus.split)
    except ValueError as error:
        if str(error).startswith(("Unknown split", "Bad split")):
            raise unknown_split(corpus, error) from error
        raise


def _link(link: Path, file: Path) -> None:
    try:
        link.symlink_to(file.resolve())
    except (OSError, NotImplementedError):  # the system has no links
        shutil.copyfile(file, link)


def unknown_split(corpus: Corpus, error: ValueError) -> NoSplit:
    """Return the error for a split that a data set does not have; ``datasets`` quotes the existing ones."""
    known = re.findall(r"'([^']+)'", re.split("one of|Available splits", str(error))[-1])
    hint = near_names(str(corpus.split), known)
    return NoSplit(f"{corpus.name} has no split {corpus.split!r}; {hint} (--split, --validation-split)")


def _looks_local(name: str) -> bool:
    is_file_name = (
        suffix(name) in (*BUILDERS, *OTHER_FILES)
        or any(each in name for each in "*?[")
        or name.startswith((".", "/", "~"))
    )
    return expanded(name).exists() or is_file_name or not is_repo_id(split_revision(name)[0])
