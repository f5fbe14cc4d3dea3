"""The folder of a local tokenizer, by hash. Stores can be published, so they record the hash and not the path."""

from contextlib import suppress
from pathlib import Path

from collapse.core.paths import home
from collapse.errors import CollapseError
from collapse.inputs.references import ModelReference
from collapse.stores.files import sha256_of
from collapse.stores.writing import write_atomic


def remember_tokenizer(reference: ModelReference) -> None:
    """Record in the cache the folder of a tokenizer that a collection reads; a failed write is ignored."""
    if reference.is_local:
        with suppress(CollapseError):
            write_atomic(_file(reference.tokenizer), bytes(Path(reference.location).resolve()), shared=True)


def known_tokenizer(tokenizer: str) -> Path | None:
    """Return the folder of a tokenizer of this hash, or None. Its files may have changed: compare the hash again."""
    with suppress(OSError):
        return Path(_file(tokenizer).read_text())
    return None


def _file(tokenizer: str) -> Path:
    return home() / "tokenizers" / sha256_of(tokenizer)
