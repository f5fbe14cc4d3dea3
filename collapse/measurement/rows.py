"""A row: the measurements and the identity of one store."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from collapse.errors import counted, near_names
from collapse.measurement.cells import plain
from collapse.measurement.table import Table
from collapse.plugin.parameter_names import OF_OTHERS
from collapse.plugin.plugin_manager import plugins
from collapse.stores.layer_names import TOP

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 1
"""Version of a row's keys. Unknown keys are ignored; rows of another version are rejected."""


@dataclass(frozen=True)
class Note:
    """A remark on a measurement; ``measurement`` is ``*`` for a remark on the whole row.

    ``kind`` is a keyword, such as "missing" or "singletons".
    """

    measurement: str
    kind: str
    text: str


@dataclass(frozen=True)
class Row(Mapping[str, float | None]):
    """The measurements of one store. A row is also a mapping: ``row[name]`` is the number of a measurement.

    Attributes:
        model: Name of the model, or file name of a features file.
        revision: Commit of a Hub model, or None.
        corpus: Name of the training corpus.
        store: Digest of the store.
        min_count: Classes with fewer samples were excluded.
        class_set: Digests of the stores whose common classes were kept; None for all classes.
        classes: C, the number of classes.
        dim: d, the number of dimensions.
        samples: N, the number of training samples of these classes.
        measurements: One number per measurement, or None if it is not available (a note says why).
        versions: Version of each measurement's definition.
        excluded: By measurement, the number of excluded pairs of classes, if any. For a class metric, the number of
            classes that its measure skips although they have a finite value (a mean of logarithms skips zeros). A note
            counts the classes without a finite value.
        notes: Remarks.
        origin: The store's address on the Hub, ``user/repo/folder@commit``, or None for a local store.
        validation: Name of the validation text, or None.
        chunk_length: T, or None for a features file.
        max_chunks: The limit on the chunks of each text, or None for whole texts.
        max_validation_chunks: The limit on the chunks of the validation text, or None if ``max_chunks`` applies.
        dtype: dtype of the model or of the features.
        weights: Fingerprint of the weights and of the model arguments.
        tokenizer: Fingerprint of the tokenizer.
        corpus_id: Hash of the training text's identity; equal for equal texts.
        validation_id: Hash of the validation text's identity.
        made_by: For each measurement, the Python package (with its version) or the user's file or module that defines
            the measurement.
        layer: The layer that was measured: ``top``, or l for the input of block l.
        depth: The number of the layer; for ``top`` the number of blocks; None if it is unknown.
        step: The training step of the model, if it is known.
        tokens: The number of tokens that the model was trained on, if the name of the model's revision has this number.
        group: The name of the group of classes that was kept, or None.
        ood: Name of the out-of-distribution text, or None.
        standard_errors: Standard errors by measurement; only measurements of the validation text have one.
        nulls: The same measurements of the null baselines "untrained" and "shuffled", if these were measured.
        schema: Version of the row's keys.
    """

    model: str
    revision: str | None
    corpus: str
    store: str
    min_count: int
    classes: int
    dim: int
    samples: int
    measurements: dict[str, float | None]
    versions: dict[str, int] = field(default_factory=dict)
    excluded: dict[str, int] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    origin: str | None = None
    validation: str | None = None
    chunk_length: int | None = None
    max_chunks: int | None = None
    max_validation_chunks: int | None = None
    dtype: str | None = None
    weights: str | None = None
    tokenizer: str | None = None
    corpus_id: str | None = None
    validation_id: str | None = None
    class_set: str | None = None
    made_by: dict[str, str] = field(default_factory=dict)
    layer: str = TOP
    depth: int | None = None
    step: int | None = None
    tokens: int | None = None
    group: str | None = None
    ood: str | None = None
    standard_errors: dict[str, float] = field(default_factory=dict)
    nulls: dict[str, dict[str, float | None]] = field(default_factory=dict)
    schema: int = SCHEMA

    def __getitem__(self, name: str) -> float | None:
        if name not in self.measurements:
            raise KeyError(f"{name!s:.60} was not measured; {near_names(str(name), self.measurements)}")
        return self.measurements[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.measurements)

    def __len__(self) -> int:
        return len(self.measurements)

    def __repr__(self) -> str:
        return f"Row({self._about()}; {counted(len(self.measurements), 'measurement')})"

    def __str__(self) -> str:
        headlines = [name for name in plugins().headlines(OF_OTHERS) if name in self.measurements]
        more = len(self.measurements) - len(headlines)
        notes = [f"{counted(more, 'more measurement')}: row.measurements"] if headlines and more else []
        return self._table(headlines or list(self.measurements), notes).markdown()

    def _repr_markdown_(self) -> str:  # for notebooks
        notes = [note.text if note.measurement == "*" else f"{note.measurement}: {note.text}" for note in self.notes]
        return self._table(list(self.measurements), notes).markdown()

    def _table(self, names: Sequence[str], notes: Sequence[str]) -> Table:
        rows = [[name, self.measurements[name], self.standard_errors.get(name, "")] for name in names]
        return Table(self._about(), ["measurement", "value", "standard error"], rows, notes)

    def _about(self) -> str:
        name = (self.model or "statistics") + (f", layer {self.layer}" if self.layer != TOP else "")
        name += f", {self.group}" if self.group else ""
        name += f" on {self.corpus}" if self.corpus else ""
        return f"{name}: C = {self.classes:,}, d = {self.dim:,}, N = {self.samples:,}"

    def frame(self) -> "pd.DataFrame":
        """Return a pandas DataFrame with one row and the columns of a results table."""
        return frame_of([self])

    def to_dict(self) -> dict[str, Any]:
        """Return the row as a dictionary for JSON; infinite numbers become None, because JSON has no infinity."""
        values: dict[str, Any] = plain(asdict(self))
        return values

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> "Row":
        """Read a row from the result of :meth:`to_dict`; unknown keys are ignored.

        Raises:
            TypeError: The row has another schema, or is not a row.
        """
        schema = row.get("schema", SCHEMA)
        if schema != SCHEMA:
            raise TypeError(
                f"a row has schema {schema!r}, but this version of collapse reads {SCHEMA}: run pip install -U "
                "linguistic-collapse"
            )
        made = cls(**{each.name: row[each.name] for each in fields(cls) if each.name in row})
        notes = tuple(Note(each["measurement"], each["kind"], each["text"]) for each in row.get("notes", ()))
        return replace(made, notes=notes)


_SOMETIMES = ("step", "tokens", "layer", "depth", "group", "ood")
ABOUT = tuple(
    each.name
    for each in fields(Row)
    if each.type in (str, int, str | None, int | None) and each.name not in ("schema", *_SOMETIMES)
)
"""The columns of a table before its measurements, which identify what was measured."""
COUNTS = tuple(each.name for each in fields(Row) if each.type == int | None)
"""Columns of whole numbers that may be missing."""


def frame_of(rows: Sequence[Row]) -> "pd.DataFrame":
    """Return rows as a pandas DataFrame: identifying columns, the measurements, and ``versions`` as JSON text."""
    import pandas as pd

    given = [name for name in ("step", "tokens", "group", "ood") if any(getattr(row, name) is not None for row in rows)]
    about = [*ABOUT, *given]
    about += ["layer", "depth"] if any(row.layer != TOP for row in rows) else []
    records = [
        {name: getattr(row, name) for name in about}
        | row.measurements
        | {"versions": json.dumps(row.versions, sort_keys=True)}
        for row in rows
    ]
    made = pd.DataFrame(records, columns=None if records else [*ABOUT, "versions"])
    made = made.astype({name: "Int64" for name in COUNTS if name in made})  # whole also where some are missing
    return made.copy()  # joins pandas' blocks of columns: inserting a column into more than 100 blocks causes a warning
