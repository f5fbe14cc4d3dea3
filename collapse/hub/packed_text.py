"""Find a packed text: a folder or repository of token chunks, which inputs/chunk_files.py reads and writes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from collapse.hub.fingerprints import Files, json_of

RECORD = "chunks.json"
TRAINING, VALIDATION = f"train/{RECORD}", f"validation/{RECORD}"


@dataclass(frozen=True)
class PackedText:
    """A packed text that was found, but not read yet.

    Attributes:
        files: The folder or repository.
        part: The folder of this text in ``files``: "train" or "validation".
        record: What ``chunks.json`` records: the text, its tokenizer and the options of packing.
    """

    files: Files
    part: str
    record: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the folder or repository, as ``--text`` accepts it."""
        commit = getattr(self.files, "commit", None)
        return f"{self.files.name}@{commit}" if commit else self.files.name


def find_packed(files: Files, *, validation: bool) -> PackedText | None:
    """Return the packed training text in a folder or repository; None if there is no packed text.

    With ``validation``, return the validation text or, if none was packed, the training text.
    """
    for name in (VALIDATION, TRAINING) if validation else (TRAINING,):
        if "corpus" in (record := json_of(files, name)):
            return PackedText(files, name.split("/")[0], record)
    return None
