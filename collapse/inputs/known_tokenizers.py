"""Folders of local tokenizers, by hash. Stores can be published, so they record the hash and not the path."""

from contextlib import suppress
from pathlib import Path

from collapse.core.paths import home
from collapse.core.reading import read_json
from collapse.errors import CollapseError
from collapse.inputs.references import ModelReference
from collapse.stores.files import canonical, sha256_of
from collapse.stores.writing import write_atomic

_MOST = 8  # folders of one tokenizer, such as those of the models of a sweep


def remember_tokenizer(reference: ModelReference) -> None:
    """Record in the cache the folder of a tokenizer that a collection reads; a failed write is ignored."""
    if not reference.is_local:
        return
    with suppress(CollapseError, OSError):
        folder = Path(reference.location).resolve()
        kept = [folder, *(each for each in known_tokenizers(reference.tokenizer) if each != folder)]
        file = _file(reference.tokenizer)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, canonical([str(each) for each in kept[:_MOST]]))


def known_tokenizers(tokenizer: str) -> list[Path]:
    """Return the folders of a tokenizer, newest first. Their files may have changed: compare the hash again.

    Args:
        tokenizer: Its identity, ``sha256:…``.
    """
    try:
        return [Path(each) for each in read_json(_file(tokenizer)) if isinstance(each, str)]
    except (CollapseError, OSError, ValueError, TypeError):
        return []


def _file(tokenizer: str) -> Path:
    return home() / "tokenizers" / f"{sha256_of(tokenizer)}.json"
