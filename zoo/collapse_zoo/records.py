"""Read the files of a run and of a sweep, and check that they are regular, of limited size and valid.

Each file has one reader. A file that was edited, truncated or written by another program raises a ``CollapseError``
with its name.
"""

import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from collapse.errors import CollapseError, first_line
from collapse.measurement.results import Results, Row
from collapse.reading import parse_json, read_json
from collapse.stores.manifest import is_store, read_manifest
from collapse_zoo.recipes import Recipe

log = logging.getLogger("collapse")

FORMAT = 1
"""Format version of training.json, increased when earlier versions would misread the file."""

_CURVE_LIMIT = 1 << 30
_told: set[str] = set()  # a command reads a run's rows several times, but warns once

_COUNT = {"type": "integer", "minimum": 0, "maximum": 10**12}
_TEXT = {"type": "string", "maxLength": 10_000}
_MAYBE_NUMBER = {"type": ["number", "null"]}
_SHA256 = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_NAME = {"type": "string", "pattern": r"^[^/\\\x00-\x1f]{1,200}$"}
_FILES = {
    "type": "object",
    "propertyNames": _NAME,
    "additionalProperties": {
        "type": "object",
        "properties": {"size": _COUNT, "sha256": _SHA256},
        "required": ["size", "sha256"],
    },
}
_VALIDATION = dict.fromkeys(("validation_loss", "accuracy", "perplexity"), _MAYBE_NUMBER)
_SCHEMAS: dict[str, dict[str, Any]] = {
    "training": {
        "type": "object",
        "properties": {
            "format": _COUNT,
            "name": {"type": "string", "minLength": 1, "maxLength": 10_000},
            "recipe": {"type": "object"},
            "text": {"type": "object"},
            "tokens": {"type": "object", "additionalProperties": {"anyOf": [_SHA256, {"type": "null"}]}},
            "corpus": {
                "type": "object",
                "properties": {
                    "name": _TEXT,
                    "validation": {"type": ["string", "null"]},
                    "tokenizer": _TEXT,
                    "tokenizer_revision": {"type": ["string", "null"]},
                },
                "required": ["name"],
            },
            "state": {"enum": ["running", "finished", "failed"]},
            "problem": {"type": ["string", "null"]},
            "epochs": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"k": _COUNT, "step": _COUNT, **_VALIDATION},
                    "required": ["k", "step"],
                },
            },
            "model": _FILES,
            "n_params": _COUNT,
            "versions": {"type": "object"},
            "arguments": {"type": "object"},
            "published": {"type": ["string", "null"]},
            "command": {"type": ["string", "null"]},
            "tokens_per_second": {"type": "number"},
        },
        "required": ["name", "recipe", "text", "corpus", "state", "epochs", "n_params", "versions"],
    },
    "complete": {
        "type": "object",
        "properties": {
            "step": _COUNT,
            "k": {"anyOf": [_COUNT, {"type": "null"}]},
            "ends_epoch": {"type": "boolean"},
            "validation": {"type": "object", "properties": _VALIDATION, "additionalProperties": False},
            "files": _FILES,
        },
        "required": ["step", "k", "validation", "files"],
    },
    "sweep": {
        "type": "object",
        "propertyNames": _NAME,
        "additionalProperties": {
            "type": "object",
            "properties": {
                "checkpoints": {"type": ["array", "null"], "items": _COUNT},
                "epochs": _COUNT,
                "problem": {"type": ["string", "null"]},
            },
            "required": ["checkpoints", "epochs"],
        },
    },
    "curve": {
        "type": "object",
        "properties": {"step": _COUNT, "epoch": {"type": "number"}},
        "additionalProperties": {"type": ["number", "string"]},
        "required": ["step", "epoch"],
    },
}


def read_record(file: Path) -> dict[str, Any]:
    """Read ``training.json``, and check its recipe.

    Raises:
        CollapseError: It is of a newer version, or invalid.
    """
    record = _read(file, "training", f"restore it, or move {file.parent} away")
    if record.get("format", FORMAT) > FORMAT:
        raise CollapseError(f"{file} is of a newer version: pip install -U linguistic-collapse")
    try:
        Recipe.from_dict(record["recipe"])
    except (CollapseError, TypeError) as error:
        raise CollapseError(f"{file} is damaged: its recipe: {error}; restore it, or move the run away") from error
    return record


def read_complete(file: Path) -> dict[str, Any]:
    """Read a checkpoint's ``complete.json``; raises as :func:`read_record`."""
    return _read(file, "complete", f"restore it, or delete {file.parent}")


def read_swept(file: Path) -> dict[str, dict[str, Any]]:
    """Read the members in ``sweep.json``, none if the file does not exist; raises as :func:`read_record`."""
    return _read(file, "sweep", "restore it, or delete it: the same sweeps write it again") if _exists(file) else {}


def read_curve(file: Path) -> list[dict[str, Any]]:
    """Read the lines of ``curve.jsonl``; a kill may have truncated the last one. Raises as :func:`read_record`."""
    if not _exists(file):
        return []
    remedy = "restore it, or delete it: the run resumes without its curve so far"
    try:
        _check_regular(file)
        if file.stat().st_size > _CURVE_LIMIT:
            raise ValueError("it is too large")
        *lines, last = file.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise CollapseError(f"{file} cannot be read: {first_line(error)}; {remedy}") from error
    made = []
    for number, line in enumerate(lines if not last else [*lines, last], start=1):
        try:
            made.append(parse_json(line.encode()))
            _check(made[-1], "curve")
        except (ValueError, RecursionError) as error:
            if number > len(lines):
                return made[: len(lines)]
            raise CollapseError(f"{file} is damaged in line {number:,}: {first_line(error)}; {remedy}") from error
    return made


def read_results(file: Path, name: str, stores: Callable[[int], Path], *, whole: bool = False) -> list[Row]:
    """Read the rows of a run's ``results.json``: each is of a checkpoint ``name@k``, and of its store if that is kept.

    A row of another store than the kept one is excluded with a warning; with ``whole`` it is refused.

    Raises as :func:`read_record`.
    """
    if not _exists(file):
        return []
    table = Results.read(file)
    if len(table) != len(table.rows):  # a table from elsewhere has a frame only
        raise CollapseError(f"{file} is damaged: it is not a results table of collapse; delete it and measure again")
    rows = []
    for row in table.rows:
        run, _, k = row.model.rpartition("@")
        if run != name or not (k.isascii() and k.isdigit() and len(k) < 10):
            raise CollapseError(
                f"{file} is damaged: {row.model[:60]!r} is not a checkpoint of {name}; delete it and measure again"
            )
        store = stores(int(k))
        if not is_store(store) or row.store == read_manifest(store)["digest"]:
            rows.append(row)
            continue
        told = f"{file}: its row {row.model} is of another store than {store}"
        if whole:
            raise CollapseError(f"{told}; measure it again: run the command that trained it, with --measure")
        if told not in _told:
            _told.add(told)
            log.warning("%s, and is left out; the command that trained it, with --measure, measures it again", told)
    return rows


def _exists(file: Path) -> bool:
    return file.is_symlink() or file.exists()


def _read(file: Path, schema: str, remedy: str) -> dict[str, Any]:
    try:
        _check_regular(file)
        content = read_json(file)
        _check(content, schema)
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise CollapseError(f"{file} is damaged: {reason[:200]}; {remedy}") from error
    return dict(content)


def _check_regular(file: Path) -> None:
    if not file.is_file():
        raise ValueError("it is not a regular file")


def _check(content: object, schema: str) -> None:
    from jsonschema.exceptions import best_match

    error = best_match(_validators()[schema].iter_errors(content))
    if error is not None:
        raise ValueError(f"at {error.json_path[:60]}, {error.message[:100]}")


@cache
def _validators() -> dict[str, Any]:
    from jsonschema import Draft202012Validator, validators

    def is_integer(_: Any, value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)  # not 1.0: range() would reject it

    checker = Draft202012Validator.TYPE_CHECKER.redefine("integer", is_integer)
    made = validators.extend(Draft202012Validator, type_checker=checker)
    return {name: made(schema) for name, schema in _SCHEMAS.items()}
