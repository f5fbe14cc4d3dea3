"""Tokenize and pack texts once, into a folder that collections read instead of the texts."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from collapse.core.paths import expanded
from collapse.core.progress import Report, shows_progress
from collapse.errors import UsageError, counted
from collapse.hub.corpus import Corpus
from collapse.hub.references import find_tokenizer
from collapse.hub.textfiles import TextNames
from collapse.inputs.accepted_options import accepts
from collapse.inputs.chunk_files import Chunks
from collapse.inputs.collection_spec import OF_PACKING, CollectionSpec, options_of
from collapse.inputs.model_loading import load_tokenizer
from collapse.inputs.packing import chunk_length_of, tokenizer_key
from collapse.inputs.packing import pack as pack_into
from collapse.inputs.text_pair import find_texts
from collapse.stores.writing import write_atomic

_CARD = """---
viewer: false
tags: [collapse]
---
# Packed text

{held}, as token ids: `collapse collect MODEL --text FOLDER` reads them, or `--text owner/name` if this folder is a data
set on the Hub. `tokens.bin` has the ids as little-endian int32, in rows of T. `starts.bin` has the position of each
text's first id, as int64. `chunks.json` has the origin, the options and the sha256 of both files.
"""


@accepts(**dict.fromkeys(options_of().keys() - {"text", *OF_PACKING}))
@shows_progress
def pack(
    text: TextNames, *, tokenizer: str | Path, out: str | Path, progress: Report | None = None, **options: Any
) -> dict[str, Chunks]:
    """Tokenize texts and pack them into a folder.

    Other functions accept this folder as ``text=``, in place of the texts. If the folder already holds these
    chunks, nothing is tokenized.

    Args:
        text: The training text: files, folders, globs or a Hub data set.
        tokenizer: Folder, GGUF file or Hub id of the tokenizer or of its model.
        out: Folder for the chunks. It must be new, empty, or from an earlier run with the same options.
        progress: Called as progress(what, done, total[, note]).
        {options}

    Returns:
        The chunks of "train" and, if there is a validation text, of "validation".

    Raises:
        UsageError: An option is invalid, the folder holds other files or chunks, or a text is already packed.
        CollapseError: A text or the tokenizer is not available, a text is too short, or the folder cannot be written.
    """
    folder, spec = expanded(out), CollectionSpec(text=text, **options)
    ours = {"train", "validation", "README.md"}
    if folder.is_dir() and (other := sorted({each.name for each in folder.glob("[!.]*")} - ours)):
        raise UsageError(f"{folder} holds other files ({', '.join(other[:3])}): choose another --out")
    reference = find_tokenizer(str(tokenizer))
    spec = replace(spec, chunk_length=chunk_length_of(reference, spec.chunk_length))
    texts, key = find_texts(spec), tokenizer_key(reference, spec)
    loaded = load_tokenizer(reference, trust_remote_code=spec.trust_remote_code)

    def packed(corpus: Corpus, part: str, spec: CollectionSpec) -> Chunks:
        return pack_into(corpus, loaded, spec, tokenizer_key=key, folder=folder / part, progress=progress)

    assert texts.training is not None  # find_texts() finds it
    for flag, each in {"--text": texts.training, "--validation-text": texts.validation}.items():
        if each and each.packed:
            raise UsageError(f"{each.packed.name} is already packed: collect with {flag} {each.packed.name}")
    # pack the training text last: without it, the folder of a killed process does not count as a packed text
    validation = texts.pack_validation(lambda corpus: packed(corpus, "validation", spec.of_validation))
    if validation is None and (folder / "validation").exists():
        raise UsageError(
            f"{folder} also holds a packed validation text: give it again with --validation-text, or choose another "
            "--out"
        )
    found = {"train": packed(texts.training, "train", spec)}
    if validation is not None:
        found["validation"] = validation
    card = _CARD.format(held=described(found)).encode()
    write_atomic(folder / "README.md", card, shared=True)
    return found


def described(found: Mapping[str, Chunks]) -> str:
    """Return how many chunks were packed, such as ``20 chunks of 512 tokens, and 4 for validation``."""
    train, validation = found["train"], found.get("validation")
    said = f"{counted(len(train), 'chunk')} of {train.chunk_length:,} tokens"
    return said if validation is None else f"{said}, and {len(validation):,} for validation"
