"""Find the text or data set that a name refers to, and later stream its texts.

Local files are hashed completely when they are found, so that the identity of a store does not depend on where the
files are. They are hashed again after they are read, to detect changes.
"""

import glob
import logging
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from collapse.core.paths import expanded, near_folders
from collapse.core.progress import Report
from collapse.core.settings import environment, quiet
from collapse.errors import CollapseError, UsageError, first_line, near_names
from collapse.hub.client import at_revision, is_repo_id, split_revision
from collapse.hub.fingerprints import Folder
from collapse.hub.packed_text import RECORD, TRAINING, PackedText, find_packed
from collapse.hub.remote import Remote, reach
from collapse.hub.textfiles import KINDS, TextNames, find_files, kind_of, read_texts, show_names, text_names
from collapse.stores.files import sha256_file, sha256_of

_READ_TO_CHOOSE = ("README.md", ".huggingface.yaml", "dataset_infos.json")
"""Files that ``datasets`` reads before it chooses the files of each split."""

log = logging.getLogger("collapse")


class NoSplit(UsageError):
    """The data set does not have the requested split."""


@dataclass(frozen=True)
class Corpus:
    """A text that was found, but not read yet.

    Attributes:
        name: Name in tables: the data set's id (and its configuration, if one is given), or the files' names.
        files: Local paths, in order; none for a Hub data set or a packed text.
        column: Column that holds the text; for labelled data, what ``--columns`` names.
        sha256: Hash of the contents of ``files``, or None if there are no files.
        split, remote: Split and repository of a Hub data set, or None.
        packed: The packed text, if ``collapse pack`` made it; otherwise None.
        known: The suffixes of files that can be read, each with its format.
        hashes: The sha256 of each of ``files``.
    """

    name: str
    files: tuple[str, ...] = ()
    column: str = "text"
    sha256: str | None = None
    split: str | None = None
    remote: Remote | None = None
    packed: PackedText | None = None
    known: Mapping[str, str] = field(default_factory=lambda: KINDS, compare=False)
    hashes: tuple[str, ...] = ()

    @property
    def revision(self) -> str | None:
        """Commit of a Hub data set, or None."""
        return self.remote.commit if self.remote else None

    @property
    def lines(self) -> bool:
        """Whether each line is a text, as in .txt files. The identity records this."""
        return bool(self.files) and kind_of(self.files[0]) == ".txt"

    def identity(self) -> dict[str, Any]:
        """Return what a store's identity records of the text; names and folders of local files do not matter."""
        if self.packed:
            return dict(self.packed.record["corpus"])
        if self.files:
            return {"sha256": self.sha256, "column": self.column} | ({"lines": True} if self.lines else {})
        return {"name": self.name, "revision": self.revision, "split": self.split, "column": self.column}


def find_corpus(
    text: TextNames,
    *,
    split: str | None = None,
    text_column: str | None = None,
    validation: bool = False,
    known: Mapping[str, str] = KINDS,
) -> Corpus:
    """Find the text of ``--text``: files, globs, a data set on the Hub, or a packed text.

    Args:
        text: One or several names. The name of a data set is ``owner/name`` or ``owner/name:configuration``;
            ``@revision`` may follow.
        split: Split of a data set; None for "train", or "validation" for a validation text.
        text_column: Column that holds the text; None for "text".
        validation: Whether this is a validation text.
        known: The suffixes of files that can be read, each with its format.

    Raises:
        UsageError: No file matches, the files are of several kinds, a split is given for local files, the split or
            column differs from that of a packed text, or the Hub has no such data set.
        OSError: A file cannot be read.
        CollapseError: The Hub cannot be reached, and nothing is cached.
    """
    given = text_names(text)
    if wrong := [each for each in given if any(len(part) > 255 for part in Path(each).parts)]:
        raise UsageError(
            f"{wrong[0][:40]!r}… is too long for the name of a file or data set: write the text to a file, or "
            "in Python pass a loaded model with a list of texts"
        )
    # the split and the column, in this order, by their flags
    chosen = {"--validation-split" if validation else "--split": split, "--text-column": text_column}
    if len(given) == 1 and not _is_local(given[0], known):
        return _hub_corpus(given[0], chosen, validation, known)
    return _local_corpus(given, chosen, validation, known)


def _hub_corpus(name: str, chosen: Mapping[str, str | None], validation: bool, known: Mapping[str, str]) -> Corpus:
    (split, column), (repo, configuration, revision) = chosen.values(), _split(name)
    try:
        found = reach(at_revision(repo, revision), "dataset")
    except CollapseError as error:
        close = near_folders(name)
        missing = f"there is no file {name}{f' ({close})' if close else ''}"
        raise type(error)(f"{missing}; {error}") from error
    may_be_packed = found.online or (found.folder / TRAINING).is_file()
    if may_be_packed and not configuration and (packed := find_packed(found, validation=validation)):
        return _packed_corpus(packed, chosen)
    split = ("validation" if validation else "train") if split is None else split
    shown = f"{found.name}:{configuration}" if configuration else found.name
    return Corpus(shown, column=column or "text", split=split, remote=found, known=known)


def _local_corpus(
    given: Sequence[str], chosen: Mapping[str, str | None], validation: bool, known: Mapping[str, str]
) -> Corpus:
    (option, split), (_, column) = chosen.items()
    if len(given) == 1 and (packed := find_packed(Folder(expanded(given[0])), validation=validation)):
        return _packed_corpus(packed, chosen)
    files = find_files(given, known)
    above = Path(files[0]).absolute().parent.parent
    if Path(files[0]).name == RECORD:
        if find_packed(Folder(above), validation=validation):
            raise UsageError(f"{given[0]} is inside the folder of a packed text: give the folder, {above}")
        raise UsageError(f"{above} is an unfinished packed text: pack it again with the same command")
    if split is not None:
        raise UsageError(f"{show_names(files)} is local and has no splits: remove {option} {split}")
    hashes = tuple(sha256_file(Path(file)) for file in files)
    return Corpus(show_names(files), tuple(files), column or "text", sha256_of(hashes), known=known, hashes=hashes)


def _packed_corpus(packed: PackedText, chosen: Mapping[str, str | None]) -> Corpus:
    origin = packed.record["corpus"]
    for (option, value), held in zip(chosen.items(), (origin.get("split"), origin["column"]), strict=True):
        if value not in (None, held):
            raise UsageError(
                f"{packed.name} was packed with another column or split, which cannot be changed: remove {option} "
                f"{value}"
            )
    return Corpus(packed.record["name"], column=origin["column"], split=origin.get("split"), packed=packed)


def _is_local(name: str, known: Mapping[str, str]) -> bool:
    return kind_of(name) in known or not is_repo_id(_split(name)[0]) or Path(name).exists()


def _split(name: str) -> tuple[str, str, str | None]:
    """Split the name of a data set into its id, configuration ("" if none is named) and revision."""
    path, revision = split_revision(name)
    repo, _, configuration = path.partition(":")
    return repo, configuration, revision


@contextmanager
def opened(
    corpus: Corpus, *, whole: bool = True, progress: Report | None = None
) -> Iterator[tuple[Iterator[int], Iterator[str]]]:
    """Yield two independent iterators: the first counts the texts, the second yields them.

    The first yields the number of texts counted so far, after every 1,000 texts and after each file; the last number is
    the total. Both read a file only when they reach it, so the first texts can be packed before all are counted.

    Args:
        corpus: The text, which is not a packed text.
        whole: Whether to download all files of a data set first, several at a time. If False, a file is downloaded when
            an iterator reaches it.
        progress: Called as progress(what, bytes done, total bytes, note) while files are downloaded.

    Raises:
        NoSplit: There is no such split.
        UsageError: There is no such column or configuration.
        CollapseError: A text cannot be read, or a file changed since it was found.
    """
    remote = corpus.remote
    names = files_of_split(corpus, remote) if remote else corpus.files
    if remote and whole:
        remote.download([glob.escape(name) for name in names], report=progress)

    def files() -> Iterator[Iterator[tuple[str, str]]]:
        for name in names:
            yield read_texts(str(remote.fetch(name, progress)) if remote else name, corpus.column)

    yield _counts(files()), _encodable(chain.from_iterable(files()))
    check_unchanged(corpus)


def check_unchanged(corpus: Corpus) -> None:
    """Raise CollapseError if a file of a corpus changed since it was found."""
    if corpus.hashes != tuple(sha256_file(Path(file), remember=False) for file in corpus.files):
        raise CollapseError(f"{corpus.name} changed while it was read: run the same command again")


def _counts(files: Iterator[Iterator[tuple[str, str]]]) -> Iterator[int]:
    count = 0
    for texts in files:
        for count, _ in enumerate(texts, count + 1):  # noqa: B020
            if count % 1000 == 0:
                yield count
        yield count


def _encodable(texts: Iterator[tuple[str, str]]) -> Iterator[str]:
    r"""Yield the texts with every lone surrogate replaced; log a warning for the first one.

    JSON may contain a lone surrogate, such as ``\ud83d``, but no tokenizer can encode it.
    """
    noted = False
    for row, text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            text = re.sub("[\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", text)
            if not noted:
                log.warning(
                    "%s has an invalid character (a lone surrogate), read as U+FFFD; further rows are not reported", row
                )
            noted = True
        yield text


_SELECTING = (("filters", None), ("sample_by", "line"))
"""Options of ``datasets`` that a README.md can set to select or cut texts, with their defaults."""


def files_of_split(corpus: Corpus, remote: Remote) -> tuple[str, ...]:
    """Return the paths of the files of a data set's split, in the order in which the files are read.

    ``datasets`` chooses the files of each split by their names. Here, ``datasets`` gets a temporary folder with an
    empty file for each file of the repository, so that the choice does not depend on the cache.

    Raises NoSplit; UsageError for a missing or unknown configuration; CollapseError for files that are not supported.
    """
    configuration = _split(corpus.name)[1]
    names, cached = remote.listed(), remote.download(_READ_TO_CHOOSE)
    with environment(HF_UPDATE_DOWNLOAD_COUNTS="0"):  # read when datasets is imported
        import datasets
    with TemporaryDirectory(prefix="collapse-") as temporary, quiet("datasets"):
        place = Path(temporary).resolve() / remote.name.split("/")[-1]
        for name in names:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            if name in _READ_TO_CHOOSE and (cached / name).is_file():
                shutil.copyfile(cached / name, place / name)
            else:
                (place / name).touch()
        try:
            builder = datasets.load_dataset_builder(str(place), configuration or None, cache_dir=temporary)
            found = builder.config.data_files or {}
        except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
            said = first_line(error).replace(temporary, "")
            if said.startswith(("Config name is missing", "BuilderConfig")):
                known = ", ".join(datasets.get_dataset_config_names(str(place), cache_dir=temporary))
                wrong = f"no configuration {configuration!r}" if configuration else "several configurations"
                raise UsageError(
                    f"{remote.name} has {wrong} (known: {known}): choose one as {remote.name}:CONFIGURATION"
                ) from error
            raise CollapseError(
                f"{corpus.name} cannot be loaded as a data set: {said}. Check its files, or give files of your own"
            ) from error
        selects = [name for name, default in _SELECTING if getattr(builder.config, name, default) != default]
        splits = {str(split): [Path(each).relative_to(place).as_posix() for each in found[split]] for split in found}
    if selects:
        raise CollapseError(
            f"the README.md of {corpus.name} selects texts with {', '.join(selects)}, which is not supported: give "
            "files of your own with these texts"
        )
    if corpus.split not in splits:
        hint = near_names(str(corpus.split), splits)
        raise NoSplit(f"{corpus.name} has no split {corpus.split!r}; {hint} (--split, --validation-split)")
    chosen = splits[corpus.split]
    if any(kind_of(name) not in corpus.known for name in chosen):
        raise CollapseError(
            f"{corpus.name} has files in an unsupported format ({show_names(chosen)}): convert them to .jsonl or "
            ".parquet"
        )
    return tuple(chosen)
