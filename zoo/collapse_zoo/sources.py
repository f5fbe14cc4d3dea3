"""What a model is trained on: a training and a validation text and a tokenizer, packed as collection packs them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collapse.errors import CollapseError, UsageError
from collapse.files import home, sha256_of
from collapse.lock import locked
from collapse.models import load_tokenizer
from collapse.packing import Chunks, pack
from collapse.references import ModelReference, find_tokenizer
from collapse.reporting import Report
from collapse.text import Corpus, find_corpus
from collapse_zoo.names import CORPUS
from collapse_zoo.stories import stories, write_stories
from collapse_zoo.tokenizing import train_tokenizer

DATA_SET = "roneneldan/TinyStories"
TOKENIZER = "EleutherAI/gpt-neo-125M"
STORIES = 10_000
"""Generated stories, by default: 1.4 million tokens."""

_TOKENIZER_STORIES, _VOCABULARY = 2_000, 2_048
_PATIENCE_SECONDS = 600.0  # for another process that writes the same stories


@dataclass(frozen=True)
class Source:
    """Texts and a tokenizer, found.

    Attributes:
        corpus, validation: The texts; validation is None where there is none.
        reference: Which tokenizer.
        tokenizer: The tokenizer itself.
        label: What stands before the size in a model's name: TinyStories.
        shards, eos_between, max_chunks: How the text is cut, as :func:`collapse.collect` has them.
        optional_validation: The validation split was not asked for by name: it may be absent.
    """

    corpus: Corpus
    validation: Corpus | None
    reference: ModelReference
    tokenizer: Any
    label: str
    shards: int = 2
    eos_between: bool = False
    max_chunks: int | None = None
    optional_validation: bool = False

    def identity(self) -> dict[str, Any]:
        """What makes it this text, cut this way."""
        return {
            "corpus": self.corpus.identity(),
            "validation": self.validation.identity() if self.validation else None,
            "tokenizer": self.reference.tokenizer,
            "shards": self.shards,
            "eos_between": self.eos_between,
            "max_chunks": self.max_chunks,
        }

    def chunks(self, chunk_length: int, progress: Report | None = None) -> Chunks:
        """The training text, packed; raises as :func:`collapse.packing.pack`."""
        return self._pack(self.corpus, chunk_length, progress)

    def validation_chunks(self, chunk_length: int, progress: Report | None = None) -> Chunks | None:
        """The validation text, packed, or None."""
        return None if self.validation is None else self._pack(self.validation, chunk_length, progress)

    def collecting(self) -> dict[str, Any]:
        """Keyword arguments of :func:`collapse.collect` that collect on the same texts, cut the same way."""
        same = {"shards": self.shards, "eos_between": self.eos_between, "max_chunks": self.max_chunks}
        validation = {} if self.validation is None else {"validation_text": _again(self.validation)}
        if self.validation is not None and self.validation.split:
            validation["validation_split"] = self.validation.split
        split = {"split": self.corpus.split} if self.corpus.split else {}
        return same | validation | split | {"text": _again(self.corpus), "text_column": self.corpus.column}

    def _pack(self, corpus: Corpus, chunk_length: int, progress: Report | None) -> Chunks:
        return pack(
            corpus,
            self.tokenizer,
            chunk_length=chunk_length,
            tokenizer_hash=self.reference.tokenizer,
            cache=home(),
            shards=self.shards,
            eos_between=self.eos_between,
            max_chunks=self.max_chunks,
            progress=progress,
        )


def find_source(
    *,
    text: str | Sequence[str] | None = None,
    validation_text: str | Sequence[str] | None = None,
    tokenizer: str | None = None,
    generated: int | None = None,
    split: str | None = None,
    validation_split: str | None = None,
    text_column: str = "text",
    shards: int = 2,
    eos_between: bool = False,
    max_chunks: int | None = None,
) -> Source:
    """Find what to train on.

    Args:
        text: Files, globs or a Hub data set; None for roneneldan/TinyStories.
        validation_text: The same; None for the data set's own validation split, if it has one.
        tokenizer: A folder or a Hub id; None for EleutherAI/gpt-neo-125M, or the generated stories' own.
        generated: So many generated stories in place of a text; nothing is downloaded.
        split, validation_split: Of a data set on the Hub; None for "train" and "validation".
        text_column: Column that holds the text.
        shards, eos_between, max_chunks: How the text is cut.

    Raises:
        CollapseError: Something is not there; the message says how to get it, or how to do without.
    """
    if generated is not None:
        folder = _generate(generated)
        text, validation_text = str(folder / "train.jsonl"), str(folder / "validation.jsonl")
        tokenizer = tokenizer or str(folder / "tokenizer")
    try:
        corpus = find_corpus(text or DATA_SET, split=split, text_column=text_column)
        reference = find_tokenizer(tokenizer or TOKENIZER)
        loaded = load_tokenizer(reference)
    except CollapseError as error:
        end = "" if str(error).endswith("?") else "."
        raise type(error)(f"{error}{end} {_advice(text, tokenizer)}") from error
    optional = validation_text is None and corpus.source == "hub"
    validation = None
    if validation_text is not None or optional:
        named = validation_text or text or DATA_SET
        validation = find_corpus(named, split=validation_split, text_column=text_column, validation=True)
    elif validation_split is not None:
        raise UsageError(
            f"--validation-split {validation_split} does not apply: there is no validation text; "
            "name a data set with --validation-text, or leave it out"
        )
    label = "stories" if generated is not None else _label(corpus)
    return Source(corpus, validation, reference, loaded, label, shards, eos_between, max_chunks, optional)


def _generate(n: int) -> Path:
    """Generated stories with their tokenizer, in the cache; the same number gives the same."""
    about = {"stories": n, "tokenizer_stories": _TOKENIZER_STORIES, "vocabulary": _VOCABULARY, "format": 1}
    folder = home() / "stories" / sha256_of(about)[:16]
    done = folder / "done"
    if not done.is_file():
        with locked(folder, option="COLLAPSE_HOME", patience=_PATIENCE_SECONDS):
            if not done.is_file():  # another process may have written them just now
                write_stories(folder / "train.jsonl", n, seed=1)
                write_stories(folder / "validation.jsonl", max(n // 20, 100), seed=2)
                train_tokenizer(stories(_TOKENIZER_STORIES, seed=1), folder / "tokenizer", vocabulary=_VOCABULARY)
                done.touch()
    return folder


def _advice(text: Any, tokenizer: Any) -> str:
    missing = []
    if text is None:
        missing.append(f"the text with: hf download {DATA_SET} --repo-type dataset")
    if tokenizer is None:
        missing.append(f"the tokenizer with: hf download {TOKENIZER}")
    if not missing:
        return "Or train on generated stories, offline: --generated"
    return (
        f"Where there is a network, get {' and '.join(missing)}; or give your own with --text FILES and "
        "--tokenizer DIR; or train on generated stories, offline: --generated"
    )


def _label(corpus: Corpus) -> str:
    if corpus.source == "hub":
        return corpus.name.split("/")[-1]
    name = Path(corpus.files[0]).resolve().parent.name
    return re.sub(r"[^A-Za-z0-9.]+", ".", name).strip(".") or CORPUS


def _again(corpus: Corpus) -> str | list[str]:
    """What names the corpus to find_corpus."""
    return list(corpus.files) if corpus.source == "files" else f"{corpus.name}@{corpus.revision}"
