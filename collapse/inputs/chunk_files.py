"""Write and read the chunks of token ids that packing.py cuts.

A folder of chunks has three files: the token ids, the starts of the texts, and a record. The record has the text's
origin, the options of packing, and the sha256 of the two other files.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from collapse.core.reading import read_json
from collapse.errors import UsageError
from collapse.hub.packed_text import RECORD
from collapse.stores.files import sha256_file
from collapse.stores.identity_differences import differences
from collapse.stores.writing import write_atomic

FILES = ("tokens.bin", "starts.bin")
NOT_COMPARED = frozenset(("libraries", "name", "rows", "sha256", "tokenization"))
"""Fields of the record that may differ from those of a request."""


@dataclass(frozen=True)
class Chunks:
    """Packed text.

    Attributes:
        tokens: Token ids of S chunks, shape (S, T), int32, memory-mapped.
        starts: Position of each text's first token in the flattened ``tokens``, ascending, int64. Positions after the
            last token are ignored.
        sha256: Hash of the token ids (little-endian int32), which identifies the text independently of its origin.
    """

    tokens: np.ndarray
    starts: np.ndarray
    sha256: str

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def chunk_length(self) -> int:
        """T, the number of tokens per chunk."""
        return int(self.tokens.shape[1])

    @cached_property
    def _begins(self) -> np.ndarray:
        """Position of each block's first token in the flattened ``tokens``.

        A block is a sequence of whole texts that together have at least T tokens; the last block may have fewer.
        """
        begins = [0]
        for start in self.starts.tolist():
            if start >= begins[-1] + self.chunk_length:
                begins.append(start)
        return np.array(begins)

    def first(self, n: int) -> "Chunks":
        """Return the first n chunks, or all if there are fewer."""
        tokens = self.tokens[:n]
        return Chunks(tokens, self.starts, sha256(tokens.data).hexdigest())

    def blocks(self, start: int, stop: int) -> np.ndarray:
        """Return the id of each token's block in chunks ``start`` to ``stop − 1``, shape (stop − start, T)."""
        places = np.arange(start * self.chunk_length, stop * self.chunk_length)
        return (np.searchsorted(self._begins, places, side="right") - 1).reshape(-1, self.chunk_length)


def write_chunks(folder: Path, about: dict[str, Any], chunks: Iterator[tuple[np.ndarray, np.ndarray]]) -> None:
    """Write chunks into an existing folder, then write the record, which contains the fields ``about``.

    ``chunks`` yields pairs of arrays. The first array holds n chunks, shape (n, T). The second array holds, for each
    text, the position of its first token in the flattened first array. After an error, the files of the chunks are
    removed.
    """
    rows, files = 0, [folder / name for name in FILES]
    try:
        with files[0].open("wb") as file, files[1].open("wb") as beside:
            for some, starts in chunks:
                beside.write((starts + rows * some.shape[1]).astype("<i8").tobytes())
                file.write(some.astype("<i4").tobytes())
                rows += len(some)
        record = {**about, "rows": rows, "sha256": [sha256_file(each, remember=False) for each in files]}
        write_atomic(folder / RECORD, json.dumps(record, indent=1).encode())
    except BaseException:
        for each in files:
            each.unlink(missing_ok=True)
        raise


def read_chunks(folder: Path, about: Mapping[str, Any]) -> Chunks | None:
    """Return the chunks in a folder; None if the folder has no complete chunks, or their files were changed.

    Raises:
        UsageError: The record of the chunks differs from ``about``, apart from the fields :data:`NOT_COMPARED`.
    """
    try:
        record = read_json(folder / RECORD)
        if [sha256_file(folder / name) for name in FILES] != record["sha256"]:
            return None
        length = record["chunk_length"]
    except (OSError, ValueError, KeyError):
        return None
    if differ := differences(record, about, ignoring=NOT_COMPARED, sides=("packed", "requested")):
        raise UsageError(f"{folder} holds another packed text: {'; '.join(differ)}. Choose another --out")
    tokens = np.memmap(folder / FILES[0], dtype="<i4", mode="r").reshape(-1, length)
    return Chunks(tokens, np.fromfile(folder / FILES[1], dtype="<i8"), record["sha256"][0])
