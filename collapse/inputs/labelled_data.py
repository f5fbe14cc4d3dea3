"""Find labelled data without reading them, then read their inputs and match their labels with a model's classes.

Local files are identified by their content, data sets on the Hub by their commit. Rows are read with ``datasets``.
"""

import glob
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from collapse.core.paths import home
from collapse.core.progress import Report
from collapse.core.settings import environment, quiet
from collapse.errors import CollapseError, UsageError, counted, first_line, near_names, some
from collapse.hub.corpus import Corpus, check_unchanged, files_of_split, find_corpus
from collapse.hub.textfiles import TextNames, kind_of, text_names
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.tasks import IMAGES, Task
from collapse.inputs.text_pair import Texts
from collapse.numerics.dense_moments import IGNORED
from collapse.stores.files import sha256_of
from collapse.stores.writing import raise_if_full


@dataclass(frozen=True)
class Labelled:
    """Rows of data.

    Attributes:
        name: Name in messages.
        inputs: The input columns. Each is a sequence of texts, lists of words, images, or names of image files.
        labels: The class of each row, or a list of classes for each row; None if no labels are read. A class is a
            number or a name.
        names: The names of the classes, in the order of their numbers. None if the labels are names themselves, or if
            the data have no names of classes.
        hashes: The hash of each image file, in the order of the rows; empty if the data are not local image files.
    """

    name: str
    inputs: tuple[Sequence[Any], ...]
    labels: Sequence[Any] | None = None
    names: Sequence[str] | None = None
    hashes: Sequence[str] = ()


def find_data(spec: CollectionSpec, task: Task) -> Texts:
    """Find the training data and, if there are any, the validation data of a task.

    If the options do not name validation data or their split, the validation split of a labelled Hub data set is used.

    Raises the exceptions of :func:`~collapse.hub.corpus.find_corpus`, and UsageError if ``spec`` names no data.
    """
    if not spec.data:
        raise UsageError(f"--task {task.name} needs its data: give --data")
    training = _find(spec.data, spec, task, spec.split)
    validation = None
    if spec.validation_data or spec.validation_split or (training.remote and not _is_unlabelled(training.column)):
        named = spec.validation_data or spec.data
        validation = _find(named, spec, task, spec.validation_split, validation=True)
    return Texts(training, validation, may_be_absent=not (spec.validation_data or spec.validation_split))


def _find(names: TextNames, spec: CollectionSpec, task: Task, split: str | None, *, validation: bool = False) -> Corpus:
    columns = (spec.columns or task.columns).replace(" ", "")
    found = find_corpus(names, split=split, text_column=columns, validation=validation, known=task.known)
    if not _are_images(found.files):
        return found
    name = Path(text_names(names)[0]).resolve().name
    if _is_unlabelled(columns):
        return replace(found, name=name, column=",", sha256=sha256_of(found.hashes))
    return replace(found, name=name, column="", sha256=sha256_of([_folders(found.files), found.hashes]))


def _is_unlabelled(columns: str) -> bool:
    """Whether ``--columns`` names no labels, as in ``text,``: all samples are then one class."""
    return columns.endswith(",")


def _folders(files: Sequence[str]) -> list[str]:
    """Return the name of the folder of each image, which is the name of its class."""
    return [Path(file).parent.name for file in files]


def _are_images(files: Sequence[str]) -> bool:
    return bool(files) and kind_of(files[0]) in IMAGES


def read_data(corpus: Corpus, task: Task, report: Report | None = None) -> Labelled:
    """Read the data of a corpus; image files are read later, when a batch needs them.

    Raises:
        NoSplit: There is no such split.
        UsageError: There is no such column or configuration, or ``--columns`` names no input.
        CollapseError: The data are empty or cannot be read, or changed since they were found.
    """
    remote, files = corpus.remote, list(corpus.files)
    if remote:
        names = files_of_split(corpus, remote)
        remote.download([glob.escape(name) for name in names], report=report)
        files = [str(remote.fetch(name)) for name in names]
    if _are_images(files):
        labels = None if _is_unlabelled(corpus.column) else _folders(files)
        return Labelled(corpus.name, (files,), labels, hashes=corpus.hashes)
    rows = _rows(corpus, files, task)
    if not remote:
        check_unchanged(corpus)
    *inputs, label = corpus.column.split(",") if task.name != "masked-lm" else (corpus.column, "")
    for column in (*inputs, label):
        if column and column not in rows.column_names:
            hint = near_names(column, rows.column_names)
            how = f"give names of its columns, as in --columns {task.columns}"
            raise UsageError(f"{corpus.name} has no column {column!r}: {how}; {hint}")
    if not inputs:
        raise UsageError(f"--columns must name inputs and labels, such as {task.columns}, got {corpus.column}")
    if task.name == "image-classification":
        import datasets

        rows = rows.cast_column(inputs[0], datasets.Image())
    feature = rows.features[label] if label else None
    classes = getattr(getattr(feature, "feature", feature), "names", None)  # also if labels are lists of classes
    columns = tuple(rows[each] for each in inputs)
    return Labelled(corpus.name, columns, list(rows[label]) if label else None, classes)


def _rows(corpus: Corpus, files: Sequence[str], task: Task) -> Any:
    """Return the rows of files as a ``datasets.Dataset``, cached in a folder named by a hash of the data's identity."""
    with environment(HF_UPDATE_DOWNLOAD_COUNTS="0"):  # read when datasets is imported
        import datasets
    if not files:
        raise CollapseError(f"{corpus.name} holds no rows: give files, or a data set")
    place = home() / "data" / sha256_of(corpus.identity())[:40]
    known, names = task.known[kind_of(files[0])], [glob.escape(each) for each in files]
    how = {"keep_default_na": False} if known == "csv" else {}  # "NA" is a text
    try:
        with quiet("datasets"):
            return datasets.load_dataset(known, data_files=names, split="train", cache_dir=str(place), **how)
    except Exception as error:  # several libraries read the files, each with its own exceptions
        raise_if_full(error, home())
        cause = error.__cause__ or error
        raise CollapseError(
            f"{corpus.name} cannot be read as {known}: {first_line(cause)}. Repair or replace it"
        ) from error


def class_ids(data: Labelled, classes: Mapping[int, str]) -> list[Any]:
    """Return each label of the data as the number of one of the model's classes.

    If a row has a list of labels, the result has a list of numbers for this row. If the data have no labels, all
    numbers are 0. If labels are numbers, −100 (no sample) is kept. ``classes`` are the model's names (``id2label``).

    Raises:
        UsageError: A label is neither a name nor an integer, or the model does not have its class.
    """
    if data.labels is None:
        return [0] * len(data.inputs[0])
    flat = [each for label in data.labels for each in (label if isinstance(label, list) else (label,))]
    strange = next((each for each in flat if not isinstance(each, int | str)), None)
    if strange is not None or None in flat:
        raise UsageError(f"{data.name} has the label {strange!r}: convert all labels to names or integers")
    names = _names(data)
    if names is not None and names is not data.names:
        numbers: Mapping[Any, int] = dict(zip(names, _numbers(data, names, classes), strict=True))
    elif names is not None:
        numbers = {IGNORED: IGNORED, **dict(enumerate(_numbers(data, names, classes)))}
    else:
        numbers = {each: each for each in (IGNORED, *classes)}
    wrong = next((each for each in flat if each not in numbers), None)
    if wrong is not None:
        raise UsageError(
            f"{data.name} has the label {wrong}, but the model has the classes {min(classes)} to {max(classes)}: label "
            "the data with these classes"
        )
    return [[numbers[each] for each in label] if isinstance(label, list) else numbers[label] for label in data.labels]


def matched_in_order(data: Labelled, classes: Mapping[int, str]) -> str | None:
    """List some pairs of classes, such as "n01440764 is tench", if classes are matched by order; otherwise return None.

    Classes are matched by order if no class has the same name in the data and in the model, but data and model have
    equally many classes. An example is data whose classes have the names of ImageNet's synsets.
    """
    names = _names(data)
    known, key = _known(classes)
    if names is None or len(names) != len(classes) or not known.keys().isdisjoint(map(key, names)):
        return None
    return some([f"{name} is {classes[number]}" for number, name in enumerate(names)])


def _names(data: Labelled) -> Sequence[str] | None:
    flat = [each for label in data.labels or () for each in (label if isinstance(label, list) else (label,))]
    return sorted({*map(str, flat)}) if any(isinstance(each, str) for each in flat) else data.names


def _numbers(data: Labelled, names: Sequence[str], classes: Mapping[int, str]) -> list[int]:
    """Return, for each class name of the data, the number of the model's class that it is matched with.

    Classes are matched by name or, if none matches, by order. Raise UsageError if a class is not matched.
    """
    known, key = _known(classes)
    lacking = [name for name in names if key(name) not in known]
    if not lacking:
        return [known[key(name)] for name in names]
    if len(lacking) == len(names) == len(classes):
        return list(range(len(names)))
    is_one_folder = data.hashes and len(names) == 1
    hint = "make a folder of images per class" if is_one_folder else near_names(lacking[0], classes.values())
    raise UsageError(
        f"{data.name} has {counted(len(names), 'class')}, and the model has no class {lacking[0]!r}; {hint}"
    )


def _known(classes: Mapping[int, str]) -> tuple[dict[str, int], Callable[[str], str]]:
    """Return the class id of each normalized name, and the function that normalizes a name."""
    is_unique = len({*map(str.casefold, classes.values())}) == len(classes)
    key = str.casefold if is_unique else str  # ignore case, unless two names differ only in case
    return {key(name): number for number, name in classes.items()}, key
